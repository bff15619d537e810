"""Memory for a plain reader's next files, made by the sidecar beside it: nothing is announced, listed or prefetched here."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import LIBRARY, PATIENCE_S, PYTHON

SEGMENT = 2 << 20  # of a region this small
LARGE, COUNT = 200_000, 25  # they begin the third segment

# Reads the large files; then a small one for each line, which needs no other segment.
READER = f"""
import os, sys
def read(name):
    with open(os.path.join(sys.argv[1], name), 'rb') as file: file.read()
read('large0')
print(flush=True)
sys.stdin.readline()
for n in range(1, {COUNT}): read(f'large{{n}}')
for n, line in enumerate(sys.stdin):
    read(f'small{{n}}')
    print(flush=True)
"""


class Room(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="cubeshim-room-")
        self.addCleanup(directory.cleanup)
        self.data = Path(directory.name)
        for n in range(COUNT):
            (self.data / f"large{n}").write_bytes(os.urandom(LARGE))
        self.name = f"room-{os.getpid()}"

    def allocated(self):
        return os.stat(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}").st_blocks * 512

    def segments_after(self, files, **settings):
        """How many segments of the region have memory when so many small files were read, or as soon as there are 5."""
        environment = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": LIBRARY, "CUBESHIM_PREFIXES": str(self.data),
                       "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "64M", "CUBESHIM_STATS": "off"} | settings
        reader = subprocess.Popen([PYTHON, "-c", READER, self.data], env=environment, text=True, bufsize=1,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with reader:
            reader.stdout.readline()
            before = self.allocated() - SEGMENT
            print(file=reader.stdin)
            for n in range(files):
                (self.data / f"small{n}").write_bytes(b"small")
                print(file=reader.stdin)
                reader.stdout.readline()
                segments = (self.allocated() - before) // SEGMENT
                if segments >= 5:
                    break
            reader.stdin.close()
        self.assertEqual(reader.returncode, 0)
        return segments

    def test_a_plain_reader_that_fills_a_segment_finds_the_next_ones_ready(self):
        self.assertGreaterEqual(self.segments_after(200 * PATIENCE_S), 5)

    def test_without_a_sidecar_there_is_what_the_reader_uses(self):
        self.assertEqual(self.segments_after(100, CUBESHIM_PREFETCH="0"), 3)


if __name__ == "__main__":
    unittest.main()
