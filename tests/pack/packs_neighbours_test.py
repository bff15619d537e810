"""CUBESHIM_PACKS: one read of a pack also fetches the files next to the opened file.
CUBESHIM_COMMAND and CUBESHIM_LIBRARY name the build's files."""
import json
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path

from pack_case import COMMAND, PackCase, make_pack

COUNT = 400
READ = """
def read_all(seed):
    names = list(range(COUNT)); random.Random(seed).shuffle(names)
    for i in names:
        with open(f"{P}/c/f{i}", "rb") as file:
            assert file.read() == open(f"{D}/c/f{i}", "rb").read(), i
"""


class Neighbours(PackCase):
    def write_data(self):
        (self.data / "c").mkdir(parents=True)
        for i in range(COUNT):
            (self.data / f"c/f{i}").write_bytes(random.Random(i).randbytes(i * 200))

    def check(self, code, **settings):
        environment = self.environment_of("neighbours", "128M", **settings)
        text = ("import errno, os, random, sys, threading\n"
                f"P, D, COUNT = {str(self.prefix)!r}, {str(self.data)!r}, {COUNT}\n{READ}\n{code}")
        (self.work / "stats").unlink(missing_ok=True)
        done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True,
                              text=True, timeout=120, cwd=self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads((self.work / "stats").read_text())
        self.assertEqual(
            report["opens"],
            report["hits"]["ram"] + report["misses"] + sum(report["bypassed"].values()), report)
        return report

    def test_one_read_brings_many_files(self):
        report = self.check("read_all(1)")
        self.assertEqual(report["origin"]["reads"], report["misses"])
        self.assertLess(report["misses"], COUNT // 2)
        self.assertEqual(report["prefetch"]["early"], COUNT - report["misses"],
                         "each file is opened once")
        self.assertEqual(report["ram"]["entries"], COUNT)
        self.assertLess(report["origin"]["bytes"], 2 * self.pack.stat().st_size)

    def test_a_directory_opened_as_a_file_brings_them_too(self):
        for i in range(COUNT):
            (self.data / f"c/f{i}").write_bytes(b"%d" % i)
        self.pack.unlink()
        make_pack(self.data, self.pack)
        report = self.check(
            'open(f"{P}/c/f0").close(); os.close(os.open(f"{P}/c", os.O_RDONLY)); read_all(1)')
        self.assertEqual(report["misses"], 1)
        self.assertEqual(report["origin"]["reads"], 2)

    def test_records_of_a_replaced_pack_do_not_block_the_new_one(self):
        self.addCleanup(subprocess.run, [COMMAND, "clear", "--name", f"neighbours-{os.getpid()}"],
                        stdout=subprocess.DEVNULL)
        first = self.check("read_all(1)", CUBESHIM_RAM_KEEP="1")
        (self.work / "stats").unlink()
        for i in range(COUNT):
            (self.data / f"c/f{i}").write_bytes(random.Random(~i).randbytes(i * 200))
        self.pack.rename(self.work / "old.cube")
        make_pack(self.data, self.pack)
        second = self.check("read_all(2)", CUBESHIM_RAM_KEEP="1")
        self.assertLess(first["misses"], COUNT // 2)
        self.assertLess(second["misses"], COUNT // 2)

    def test_nothing_is_fetched_ahead_if_prefetch_is_off(self):
        report = self.check("read_all(1)", CUBESHIM_PREFETCH="0")
        self.assertEqual(
            (report["origin"]["reads"], report["misses"], report["prefetch"]["fetched"]),
            (COUNT, COUNT, 0))

    def test_nothing_is_fetched_ahead_unless_all_of_it_fits(self):
        report = self.check("read_all(1)", CUBESHIM_RAM="8M")
        self.assertEqual(report["prefetch"]["fetched"], 0)
        self.assertEqual(report["misses"], report["ram"]["entries"])

    def test_a_view_of_everything_by_many_processes_and_threads(self):
        report = self.check("""
children = []
for seed in range(4):
    child = os.fork()
    if child: children.append(child); continue
    failed = []
    def run(seed):
        try: read_all(seed)
        except BaseException as error: failed.append(error)
    threads = [threading.Thread(target=run, args=(10 * seed + i,)) for i in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    os._exit(1 if failed else 0)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
""")
        self.assertEqual(report["opens"], 16 * COUNT)
        # If a program needs a file while another program reads the window that contains this file,
        # the first program reads only the file.
        self.assertLess(report["misses"], COUNT * 7 // 8)
        # Each file is in memory only one time, except if the flights of two files collide
        # (single_flight.h).
        self.assertLessEqual(report["ram"]["entries"], COUNT + COUNT // 20)

    def test_files_below_the_prefix_of_another_pack_are_that_packs(self):
        inner, pack = self.work / "inner", self.work / "inner.cube"
        inner.mkdir()
        for i in range(50):
            (inner / f"f{i}").write_bytes(b"the inner one's %d" % i)
        make_pack(inner, pack)
        (self.data / "inner").mkdir()
        for i in range(50):
            (self.data / f"inner/f{i}").write_bytes(b"hidden by it %d" % i)
        self.pack.unlink()
        make_pack(self.data, self.pack)
        packs = f"{self.prefix}={self.pack}:{self.prefix}/inner={pack}"
        report = self.check(
            """
read_all(1)
for i in range(50): assert open(f"{P}/inner/f{i}", "rb").read() == b"the inner one's %d" % i
""", CUBESHIM_PACKS=packs)
        self.assertEqual(report["ram"]["entries"], COUNT + 50, "nothing that nobody can open")

    def test_a_kept_cache_asks_the_pack_nothing(self):
        for consistency in ("immutable", "open"):
            self.check("read_all(1)", CUBESHIM_RAM_KEEP="1", CUBESHIM_CONSISTENCY=consistency)
            report = self.check("read_all(2)", CUBESHIM_RAM_KEEP="1",
                                CUBESHIM_CONSISTENCY=consistency)
            self.assertEqual(
                (report["hits"]["ram"], report["origin"]["reads"], report["origin"]["stats"]),
                (COUNT, 0, 0))
            Path(f"/dev/shm/cubeshim-{os.geteuid()}-neighbours-{os.getpid()}").unlink()

    def test_a_damaged_file_is_an_error_and_its_neighbours_are_right(self):
        (self.data / "c/f7").write_bytes(b"these bytes will be others")
        self.pack.unlink()
        make_pack(self.data, self.pack)
        whole = self.pack.read_bytes()
        at = whole.index(b"these bytes will be others")
        self.pack.write_bytes(whole[:at] + b"T" + whole[at + 1:])
        (self.data / "c/f7").unlink()
        report = self.check(
            """
names = [i for i in range(COUNT) if i != 7]; random.Random(3).shuffle(names)
for i in names: assert open(f"{P}/c/f{i}", "rb").read() == open(f"{D}/c/f{i}", "rb").read(), i
try: open(f"{P}/c/f7", "rb")
except OSError as error: assert error.errno == errno.EIO, error
else: assert False
""", CUBESHIM_LOG="error")
        self.assertLess(report["misses"], COUNT // 2)


if __name__ == "__main__":
    unittest.main()
