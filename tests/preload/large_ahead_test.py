"""A program gives advice about its reads of a large file, or copies its fd. Tests which bytes are
fetched ahead and which are not. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import hashlib
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from large_test import DATA, SIZE, Job  # noqa: E402

WAIT = """
def wait_until_asked(wanted):
    deadline = time.monotonic() + 120
    seen = -1
    # Waits until no more bytes arrive, because the kernel may also read some by itself.
    while (asked() < wanted or asked() != seen) and time.monotonic() < deadline:
        seen = asked()
        time.sleep(0.1)
    return asked()
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.posix_fadvise.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int]
libc.readahead.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_size_t]
libc.readahead.restype = ctypes.c_ssize_t
file = os.open(path, os.O_RDONLY)
"""


class Advice(Job):
    # The mount has no page cache, so only requested bytes are read.
    direct = True

    def expect_fetched(self, said, data):
        # The kernel reads none of it for itself.
        self.assertEqual(
            said,
            {"digest": hashlib.blake2b(data).hexdigest(), "fetched": said["fetched"], "read": 0})
        self.assertTrue(len(data) <= said["fetched"] < len(data) + 4096, said["fetched"])
        self.assertEqual(self.blocks()["misses"], 0)

    def test_wanted_range_comes_before_it_is_read(self):
        for call in (
                "os.posix_fadvise(file, 5 << 20, 3 << 20, os.POSIX_FADV_WILLNEED)",
                "os.posix_fadvise(file, (5 << 20) + 17, (3 << 20) - 99, os.POSIX_FADV_WILLNEED)",
                "assert libc.readahead(file, 5 << 20, 3 << 20) == 0"):
            with self.subTest(call):
                self.mount.reset()
                said = self.run_job(WAIT + call + """
said["fetched"] = wait_until_asked(3 << 20)
said["digest"] = digest(os.pread(file, 3 << 20, 5 << 20))
said["read"] = asked() - said["fetched"]
""")
                self.expect_fetched(said, DATA[5 << 20:8 << 20])

    def test_all_of_the_file_is_wanted(self):
        said = self.run_job(WAIT + f"""
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
said["fetched"] = wait_until_asked({SIZE})
said["digest"] = digest(read_all())
said["read"] = asked() - said["fetched"]
""")
        self.expect_fetched(said, DATA)

    def test_the_end_of_a_wanted_range_does_not_take_the_place_of_its_begin(self):
        os.truncate(self.source / "f", 200 << 20)
        said = self.run_job(
            WAIT + """
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
said["fetched"] = wait_until_asked(16 << 20)
said["digest"] = digest(os.pread(file, 4 << 20, 0))
said["read"] = asked() - said["fetched"]
""", CUBESHIM_RAM="32M")
        self.assertEqual((said["digest"], said["read"]),
                         (hashlib.blake2b(DATA[:4 << 20]).hexdigest(), 0))
        self.assertLessEqual(said["fetched"], 32 << 20)
        self.assertEqual(self.blocks()["wasted"], 0)

    def test_present_range_is_not_requested_again(self):
        said = self.run_job("""
wanted = os.POSIX_FADV_WILLNEED
""" + WAIT + """
os.pread(file, 4 << 20, 0)
read_all()
said["before"] = wait_until_asked(%d)
said["told"] = [libc.posix_fadvise(file, at, 1 << 20, wanted) for at in range(0, %d, 1 << 20)]
said["told"] += [libc.posix_fadvise(file, 0, 0, wanted), libc.readahead(file, 17, 5 << 20),
                 libc.readahead(file, 23 << 20, 9 << 20)]
said["after"] = wait_until_asked(0)
""" % (SIZE, SIZE))
        self.assertEqual(set(said["told"]), {0})
        self.assertEqual((said["before"], said["after"]), (SIZE, SIZE))

    def test_errors_are_the_kernels_and_bring_nothing(self):
        said = self.run_job(WAIT + """
said["errors"] = [libc.posix_fadvise(file, 0, 1 << 20, 99),
                  libc.posix_fadvise(file, 0, -1, os.POSIX_FADV_WILLNEED),
                  libc.readahead(os.open("/", os.O_RDONLY), 0, 1), libc.readahead(-1, 0, 1)]
said["kept"] = [libc.posix_fadvise(file, 0, 0, advice)
                for advice in (os.POSIX_FADV_DONTNEED, os.POSIX_FADV_NOREUSE)]
