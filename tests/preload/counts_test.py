"""The report must count bytes that programs have read through fds that they never closed: before an
exec, in a process that is killed, and in a parent that forks. CUBESHIM_LIBRARY names the build's
library."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.preload.large_job import environment  # noqa: E402

MIB = 1 << 20
STEP = MIB // 4
SIZES = {"small": 20_000, "parts": 3 * MIB, "large": 24 * MIB}
PROLOGUE = """
import os, signal, sys
def opened_and_read(name, flags=0):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY | flags)
    while os.read(fd, 100_000):
        pass
    return fd
def in_child(body):
    if os.fork() == 0:
        body()
        os._exit(0)
    return os.wait()[1]
"""


class Counts(unittest.TestCase):
    def setUp(self):
        self.data = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-counts-")))
        for name, size in SIZES.items():
            (self.data / name).write_bytes(os.urandom(size))
            os.utime(self.data / name, (1e9, 1e9))

    def report(self, body: str, **settings: str) -> dict:
        report = self.data.parent / f"{self.data.name}.json"
        self.addCleanup(report.unlink, missing_ok=True)
        env = environment(str(self.data), CUBESHIM_MAX_FILE="16M", CUBESHIM_STATS=str(report),
                          CUBESHIM_STATS_FORMAT="json", CUBESHIM_PREFETCH="0", **settings)
        done = subprocess.run(["/usr/bin/python3", "-c", PROLOGUE + body, str(self.data)], env=env,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(report.read_text().splitlines()[-1])

    def test_files_that_are_open_at_an_exec(self):
        report = self.report("""
for name in ("small", "parts", "large"):
    opened_and_read(name)
os.execv("/usr/bin/python3", ["python3", "-c", ""])
""")
        self.assertEqual(report["bytes_served"], sum(SIZES.values()))

    def test_vectored_reads(self):
        report = self.report("""
fd = os.open(os.path.join(sys.argv[1], "small"), os.O_RDONLY)
parts = [bytearray(8000), bytearray(4000)]
assert os.readv(fd, parts) == 12_000
assert os.readv(fd, parts) == 8_000
assert os.preadv(fd, parts, 1000) == 12_000
""")
        self.assertEqual(report["bytes_served"], 12_000 + 8_000 + 12_000)

    def test_copies_of_mode_real_count_as_served(self):
        body = "for _ in range(2):\n    opened_and_read('small')"
        report = self.report(body, CUBESHIM_MODE="real")
        self.assertEqual(report["bytes_served"], 2 * SIZES["small"])

    def test_a_mapped_file_counts_once(self):
        for mode in ("virtual", "real"):
            with self.subTest(mode):
                report = self.report("""
import mmap
opened_and_read("small")
fd = os.open(os.path.join(sys.argv[1], "small"), os.O_RDONLY)
mmap.mmap(fd, 0, prot=mmap.PROT_READ)
""", CUBESHIM_MODE=mode)
                self.assertEqual(report["bytes_served"], 2 * SIZES["small"])

    def test_a_killed_process_lacks_at_most_a_step_of_each_file(self):
        for name in ("parts", "large"):
            with self.subTest(name):
                report = self.report(f"""
def body():
    opened_and_read("{name}")
    os.kill(os.getpid(), signal.SIGKILL)
assert in_child(body) == signal.SIGKILL
""")
                self.assertGreater(report["bytes_served"], SIZES[name] - STEP)
                self.assertLessEqual(report["bytes_served"], SIZES[name])

    def test_forked_child_does_not_count_reads_of_its_parent(self):
        report = self.report("""
fd = os.open(os.path.join(sys.argv[1], "large"), os.O_RDONLY)
os.pread(fd, 200_000, 0)
in_child(lambda: (opened_and_read("small"), os.close(fd)))
in_child(lambda: opened_and_read("small"))
""")
        self.assertEqual(report["bytes_served"], 200_000 + 2 * SIZES["small"])

    def test_an_open_of_a_large_file_asks_the_origin_with_o_direct_too(self):
        for flags in ("0", "os.O_DIRECT"):
            with self.subTest(flags):
                report = self.report(
                    f"os.close(os.open(os.path.join(sys.argv[1], 'large'), {flags}))")
                self.assertEqual((report["blocks"]["files"], report["origin"]["opens"]), (1, 1))


if __name__ == "__main__":
    unittest.main()
