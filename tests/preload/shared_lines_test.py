"""Two threads that have only hits never write to the same cache line; shared_lines_probe.c explains
how this is detected.

    shared_lines_test.py [--show]     --show prints each line that one of them writes
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# A thread may write this many lines: its open file, the row of its fd, and its lanes.
MOST_WRITTEN = 7


class SharedLines(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("one", "other"):
            (self.directory / name).write_bytes(b"x" * 4096)
            os.utime(self.directory / name, (1_600_000_000,) * 2)

    def check(self, *names):
        environment = {
            "PATH": os.environ["PATH"], "LD_PRELOAD": os.environ["CUBESHIM_LIBRARY"],
            "CUBESHIM_PREFIXES": str(self.directory), "CUBESHIM_STATS": "off",
            "CUBESHIM_RAM": "64M", "CUBESHIM_NAME": f"shared-lines-{os.getpid()}",
            "CUBESHIM_PREFETCH": "0"
        }
        probe = [
            os.environ["SHARED_LINES_PROBE"], *(str(self.directory / name) for name in names),
            "--show"
        ]
        done = subprocess.run(probe, env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        if "--show" in sys.argv:
            print(done.stdout)
        found = dict(line.split() for line in done.stdout.splitlines()[-2:])
        self.assertEqual(int(found["shared"]), 0, done.stdout)
        # Shows that the library is loaded and that its stores were detected.
        self.assertGreaterEqual(int(found["written"]), 4, done.stdout)
        self.assertLessEqual(int(found["written"]), MOST_WRITTEN, done.stdout)

    def test_hits_of_two_files(self):
        self.check("one", "other")

    def test_hits_of_one_file(self):
        self.check("one", "one")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
