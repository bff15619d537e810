"""Another node has moved an open file out of reach. The search for this file asks a slow mount for
a bounded number of names. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
DIRECTORIES, MOST_TRIES = 400, 128
JOB = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
print(os.read(fd, 3), flush=True)
sys.stdin.readline()
fcntl.flock(fd, fcntl.LOCK_SH)
print(os.pread(fd, 3, 0))
"""


class MovedAway(unittest.TestCase):
    def test_the_search_among_many_directories_is_bounded(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-moved-")))
        source = scratch / "source"
        for number in range(DIRECTORIES):
            (source / f"d{number}").mkdir(parents=True)
        (source / "own").mkdir()
        (source / "own" / "f").write_bytes(b"old")
        mount = self.enterContext(SlowMount(Path(LAGFS), source, scratch, 0, keeps_names=False))
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        job = subprocess.Popen(
            ["/usr/bin/python3", "-c", JOB, str(mount.path / "own" / "f")], text=True,
            env=clean | {
                "CUBESHIM_PREFIXES": str(mount.path), "CUBESHIM_NAME": f"moved-{os.getpid()}",
                "CUBESHIM_RAM": "32M", "CUBESHIM_STATS": "off", "CUBESHIM_PREFETCH": "0",
                "LD_PRELOAD": LIBRARY
            }, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with job:
            self.assertEqual(job.stdout.readline(), "b'old'\n")
            (source / "own").rename(scratch / "away")
            before = mount.counters()["lookup"]["count"]
            self.assertEqual(job.communicate("\n", timeout=60)[0], "b'old'\n")
        # Each try costs four lookups.
        self.assertLess(mount.counters()["lookup"]["count"] - before, 5 * MOST_TRIES)


if __name__ == "__main__":
    unittest.main()
