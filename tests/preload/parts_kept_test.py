"""A program opens a file of a few MB for its footer, closes it, and opens it again to read all of
it, as readers of parquet do. Each byte is read from the mount only one time, although FUSE drops
the kernel's pages at the second open. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's
files."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
SIZE = 2_775_417
JOB = """
import os, sys
path, wanted = sys.argv[1], open(sys.argv[2], "rb").read()
file = os.open(path, os.O_RDONLY)
assert os.pread(file, 65536, len(wanted) - 65536) == wanted[-65536:]
os.close(file)
with open(path, "rb", buffering=0) as file:
    found = b"".join(iter(lambda: file.read(200_000), b""))
assert found == wanted
"""


class PartsKept(unittest.TestCase):
    def test_footer_that_was_read_before_comes_once(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-kept-")))
        source = scratch / "source"
        source.mkdir()
        (source / "f").write_bytes(os.urandom(SIZE))
        os.utime(source / "f", (1e9, 1e9))
        mount = self.enterContext(SlowMount(Path(LAGFS), source, scratch, 0))
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        env = clean | {
            "CUBESHIM_PREFIXES": str(mount.path), "CUBESHIM_NAME": f"kept-{os.getpid()}",
            "CUBESHIM_RAM": "64M", "CUBESHIM_PREFETCH": "0", "LD_PRELOAD": LIBRARY
        }
        subprocess.run(["/usr/bin/python3", "-c", JOB, str(mount.path / "f"), str(source / "f")],
                       env=env, check=True, timeout=60)
        self.assertEqual(mount.bytes_read(), SIZE)


if __name__ == "__main__":
    unittest.main()
