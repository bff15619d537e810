"""A path changes while the node's very first fetch is in flight. Nothing is cached yet, but the
change must not be missed. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.stopped import RENAMES, Stopped  # noqa: E402

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
OLD, NEW = b"old\n" * 1000, b"new\n" * 1000
CHANGES = {
    "os.replace(data + '/g', data + '/f')": NEW, "os.unlink(data + '/f')": b"absent\n",
    "os.rename(data, data + '-away'); os.rename(data + '-other', data)": NEW,
}
# One job: while a child fetches the file, the job changes the path, and then reads it.
JOB = """
import os, subprocess, sys
data = sys.argv[1]
fetcher = subprocess.Popen(["cat", data + "/f"], stdout=subprocess.DEVNULL)
sys.stdin.read(1)
CHANGE
assert fetcher.poll() is None, "the fetch was over before the change"
assert fetcher.wait() == 0
try:
    sys.stdout.buffer.write(open(data + "/f", "rb").read())
except FileNotFoundError:
    print("absent")
"""


# Nothing is being fetched yet when the change begins.
LATE = """
import os, subprocess, sys, threading
data, begins = sys.argv[1], threading.Event()
def change():
    sys.stdin.readline()
    begins.set()
    os.rename(data, data + "-away")
thread = threading.Thread(target=change)
thread.start()
print(thread.native_id, flush=True)
begins.wait()
sys.stdin.readline()
fetcher = subprocess.Popen(["cat", data + "/f"], stdout=subprocess.DEVNULL)
thread.join()
assert fetcher.wait() == 0
try:
    print(open(data + "/f").read(), end="")
except FileNotFoundError:
    print("absent")
"""
# A hit is opened and closed while a thread fetches another file.
BESIDE = """
import os, sys, threading
data = sys.argv[1]
os.close(os.open(data + "/g", os.O_RDONLY))
lowest = os.dup(0)
os.close(lowest)
print("cached", flush=True)
sys.stdin.readline()
numbers = []
thread = threading.Thread(target=lambda: numbers.append(os.open(data + "/f", os.O_RDONLY)))
thread.start()
sys.stdin.readline()
beside = os.open(data + "/g", os.O_RDONLY)
os.close(beside)
thread.join()
print(beside > lowest, numbers == [lowest])
"""


class SlowReads(SlowMount):
    def _options(self) -> list[str]:
        return ["--lookup-us", "0", "--open-us", "0", "--getattr-us", "0", "--read-us", "2000000"]


class FirstFetch(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-first-")))
        source = self.scratch / "source"
        for name, text in (("data", OLD), ("data-other", NEW)):
            (source / name).mkdir(parents=True)
            (source / name / "f").write_bytes(text)
        (source / "data" / "g").write_bytes(NEW)
        os.utime(source / "data" / "f", (1e9, 1e9))
        self.mount = self.enterContext(SlowReads(Path(LAGFS), source, self.scratch, 0))
        self.name = f"first-{os.getpid()}-{self.id().rsplit('.', 1)[-1]}"[:64]
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        self.env = clean | {
            "CUBESHIM_PREFIXES": str(self.mount.path), "CUBESHIM_NAME": self.name,
            "CUBESHIM_RAM": "32M", "CUBESHIM_STATS": "off", "LD_PRELOAD": LIBRARY
        }

    def start(self, text: str) -> subprocess.Popen:
        words = ["/usr/bin/python3", "-c", text, str(self.mount.path / "data")]
        job = subprocess.Popen(words, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: [job.kill(), job.communicate()])
        return job

    def tell(self, job: subprocess.Popen):
        job.stdin.write(b"\n")
        job.stdin.flush()

    def wait_for_a_read(self, before: int = 0):
        deadline = time.monotonic() + 60
        while self.mount.on_data("read") == before:
            self.assertLess(time.monotonic(), deadline, "nobody reads")

    def end_of(self, job: subprocess.Popen, said: bytes = b"") -> bytes:
        seen = job.communicate(said, timeout=60)[0]
        self.assertEqual(job.returncode, 0)
        return seen

    def read_after(self, change: str) -> bytes:
        job = self.start(JOB.replace("CHANGE", change))
        self.wait_for_a_read()
        return self.end_of(job, b"x")

    def test_the_job_sees_its_change(self):
        for change, expected in CHANGES.items():
            with self.subTest(change):
                self.assertEqual(self.read_after(change), expected)
            self.doCleanups()
            self.setUp()

    def test_the_job_sees_a_change_that_began_before_the_fetch(self):
        job = self.start(LATE)
        change = Stopped(int(job.stdout.readline()))
        self.addCleanup(change.go_on)
        self.tell(job)
        self.assertTrue(change.run_to(lambda number, _: number in RENAMES))
        self.tell(job)
        self.wait_for_a_read()
        change.go_on()
        self.assertEqual(self.end_of(job), b"absent\n")

    def test_a_file_gets_the_lowest_fd_after_its_fetch(self):
        job = self.start(BESIDE)
        self.assertEqual(job.stdout.readline(), b"cached\n")
        before = self.mount.on_data("read")
        self.tell(job)
        self.wait_for_a_read(before)
        self.assertEqual(self.end_of(job, b"\n"), b"True True\n")


if __name__ == "__main__":
    unittest.main()
