"""A file on FUSE whose pages the kernel keeps (FOPEN_KEEP_CACHE). Another node writes the file and
sets its mtime back, so the kernel does not notice the write. The cached bytes must belong to the
cached stat, because other nodes get both from this cache. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name
the build's files."""
import json
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
DEADLINE_S = 60
READ = "import sys\nfor name in sys.argv[1:]: print(set(open(name, 'rb').read()))"


class KeptPages(unittest.TestCase):
    def read(self, environment: dict | None = None) -> str:
        names = [str(self.mount.path / name) for name in ("small", "in parts")]
        done = subprocess.run(["/usr/bin/python3", "-c", READ, *names], env=environment,
                              capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def setUp(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-pages-")))
        self.source = scratch / "source"
        self.source.mkdir()
        for name, size in (("small", 5000), ("in parts", 3_000_000)):
            (self.source / name).write_bytes(b"o" * size)
        self.mount = self.enterContext(
            SlowMount(Path(LAGFS), self.source, scratch, 0, keeps_pages=True))
        self.report = scratch / "report"
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        self.environment = clean | {
            "CUBESHIM_PREFIXES": str(self.mount.path), "CUBESHIM_NAME": f"pages-{os.getpid()}",
            "CUBESHIM_RAM": "32M", "CUBESHIM_CONSISTENCY": "open", "CUBESHIM_PREFETCH": "0",
            "CUBESHIM_STATS": str(self.report), "CUBESHIM_STATS_FORMAT": "json",
            "LD_PRELOAD": LIBRARY
        }

    def test_the_cache_gets_the_bytes_of_the_server(self):
        for path in self.source.iterdir():
            os.utime(path, (1e9, 1e9))
        self.assertEqual(self.read(), f"{set(b'o')}\n" * 2)
        for path in self.source.iterdir():
            with open(path, "r+b") as file:
                file.write(b"N" * path.stat().st_size)
            os.utime(path, (1e9, 1e9))
        self.assertEqual(self.read(), f"{set(b'o')}\n" * 2, "the kernel has dropped its pages")
        # A file that was changed just now is not cached yet, and is left to the kernel.
        deadline = time.monotonic() + DEADLINE_S
        while True:
            seen = self.read(self.environment)
            report = json.loads(self.report.read_text().splitlines()[-1])
            if report["misses"] == 2:
                break
            self.assertLess(time.monotonic(), deadline, report)
        self.assertEqual(seen, f"{set(b'N')}\n" * 2)


if __name__ == "__main__":
    unittest.main()
