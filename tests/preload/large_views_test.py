"""Tests files served in blocks when a process sees a different file at the same path, or may not
read the file. Needs root. CUBESHIM_LIBRARY names the build's file."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.preload.large_job import environment  # noqa: E402

SIZE = 5_000_001
PROLOGUE = """
import array, json, os, socket, sys
path = sys.argv[1]
def kinds(file):
    return sorted(set(os.pread(file, 10_000_000, 0)))
def read():
    file = os.open(path, os.O_RDONLY)
    found = kinds(file)
    os.close(file)
    return found
"""


@unittest.skipIf(os.geteuid() != 0, "needs root")
class Views(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-large-")))
        self.scratch.chmod(0o755)
        self.data = self.scratch / "data"
        self.data.mkdir()
        self.mount(self.data, 1)
        self.addCleanup(lambda: subprocess.run(["umount", self.data], check=True))
        self.path = self.data / "f"
        self.report = self.scratch / "report.json"
        self.env = environment(str(self.data), CUBESHIM_RAM="64M", CUBESHIM_RAM_KEEP="1",
                               CUBESHIM_STATS=str(self.report), CUBESHIM_STATS_FORMAT="json")
        region = Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.env['CUBESHIM_NAME']}")
        self.addCleanup(lambda: region.unlink(missing_ok=True))

    def mount(self, at: Path, kind: int):
        subprocess.run(["mount", "-t", "tmpfs", "none", at], check=True)
        self.fill(at / "f", kind)

    def fill(self, path: Path, kind: int):
        path.write_bytes(bytes([kind]) * SIZE)
        os.utime(path, (1e9, 1e9))

    def job(self, body: str, *before: str) -> list:
        words = [*before, "/usr/bin/python3", "-c", PROLOGUE + body, str(self.path)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def blocks(self) -> dict:
        return json.loads(self.report.read_text().splitlines()[-1])["blocks"]

    def test_another_mount_under_the_path_has_separate_blocks(self):
        read = "print(json.dumps([read(), read()]))"
        self.assertEqual(self.job(read), [[1], [1]])
        other = self.scratch / "other"
        other.mkdir()
        self.mount(other, 2)
        self.addCleanup(lambda: subprocess.run(["umount", other], check=True))
        ours, theirs = os.stat(self.path), os.stat(other / "f")
        self.assertEqual((ours.st_ino, ours.st_size, ours.st_mtime_ns),
                         (theirs.st_ino, theirs.st_size, theirs.st_mtime_ns))
        move = ["unshare", "-m", "sh", "-c", f'mount --bind {other} {self.data} && exec "$@"', "sh"]
        for _ in range(2):
            self.assertEqual(self.job(read, *move), [[2], [2]])
            self.assertEqual(self.blocks()["files"], 2)
            self.assertEqual(self.job(read), [[1], [1]])
            self.assertEqual((self.blocks()["origin"], self.blocks()["hits"]), (0, 2))

    def test_a_process_that_may_not_open_the_file_gets_none_of_its_bytes(self):
        os.chown(self.path, 1234, 1234)
        os.chmod(self.path, 0o600)
        os.utime(self.path, (1e9, 1e9))
        self.assertEqual(self.job("print(json.dumps(read()))"), [1])
        # The report of the next job could not be written.
        self.env["CUBESHIM_STATS"] = "off"
        self.assertEqual(
            self.job("""
said = []
held = os.open(path, os.O_RDONLY)
for flags in (os.O_PATH, os.O_WRONLY):
    file = os.open(path, flags)
    try:
        said.append(kinds(file))
    except OSError as error:
        said.append(error.strerror)
    os.close(file)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    said.append(read())
except OSError as error:
    said.append(error.strerror)
# The process had the file open before.
said.append(kinds(held))
print(json.dumps(said))
"""), ["Bad file descriptor", "Bad file descriptor", "Permission denied", [1]])

    def test_fd_that_comes_by_a_socket_is_read_by_the_kernel(self):
        self.assertEqual(
            self.job("""
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
if os.fork() == 0:
    file = os.open(path, os.O_RDONLY)
    kinds(file)
    socket.send_fds(theirs, [b"x"], [file])
    os._exit(0)
_, files, _, _ = socket.recv_fds(ours, 1, 1)
os.wait()
said = [kinds(files[0])]
# The file gets another version: the received fd leads to this one.
with open(path, "r+b") as file:
    file.write(bytes([3]) * 5_000_001)
said.append(kinds(files[0]))
print(json.dumps(said))
"""), [[1], [3]])


if __name__ == "__main__":
    unittest.main()
