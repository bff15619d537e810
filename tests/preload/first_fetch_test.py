"""A path changes while the node's very first fetch is in flight: nothing is cached yet, but the
change matters all the same. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
OLD, NEW = b"old\n" * 1000, b"new\n" * 1000
CHANGES = {
    "os.replace(data + '/g', data + '/f')": NEW, "os.unlink(data + '/f')": b"absent\n",
    "os.rename(data, data + '-away'); os.rename(data + '-other', data)": NEW,
}
# One job: a child fetches the file, meanwhile the job changes the path, and then reads it.
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

    def read_after(self, change: str) -> bytes:
        words = [
            "/usr/bin/python3", "-c",
            JOB.replace("CHANGE", change),
            str(self.mount.path / "data")
        ]
        job = subprocess.Popen(words, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: [job.kill(), job.communicate()])
        deadline = time.monotonic() + 60
        while self.mount.on_data("read") == 0:
            self.assertLess(time.monotonic(), deadline, "nobody reads")
        seen = job.communicate(b"x", timeout=60)[0]
        self.assertEqual(job.returncode, 0)
        return seen

    def test_the_job_sees_its_change(self):
        for change, expected in CHANGES.items():
            with self.subTest(change):
                self.assertEqual(self.read_after(change), expected)
            self.doCleanups()
            self.setUp()


if __name__ == "__main__":
    unittest.main()
