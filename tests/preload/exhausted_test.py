"""A process that has no fd, no memory or no mapping left still reports its changes to the node.
CUBESHIM_LIBRARY names the build's library, CUBESHIM_LAGFS the slow mount."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = os.environ["CUBESHIM_LIBRARY"], os.environ["CUBESHIM_LAGFS"]
DEADLINE_S, FILES = 120, 40
# A child has read each file and keeps it open, so all files are cached. Prints how many of the
# changes the child does not see when it opens the file, and how many it does not see through the fd
# that it keeps.
START = """
import ctypes, json, os, resource, sys
mount, files = sys.argv[1], int(sys.argv[2])
names = [f"{mount}/f{i}" for i in range(files)]
asks, asked = os.pipe()
answers, answered = os.pipe()
def look():
    seen = []
    for name in names:
        try:
            fd = os.open(name, os.O_RDONLY)
            seen.append([os.read(fd, 20).decode(), os.stat(name).st_size])
            os.close(fd)
        except FileNotFoundError:
            seen.append(None)
    return seen
if os.fork() == 0:
    os.close(asked)
    kept = [os.open(name, os.O_RDONLY) for name in names]
    def look_at_kept():
        return [[os.pread(fd, 20, 0).decode(), os.fstat(fd).st_size] for fd in kept]
    while how := os.read(asks, 1):
        answer = json.dumps(look() if how == b"n" else look_at_kept()).encode() + b"\\n"
        os.write(answered, len(answer).to_bytes(4, "big") + answer)
    os._exit(0)
def look_of_the_child(how):
    os.write(asked, how)
    left, text = int.from_bytes(os.read(answers, 4), "big"), b""
    while len(text) < left:
        text += os.read(answers, left - len(text))
    return json.loads(text)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_long
def map_all():
    size = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
    while libc.mmap(None, ctypes.c_long(4096), 0, 0x22, -1, ctypes.c_long(0)) != -1:
        pass
def open_all():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    try:
        while True:
            os.dup(1)
    except OSError:
        pass
before, kept_before = look_of_the_child(b"n"), look_of_the_child(b"k")
look()
"""
END = """
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
kept = sum(a == b for a, b in zip(kept_before, look_of_the_child(b"k")))
print(sum(a == b for a, b in zip(before, look_of_the_child(b"n"))), kept)
"""
# While the library opens the origin's file above the soft limit, the program sets the limit that it
# sees.
SET_LIMIT = """
import threading
fd = os.open(names[0], os.O_RDONLY)
assert len(os.read(fd, 3)) == 3
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        os.dup(1)
except OSError:
    pass
print("full", flush=True)
sys.stdin.readline()
opener = threading.Thread(target=os.fsync, args=[fd])
opener.start()
sys.stdin.readline()
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
assert limit[0] > 100, limit
if sys.argv[3] == "number":
    words = (ctypes.c_ulong * 2)(*limit)
    assert libc.syscall(ctypes.c_long(302 if os.uname().machine == "x86_64" else 261), 0,
                        resource.RLIMIT_NOFILE, words, None) == 0
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
print("set", flush=True)
opener.join()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
"""


class Exhausted(unittest.TestCase):
    def setUp(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-full-")))
        source = scratch / "source"
        source.mkdir()
        for i in range(FILES):
            (source / f"f{i}").write_text(f"old {i}\n")
            (source / f"link{i}").symlink_to(f"f{i}")
            os.utime(source / f"f{i}", (1e9, 1e9))
        self.mount = self.enterContext(SlowMount(Path(LAGFS), source, scratch, 0))

    def environment(self) -> dict:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        return clean | {
            "CUBESHIM_PREFIXES": str(self.mount.path), "CUBESHIM_NAME": f"full-{os.getpid()}",
            "CUBESHIM_RAM": "64M", "CUBESHIM_STATS": "off", "LD_PRELOAD": LIBRARY
        }

    def assert_seen(self, job: str, kept: int = 0):
        done = subprocess.run(
            ["/usr/bin/python3", "-c", START + job + END, str(self.mount.path), str(FILES)],
            env=self.environment(), capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout), (0, f"0 {kept}\n"), done.stderr)

    def test_files_removed_without_a_free_mapping_are_gone(self):
        self.assert_seen("map_all()\nfor name in names: os.unlink(name)\n", kept=FILES)

    def test_files_truncated_without_a_free_mapping_are_short(self):
        self.assert_seen("map_all()\nfor name in names: os.truncate(name, 2)\n")

    def test_files_truncated_through_links_without_a_free_fd_are_short(self):
        self.assert_seen("""
links = [f"{mount}/link{i}" for i in range(files)]
open_all()
for link in links: os.truncate(link, 2)
""")

    def test_file_truncated_through_a_link_without_a_free_fd_is_the_only_one_fetched_again(self):
        self.assert_seen("""
def opens():
    with open(f"{mount}/.lagfs/counters") as counters:
        return int(dict(line.split()[:2] for line in counters)["open"])
spare = os.open("/dev/null", os.O_RDONLY)
before_opens = opens()
open_all()
os.truncate(f"{mount}/link0", 2)
os.close(spare)
look_of_the_child(b"n")
assert opens() - before_opens <= 2, opens() - before_opens
before, kept_before = before[:1], kept_before[:1]
""")

    def test_file_that_a_spawned_program_opens_without_a_free_fd_is_written(self):
        self.assert_seen("""
before, kept_before = before[:1], kept_before[:1]
clean = {"PATH": "/usr/bin:/bin"}
open_all()
actions = [(os.POSIX_SPAWN_CLOSE, fd) for fd in range(20, 100)] + [
    (os.POSIX_SPAWN_OPEN, 1, names[0], os.O_WRONLY | os.O_TRUNC, 0)]
pid = os.posix_spawn("/bin/echo", ["echo", "new"], clean, file_actions=actions)
assert os.waitpid(pid, 0)[1] == 0
""")

    def test_files_opened_for_writing_without_memory_are_written(self):
        self.assert_seen("""
held = []
map_all()
for name in names:
    held.append(libc.open(name.encode(), os.O_WRONLY | os.O_TRUNC))
    libc.write(held[-1], b"new", 3)
""")

    def test_limit_of_fds_that_the_program_sets_during_an_open_above_it_stays(self):
        control = self.mount.path / ".lagfs"
        for way in "libc", "number":
            job = subprocess.Popen(
                ["/usr/bin/python3", "-c", START + SET_LIMIT,
                 str(self.mount.path), str(FILES), way],
                env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.addCleanup(lambda job=job: [job.kill(), job.communicate()])
            self.assertEqual(job.stdout.readline(), "full\n")
            (control / "script").write_text("hold open\n")
            job.stdin.write("\n")
            job.stdin.flush()
            self.assertNotIn((control / "held").read_text(), ("", "0\n"))
            job.stdin.write("\n")
            job.stdin.flush()
            self.assertEqual(job.stdout.readline(), "set\n")
            (control / "script").write_text("go\n")
            self.assertEqual(job.wait(DEADLINE_S), 0)


if __name__ == "__main__":
    unittest.main()