said["asked"] = asked()
""")
        self.assertEqual(said, {"errors": [22, 22, -1, -1], "kept": [0, 0], "asked": 0})

    def test_readahead_of_no_bytes_fetches_none(self):
        said = self.run_job(WAIT + """
said["told"] = [libc.readahead(file, 5 << 20, 0), libc.readahead(file, 0, 4096)]
said["asked"] = wait_until_asked(4096)
""")
        self.assertEqual(said["told"], [0, 0])
        # A length of 0 means all of the rest for the kernel, which begins to read it.
        self.assertLess(said["asked"], 1 << 20)

    def test_reads_with_random_advice_fetch_only_their_pages(self):
        # Reads eight consecutive pages of each of six blocks. Without the advice, these blocks and
        # the following ones would be fetched as a whole.
        reads = """
for block in range(3, 9):
    for page in range(8):
        os.pread(file, 4096, (block << 20) + page * 4096)
said["asked"] = asked()
os.close(file)
"""
        said = self.run_job(WAIT + "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)" + reads)
        self.assertEqual(said["asked"], 6 * 8 * 4096)
        self.assertEqual(self.blocks()["ahead"], 0)
        self.mount.reset()
        self.run_job(WAIT + "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)\n"
                     "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)" +
                     reads.replace("os.close(file)", "wait_until_asked(1 << 20)"))
        self.assertGreaterEqual(self.blocks()["ahead"], 1 << 20)

    def test_one_read_of_an_advised_sequence_fetches_a_wide_window(self):
        said = self.run_job(WAIT + """
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
os.read(file, 4096)
said["asked"] = wait_until_asked((16 << 20) + 4096)
""")
        self.assertEqual(said["asked"], (16 << 20) + 4096)
        self.assertEqual(self.blocks()["ahead"], 16 << 20)


class Copies(Job):
    direct = True

    def test_reads_by_copies_of_an_fd_are_read_ahead(self):
        # As in numpy.fromfile, the fd that was read is closed before the next blocks are fetched.
        # On a busy machine, the reader could run before the threads and fetch the blocks itself, so
        # it waits for the threads.
        said = self.run_job(WAIT + f"""
parts, deadline = [], time.monotonic() + 120
while True:
    at = sum(map(len, parts))
    while 2 << 20 <= at < {SIZE} and asked() <= at and time.monotonic() < deadline:
        os.sched_yield()
    copy = os.dup(file)
    part = os.read(copy, 1 << 18)
    os.close(copy)
    if not part:
        break
    parts.append(part)
said["digest"] = digest(b"".join(parts))
""")
        self.assertEqual(said["digest"], hashlib.blake2b(DATA).hexdigest())
        self.assertGreater(self.blocks()["ahead"], 0.8 * SIZE)

    def test_nothing_is_read_after_the_last_close(self):
        said = self.run_job(
            """
before = asked()
for _ in range(30):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    os.close(file)
time.sleep(0.3)
said["asked"] = asked() - before
""", CUBESHIM_BLOCK="2M")
        # After a close, only the steps of 256 KiB that were in flight may be read.
        self.assertLess(said["asked"], SIZE)


class Pieces(Job):
    def test_a_mapping_of_many_pieces_opens_the_region_once_at_most(self):
        said = self.run_job(
            """
file = os.open(path, os.O_RDONLY)
for page in range(0, 2000, 2):
    os.pread(file, 4096, page * 4096)
def pieces():
    with open("/proc/self/maps") as maps:
        return sum("/cubeshim-" in line for line in maps)
# This one leaves an fd of the region, by which all pieces of the next one come though the region
# has no name by then.
first = mmap.mmap(file, 64 << 10, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
with open("/proc/self/maps") as maps:
    region = next(line.split()[5] for line in maps if "/cubeshim-" in line)
before = pieces()
os.rename(region, region + "-away")
mapping = mmap.mmap(file, 8 << 20, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
os.rename(region + "-away", region)
said["pieces"] = pieces() - before
said["digest"] = digest(mapping[:])
""", CUBESHIM_BLOCK="4K", CUBESHIM_PREFETCH="0")
        self.assertGreater(said["pieces"], 900)
        self.assertEqual(said["digest"], hashlib.blake2b(DATA[:8 << 20]).hexdigest())


if __name__ == "__main__":
    unittest.main()
