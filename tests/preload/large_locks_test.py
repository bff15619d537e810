"""Files that are read in blocks, on a slow mount: locks, and the program's open files as other
processes see them. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.large_job import environment  # noqa: E402

LAGFS = os.environ["CUBESHIM_LAGFS"]
SIZE = 24 << 20
# The beginning of each job. LOCK and USE are replaced.
START = """
import fcntl, mmap, os, sys
path = sys.argv[1]
other = os.open(path, os.O_RDONLY)
def expect_unlocked():
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("the lock has outlived its file")
    fcntl.flock(other, fcntl.LOCK_UN)
def read(fd, at):
    os.lseek(fd, at, 0)
    for _ in range(3):
        os.read(fd, 1 << 20)
def map_and_touch(fd, at):
    mapping = mmap.mmap(fd, 4 << 20, prot=mmap.PROT_READ, offset=at)
    assert mapping[1 << 20] == 7
    return mapping
"""
LOCKED_BEFORE = """
for i in range(3):
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    used = USE(fd, i * (6 << 20))
    if used: used.close()
    os.close(fd)
    expect_unlocked()
"""
LOCKED_AFTER = """
for i in range(3):
    fd = os.open(path, os.O_RDONLY)
    used = USE(fd, i * (6 << 20))
    fcntl.flock(fd, fcntl.LOCK_EX)
    if used: used.close()
    os.close(fd)
    expect_unlocked()
"""
REPLACED = """
for i in range(3):
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    used = USE(fd, i * (6 << 20))
    if used: used.close()
    os.dup2(other, fd)
    expect_unlocked()
    os.close(fd)
"""
CHANGED = """
fd = os.open(path, os.O_RDONLY)
assert os.pread(fd, 10, 0) == bytes([7]) * 10
print("read", flush=True)
sys.stdin.readline()
fcntl.LOCK(fd, fcntl.LOCK_SH)
assert os.pread(fd, 10, 0) == b"changed..."
"""


class SlowReads(SlowMount):
    def _options(self) -> list[str]:
        delays = ["--lookup-us", "0", "--open-us", "0", "--getattr-us", "0", "--read-us", "20000"]
        return [*(["--direct"] if self.direct else []), *delays]


class LargeFiles(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-large-")))
        self.source = self.scratch / "source"
        self.source.mkdir()
        (self.source / "f").write_bytes(bytes([7]) * SIZE)
        os.utime(self.source / "f", (1e9, 1e9))
        # With a page cache, each page is slow only the first time; without a page cache, files
        # cannot be mapped.
        self.mounts = {
            direct: self.enterContext(SlowReads(Path(LAGFS), self.source, self.scratch, 0, direct))
            for direct in (False, True)
        }
        prefixes = ":".join(str(mount.path) for mount in self.mounts.values())
        self.env = environment(prefixes, CUBESHIM_RAM="64M", CUBESHIM_STATS="stderr")

    def start(self, job: str, direct: bool) -> subprocess.Popen:
        words = ["/usr/bin/python3", "-c", START + job, str(self.mounts[direct].path / "f")]
        process = subprocess.Popen(words, env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: [process.kill(), process.communicate()])
        return process

    def expect_well(self, process: subprocess.Popen, said: str = ""):
        out, err = process.communicate(said, timeout=60)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn(" of large files, ", err)

    def test_a_lock_ends_with_the_last_fd_of_its_file(self):
        for job in (LOCKED_BEFORE, LOCKED_AFTER, REPLACED):
            for use in ("read", "map_and_touch"):
                with self.subTest(job + use):
                    self.expect_well(self.start(job.replace("USE", use), direct=use == "read"))

    def test_a_reader_that_locks_sees_the_writes_of_others(self):
        for lock in ("flock", "lockf"):
            with self.subTest(lock):
                job = self.start(CHANGED.replace("LOCK(", lock + "("), direct=True)
                self.assertEqual(job.stdout.readline(), "read\n")
                with open(self.source / "f", "r+b") as file:
                    file.write(b"changed...")
                self.expect_well(job, "go on\n")
            (self.source / "f").write_bytes(bytes([7]) * SIZE)


if __name__ == "__main__":
    unittest.main()
