"""Data larger than the memory. Fetched files stay until they are read, and files that are read in
order are in memory in time."""
import pathlib
import shutil
import tempfile
import unittest

from support import Job, write_files

MB = 1 << 20
PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "prefetch" / "python"
SIZES = (0, 100, 50_000, 90_000, 150_000, 300_000)
COUNT = 1300  # 128 MB
BATCH, DEPTH = 16, 4


class Larger(Job):
    """The files have four times the size of the memory. The ring has its minimum size, a quarter of
    the memory."""

    count = COUNT

    @classmethod
    def setUpClass(cls):
        # All tests read this data set, and no test changes it.
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="sidecar-ring-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.shared.chmod(0o755)
        write_files(cls.shared / "source", COUNT, sizes=SIZES)

    def make_source(self):
        return self.shared / "source"

    def setUp(self):
        super().setUp()
        self.settings |= {
            "CUBESHIM_RAM": "32M", "CUBESHIM_RING": "8M", "CUBESHIM_PREFETCH_DEPTH": str(DEPTH)
        }


class Ring(Larger):
    # Reads in steps for which the ring has room, so that the reader is never ahead of the sidecar.
    # The files that were fetched last need not be the next files of the list.
    IN_ORDER = f"""
for first in range(0, COUNT, {BATCH}):
    need(min(first + {BATCH} + {DEPTH}, COUNT))
    read_all([f'f{{n}}' for n in range(first, min(first + {BATCH}, COUNT))])
"""

    def check_in_order(self, **settings):
        self.settings |= settings
        # A fetch can take so long that many later fetches have ended before it. The reader then
        # waits for this fetch, or reads the file itself.
        few = self.count // 100
        done = self.check_gated(self.script(self.IN_ORDER), misses=1 + few)
        found = done.report["prefetch"]
        # If not all files of a list stay, the list starts over at its end, and some files of the
        # next round are already fetched.
        self.assertLessEqual(found["fetched"] - found["unread"], self.count, str(done))
        self.assertGreaterEqual(found["fetched"] - found["unread"], self.count - few, str(done))
        self.assertEqual(found["early"] + found["late"], self.count, str(done))
        self.assertLessEqual(found["late"], few, str(done))
        self.assertEqual((found["wasted"], found["duplicate"]), (0, 0), str(done))
        self.assertLessEqual(done.report["ram"]["used"], done.report["ram"]["capacity"], str(done))

    def test_read_in_order(self):
        self.check_in_order()

    def test_memory_too_small_for_a_ring(self):
        # Cached files stay; the rest is read from the origin.
        self.settings["CUBESHIM_RAM"] = "8M"
        done = self.check(self.script("read_all()\n"), hits=None)
        self.assertEqual(done.report["prefetch"]["wasted"], 0, str(done))
        self.assertEqual(done.report["opens"], self.count + 1, str(done))

    def test_a_ring_of_half_the_memory(self):
        self.check_in_order(CUBESHIM_RING="50%")

    def test_by_threads_alone(self):
        self.check_in_order(CUBESHIM_IO_ENGINE="threads")

    def test_reader_that_does_not_wait(self):
        # The reader begins after the sidecar, because on a busy machine it could otherwise finish
        # before.
        done = self.check_gated(self.script(f"need({BATCH})\nread_all()\n"), misses=None)
        found = done.report["prefetch"]
        # The reader can overtake the sidecar in the middle of a fetch.
        self.assertLessEqual(found["wasted"] + found["duplicate"], DEPTH + self.count // 100,
                             str(done))
        self.assertEqual(done.report["opens"], self.count + 1, str(done))

    def test_a_reader_in_another_order(self):
        # The list does not help. Files that were fetched and not read yet are not dropped, and no
        # wrong byte is read.
        self.check_gated(
            self.script(
                f"need({BATCH})\nfor n in reversed(range(COUNT)): print(n, read(f'f{{n}}'))\n"),
            misses=None)

    def test_a_reader_that_leaves_out_most(self):
        # If the reader does not read the planned files, the ring becomes full. The sidecar waits,
        # and reads on demand continue.
        done = self.check_gated(
            self.script("need(64)\nread_all([f'f{n}' for n in range(COUNT - 100, COUNT)])\n"),
            misses=101, hits=None)
        self.assertLess(done.report["prefetch"]["fetched"], self.count, str(done))

    def test_files_larger_than_the_ring(self):
        (self.source / "big").write_bytes(bytes(range(256)) * (12 * MB // 256))
        self.addCleanup((self.source / "big").unlink)
        names = [f"f{n}" for n in range(60)]
        self.write_list([f"{self.data}/{name}" for name in (*names[:30], "big", *names[30:])])
        self.check_gated(
            self.script("need(60)\nread_all([f'f{n}' for n in range(60)])\nprint(read('big'))\n"),
            misses=2)

    def test_a_second_epoch(self):
        # Resident files are not fetched again. The other files are fetched, because the list starts
        # over. The reader waits first: on a busy machine, it could otherwise pass all files before
        # they are fetched.
        done = self.check_gated(self.script(self.IN_ORDER + f"need(COUNT + {BATCH})\nread_all()\n"),
                                misses=None)
        found = done.report["prefetch"]
        self.assertGreater(found["fetched"], self.count, str(done))
        self.assertLess(found["fetched"], 1.95 * self.count, str(done))
        # A reader that is faster than the origin passes some files before they are fetched.
        self.assertLessEqual(found["wasted"], self.count // 50, str(done))


class LateRing(Larger):
    """A job that did not announce its files has filled the memory before."""

    LATE = COUNT // 2  # no file from this one on is in memory

    def setUp(self):
        super().setUp()
        del self.settings["CUBESHIM_PREFETCH_LIST"]
        self.settings |= {"CUBESHIM_RAM_KEEP": "1"}
        self.watch.counts_late = True
        self.env |= {"PYTHONPATH": str(PACKAGE)}
        done = self.check(self.script(f"read_all([f'f{{n}}' for n in range({self.LATE})])\n"),
                          CUBESHIM_PREFETCH="0", hits=None)
        self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))
        self.assertGreater(done.report["bypassed"]["full"], COUNT // 4, str(done))

    def check(self, command, **options):
        changed = {key: options.pop(key) for key in list(options) if key.startswith("CUBESHIM_")}
        before, self.settings = self.settings, self.settings | changed
        try:
            return super().check(command, **options)
        finally:
            self.settings = before

    ANNOUNCED = """
import cubeshim
def announced():
    return enumerate(cubeshim.announce([f'{D}/f{n}' for n in range(LATE, COUNT)]))
"""

    def announced(self, text):
        return self.script(f"LATE = {self.LATE}\n{self.ANNOUNCED}{text}", name="announced.py")

    def test_an_announced_epoch_is_there_before_it_is_read(self):
        count = COUNT - self.LATE
        few = count // 100
        done = self.check_gated(
            self.announced(f"""
for i, path in announced():
    if i % {BATCH} == 0: need(min(i + {BATCH} + {DEPTH} + {few}, {count}))
    print(path[len(D):], read(path[len(D) + 1:]))
"""), misses=1 + few)
        found = done.report["prefetch"]
        self.assertEqual(found["early"] + found["late"], count, str(done))
        self.assertLessEqual(found["late"], few, str(done))
        self.assertEqual((found["wasted"], found["duplicate"]), (0, 0), str(done))
        # The rest of the memory is kept.
        self.assertGreaterEqual(done.report["ram"]["used"], 16 * MB, str(done))

    def test_memory_that_a_child_has_mapped_is_never_reclaimed(self):
        # In each segment of the memory, the child has mapped a file that its parent has unmapped.
        self.check(
            self.announced("""
import mmap
maps = {}
for n in range(LATE):
    with open(f'{D}/f{n}', 'rb') as f:
        if os.fstat(f.fileno()).st_size != 0:
            maps[n] = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
asks, answers = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(asks[1])
    os.read(asks[0], 1)
    for n, mapped in maps.items(): os.write(answers[1], b'%d %d\\n' % (n, zlib.crc32(mapped)))
    os._exit(0)
for mapped in maps.values(): mapped.close()
for i, path in announced(): print(path[len(D):], read(path[len(D) + 1:]))
os.close(asks[1])
os.close(answers[1])
while text := os.read(answers[0], 1 << 16): print(text.decode(), end='')
print(os.waitpid(child, 0)[1])
"""), hits=None)


if __name__ == "__main__":
    unittest.main()
