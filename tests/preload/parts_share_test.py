"""Threads of one process that open and read a file at the same moment share the parts in which the
file is fetched. A thread does not request a part that another thread is fetching. The file is
cached even if one thread has closed its fd before the other thread publishes. CUBESHIM_LIBRARY and
CUBESHIM_LAGFS name the build's files."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.stopped import (  # noqa: E402
    FUTEX, GETPPID, PREAD, PREADV, SCHED_YIELD, STATX, Stopped)

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
SIZE = 3_000_000
FORCE_SYNC = 0x2000
FUTEX_WAIT = 0  # of the library; waits of libc have FUTEX_PRIVATE_FLAG
# Each thread calls getppid until it is told to begin, and calls sched_yield after its read. All
# calls are made through ctypes, so that no thread holds the interpreter's lock while it is stopped.
JOB = """
import ctypes, os, sys, threading
libc, path = ctypes.CDLL(None, use_errno=True), sys.argv[1].encode()
whole, go = open(sys.argv[2], "rb").read(), [threading.Event(), threading.Event()]
right = []
def read(me):
    wanted = whole[:os.stat(f"{sys.argv[2]}.{me}").st_size]
    room = ctypes.create_string_buffer(len(wanted))
    os.write(1, b"%d %d\\n" % (me, threading.get_native_id()))
    while not go[me].is_set():
        libc.getppid()
    fd = libc.open(path, os.O_RDONLY)
    right.append(libc.read(fd, room, len(wanted)) == len(wanted) and room.raw == wanted)
    libc.close(fd)
    libc.sched_yield()
threads = [threading.Thread(target=read, args=(me,)) for me in range(2)]
for thread in threads:
    thread.start()
for line in sys.stdin:
    go[int(line)].set()
for thread in threads:
    thread.join()
assert right == [True, True], right
assert open(path, "rb").read() == whole
"""


class Case(unittest.TestCase):
    first_reads = SIZE

    def setUp(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-parts-")))
        source = scratch / "source"
        source.mkdir()
        self.file = source / "f"
        self.file.write_bytes(os.urandom(SIZE))
        os.utime(self.file, (1e9, 1e9))
        for thread, size in enumerate((self.first_reads, SIZE)):
            with open(f"{self.file}.{thread}", "wb") as file:
                file.truncate(size)
        self.mount = self.enterContext(SlowMount(Path(LAGFS), source, scratch, 0, direct=True))
        self.report = scratch / "report"
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        env = clean | {
            "CUBESHIM_PREFIXES": str(self.mount.path), "CUBESHIM_NAME": f"parts-{os.getpid()}",
            "CUBESHIM_RAM": "32M", "CUBESHIM_PREFETCH": "0", "LD_PRELOAD": LIBRARY,
            "CUBESHIM_STATS": str(self.report), "CUBESHIM_STATS_FORMAT": "json"
        }
        self.job = subprocess.Popen(
            ["/usr/bin/python3", "-c", JOB, str(self.mount.path / "f"), str(self.file)], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: [self.job.kill(), self.job.communicate()])
        # The threads can write in either order.
        ids = dict(map(int, self.job.stdout.readline().split()) for _ in range(2))
        self.first, self.second = self.stopped(ids[0]), self.stopped(ids[1])

    def stopped(self, thread: int) -> Stopped:
        stopped = Stopped(thread)
        self.addCleanup(stopped.go_on)
        self.assertEqual(stopped.run_to_any(GETPPID), GETPPID)
        return stopped

    def tell(self, thread: int):
        self.job.stdin.write(b"%d\n" % thread)
        self.job.stdin.flush()

    def stop_first_at_the_stat_after_its_reads(self):
        self.tell(0)
        self.assertEqual(self.first.run_to_any(PREADV), PREADV)
        self.assertTrue(self.first.run_to(
            lambda number, words: number == STATX and words[2] & FORCE_SYNC != 0))

    def check_all_came_once(self):
        self.first.go_on()
        self.second.go_on()
        self.job.communicate(timeout=60)
        self.assertEqual(self.job.returncode, 0)
        report = json.loads(self.report.read_text())
        self.assertEqual(report["bypassed"]["busy"], 0)
        self.assertEqual(report["materialized"], 0)
        self.assertEqual(self.mount.bytes_read(), SIZE)


class PartsShare(Case):
    def test_reader_waits_for_a_part_that_another_reader_fetches(self):
        self.tell(0)
        self.assertEqual(self.first.run_to_any(PREADV), PREADV)
        self.tell(1)

        def waits_or_reads(number: int, words: list[int]) -> bool:
            return number in (PREAD, PREADV) or (number == FUTEX and words[1] == FUTEX_WAIT)

        self.assertTrue(self.second.run_to(waits_or_reads))
        self.assertEqual(self.first.run_to_any(SCHED_YIELD), SCHED_YIELD)
        self.assertEqual(self.second.run_to_any(PREAD, PREADV, SCHED_YIELD), SCHED_YIELD)
        self.check_all_came_once()

    def test_open_shares_a_file_that_is_about_to_be_published(self):
        self.stop_first_at_the_stat_after_its_reads()
        self.tell(1)
        self.assertEqual(self.second.run_to_any(PREAD, PREADV, SCHED_YIELD), SCHED_YIELD)
        self.check_all_came_once()


class PartsShareAtAClose(Case):
    first_reads = SIZE // 2

    def test_reader_that_gets_the_last_part_while_a_close_keeps_parts(self):
        self.stop_first_at_the_stat_after_its_reads()
        self.tell(1)
        self.assertEqual(self.second.run_to_any(SCHED_YIELD), SCHED_YIELD)
        self.check_all_came_once()


if __name__ == "__main__":
    unittest.main()
