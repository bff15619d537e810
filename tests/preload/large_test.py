"""Files that are served in blocks: the bytes that programs read, the requests to the origin, and
the behaviour of the program's own open file. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's
files."""
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.large_job import environment  # noqa: E402
from tests.preload.stopped import MMAP, MUNMAP, OPENAT, PREAD, PREADV, Stopped  # noqa: E402

LAGFS = os.environ["CUBESHIM_LAGFS"]
SIZE = 24_000_001
DATA = random.Random(1).randbytes(SIZE)
DEADLINE_S = 300
# A job counts the bytes requested from the origin before and after each step.
PROLOGUE = """
import fcntl, hashlib, json, mmap, os, random, sys, time
path, counters = sys.argv[1], sys.argv[2]
def asked():
    return json.loads(open(counters).read())["read"]["bytes"]
def digest(data):
    return hashlib.blake2b(data).hexdigest()
def read_all():
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(100_000), b""))
def read_behind(path=path, lead=1 << 20, patience=120):
    # Like read_all, but waits for the read-ahead, which might otherwise fall behind on a busy
    # machine.
    parts, at, size, before = [], 0, os.path.getsize(path), asked()
    with open(path, "rb", buffering=0) as file:
        while True:
            deadline = time.monotonic() + patience
            while (2 << 20 <= at and asked() - before < min(at + lead, size)
                   and time.monotonic() < deadline):
                os.sched_yield()
            parts.append(file.read(100_000))
            at += len(parts[-1])
            if not parts[-1]:
                return b"".join(parts)
said = {}
"""
EPILOGUE = "\nprint(json.dumps(said))\n"


class Job(unittest.TestCase):
    direct = False
    # Another test that runs at the same time can delay a job, but not each time.
    TRIES = 4

    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-large-")))
        self.source = self.scratch / "source"
        self.source.mkdir()
        (self.source / "f").write_bytes(DATA)
        os.utime(self.source / "f", (1e9, 1e9))
        self.mount = self.enterContext(
            SlowMount(Path(LAGFS), self.source, self.scratch, 200, self.direct))
        self.path = self.mount.path / "f"
        self.report = self.scratch / "report.json"
        self.env = environment(str(self.mount.path), CUBESHIM_MAX_FILE="16M", CUBESHIM_ANNOUNCE="0",
                               CUBESHIM_STATS=str(self.report), CUBESHIM_STATS_FORMAT="json")

    def run_job(self, body: str, **settings: str) -> dict:
        words = [
            "/usr/bin/python3", "-c", PROLOGUE + body + EPILOGUE,
            str(self.path),
            str(self.mount.path / ".lagfs" / "counters.json")
        ]
        done = subprocess.run(words, env={**self.env, **settings}, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def run_until(self, is_right, job: str, **settings: str) -> dict:
        """Returns the first of several runs whose result is right, or the last one."""
        for _ in range(self.TRIES):
            said = self.run_job(job, **settings)
            if is_right(said):
                break
        return said

    def blocks(self) -> dict:
        return json.loads(self.report.read_text().splitlines()[-1])["blocks"]


class LargeFiles(Job):
    def test_second_read_asks_the_origin_for_nothing(self):
        said = self.run_job("""
before = asked(); first = digest(read_behind()); said["first"] = asked() - before
before = asked(); second = digest(read_all()); said["second"] = asked() - before
said["digests"] = [first, second]
""")
        self.assertEqual(said["digests"], [hashlib.blake2b(DATA).hexdigest()] * 2)
        self.assertLessEqual(said["first"], 1.05 * SIZE)
        self.assertEqual(said["second"], 0)
        blocks = self.blocks()
        self.assertEqual(blocks["files"], 2)
        self.assertGreater(blocks["ahead"], SIZE / 2)
        self.assertEqual((blocks["read"], blocks["kernel"]), (2 * SIZE, 0))
        # Each byte that was fetched ahead was read once.
        self.assertEqual((blocks["used"], blocks["wasted"], blocks["unread"]),
                         (blocks["ahead"], 0, 0))
        self.assertEqual(blocks["origin"], SIZE)
        self.assertEqual(blocks["memory"], -(-SIZE // 4096) * 4096)

    def test_reads_with_o_direct_share_the_blocks(self):
        said = self.run_job("""
def direct():
    file, buffer = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 3 << 20)
    parts = [buffer[:got] for got in iter(lambda: os.readv(file, [buffer]), 0)]
    os.close(file)
    return digest(b"".join(parts))
before = asked(); digests = [direct()]; said["first"] = asked() - before
before = asked(); digests += [direct(), digest(read_all())]; said["again"] = asked() - before
said["digests"] = digests
""")
        self.assertEqual(said["digests"], [hashlib.blake2b(DATA).hexdigest()] * 3)
        self.assertLessEqual(said["first"], 1.05 * SIZE)
        self.assertEqual(said["again"], 0)

    def test_other_process_has_the_same_pages(self):
        said = self.run_job("""
read_all()
before = asked()
if os.fork() == 0:
    os._exit(0 if digest(read_all()) == sys.argv[3] else 1)
said["status"] = os.wait()[1]
said["asked"] = asked() - before
""".replace("sys.argv[3]", repr(hashlib.blake2b(DATA).hexdigest())))
        self.assertEqual(said, {"status": 0, "asked": 0})

    def test_random_reads_fetch_only_their_pages(self):
        said = self.run_job("""
places = random.Random(2)
file = os.open(path, os.O_RDONLY)
before = asked()
wanted = [(i << 21) + places.randrange(1 << 20) for i in range(11)]
said["bytes"] = [os.pread(file, 3000, at).hex() for at in wanted]
said["asked"] = asked() - before
said["wanted"] = wanted
""")
        self.assertEqual(said["bytes"], [DATA[at:at + 3000].hex() for at in said["wanted"]])
        # Two pages for each read, and the kernel's read-ahead if it keeps pages.
        self.assertLessEqual(said["asked"], 11 * (8192 if self.direct else 256 << 10))

    def test_reads_take_no_fd_of_the_program(self):
        said = self.run_job(
            """
import resource
file = os.open(path, os.O_RDONLY)
# The first read checks the machine's free memory (/proc/meminfo), which needs an fd. The result
# also covers the next reads.
os.pread(file, 4096, 0)
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
places = [block << 20 for block in range(1, 20, 3)]
resource.setrlimit(resource.RLIMIT_NOFILE, (file + 1, limit[1]))
said["bytes"] = [digest(os.pread(file, 1 << 18, at)) for at in places]
resource.setrlimit(resource.RLIMIT_NOFILE, limit)
before = asked()
said["again"] = [digest(os.pread(file, 1 << 18, at)) for at in places]
said["asked"] = asked() - before
""", CUBESHIM_PREFETCH="0")
        self.assertEqual(said["bytes"], [
            hashlib.blake2b(DATA[block << 20:(block << 20) + (1 << 18)]).hexdigest()
            for block in range(1, 20, 3)
        ])
        self.assertEqual((said["again"], said["asked"], self.blocks()["kernel"]),
                         (said["bytes"], 0, 0))

    def test_long_reads_ask_the_mount_for_their_bytes_and_no_more(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
before = asked()
places = [block << 20 for block in range(19, 1, -3)]
said["bytes"] = [digest(os.pread(file, 1 << 20, at)) for at in places]
said["asked"] = asked() - before
said["places"] = places
""")
        self.assertEqual(
            said["bytes"],
            [hashlib.blake2b(DATA[at:at + (1 << 20)]).hexdigest() for at in said["places"]])
        self.assertEqual(said["asked"], len(said["places"]) << 20)

    def test_read_across_the_end_leaves_the_offset_there(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
os.lseek(file, -100_000, os.SEEK_END)
said["first"] = len(os.read(file, 100_000))
os.lseek(file, -100, os.SEEK_END)
said["last"] = len(os.read(file, 4096))
said["offset"] = os.lseek(file, 0, os.SEEK_CUR)
""")
        self.assertEqual(said, {"first": 100_000, "last": 100, "offset": SIZE})

    def test_processes_that_share_an_open_file_share_its_offset(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
def take(to):
    with open(to, "wb") as out:
        while True:
            at = 0
            data = os.read(file, 70_001)
            if not data:
                break
            out.write(len(data).to_bytes(4, "big") + data)
out = os.path.dirname(sys.argv[2]) or "."
import tempfile
directory = tempfile.mkdtemp()
children = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        take(f"{directory}/{number}")
        os._exit(0)
    children.append(pid)
said["status"] = [os.waitpid(pid, 0)[1] for pid in children]
said["directory"] = directory
""")
        self.assertEqual(said["status"], [0, 0, 0])
        pieces = []
        for name in sorted(os.listdir(said["directory"])):
            raw, at = Path(said["directory"], name).read_bytes(), 0
            while at < len(raw):
                size = int.from_bytes(raw[at:at + 4], "big")
                pieces.append(raw[at + 4:at + 4 + size])
                at += 4 + size
        # Together, the pieces are the whole file, and each begins where the one before it ends.
        self.assertEqual(sum(map(len, pieces)), SIZE)
        self.assertEqual(sorted(DATA.index(piece) for piece in pieces), [*range(0, SIZE, 70_001)])
        subprocess.run(["rm", "-r", said["directory"]], check=True)

    def test_rewritten_file_is_fetched_again(self):
        other = bytes(byte ^ 255 for byte in DATA[:18_000_000])
        (self.scratch / "other").write_bytes(other)
        said = self.run_job("""
said["before"] = digest(read_all())
held = open(path, "rb", buffering=0)
held.read(100)
with open(path, "r+b") as file:
    file.write(open(sys.argv[3], "rb").read())
    file.truncate()
said["held"] = digest(os.pread(held.fileno(), 1000, 5_000_000))
said["after"] = digest(read_all())
said["again"] = digest(read_all())
""".replace("sys.argv[3]", repr(str(self.scratch / "other"))))
        self.assertEqual(said["before"], hashlib.blake2b(DATA).hexdigest())
        self.assertEqual(said["held"], hashlib.blake2b(other[5_000_000:5_001_000]).hexdigest())
        self.assertEqual(said["after"], hashlib.blake2b(other).hexdigest())
        self.assertEqual(said["again"], said["after"])

    def test_lock_ends_with_the_programs_close(self):
        said = self.run_job("""
said["locked"] = 0
for _ in range(20):
    file = os.open(path, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX)
    for _ in range(30):
        os.read(file, 100_000)
    os.close(file)
    other = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        said["locked"] += 1
    except OSError:
        # A block that is being read ahead prolongs the lock, as a read of another thread would.
        fcntl.flock(other, fcntl.LOCK_EX)
    os.close(other)
""")
        self.assertGreater(said["locked"], 0)

    def test_stream_reads_and_seeks(self):
        said = self.run_job("""
with open(path, "rb") as file:
    file.seek(-1000, 2)
    said["end"] = digest(file.read())
    file.seek(7_000_000)
    said["middle"] = digest(file.read(3_000_000))
    said["at"] = file.tell()
    said["size"] = os.fstat(file.fileno()).st_size
""")
        self.assertEqual(
            said, {
                "end": hashlib.blake2b(DATA[-1000:]).hexdigest(), "middle": hashlib.blake2b(
                    DATA[7_000_000:10_000_000]).hexdigest(), "at": 10_000_000, "size": SIZE
            })

    def test_file_without_room_is_read_by_the_kernel(self):
        said = self.run_job(
            'said["digest"] = digest(read_all()); said["again"] = digest(read_all())',
            CUBESHIM_RAM="8M")
        self.assertEqual(set(said.values()), {hashlib.blake2b(DATA).hexdigest()})
        blocks = self.blocks()
        self.assertEqual(blocks["read"] + blocks["kernel"], 2 * SIZE)
        self.assertGreater(blocks["kernel"], SIZE)

    def test_report_counts_bytes_fetched_in_vain(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
for _ in range(6):
    os.read(file, 100_000)
# The last block of the read-ahead window has arrived when no more requests reach the origin.
said["at"] = os.lseek(file, 0, 1)
while True:
    before = asked()
    os.pread(file, 1, 0)
    os.sched_yield()
    if asked() >= 1 << 20 and asked() == before: break
""")
        blocks = self.blocks()
        self.assertEqual(blocks["wasted"], 0)
        self.assertEqual(blocks["used"] + blocks["unread"], blocks["ahead"])
        self.assertGreater(blocks["unread"], 0)

    def test_text_of_the_report_has_a_line_for_large_files(self):
        self.run_job("read_all()", CUBESHIM_STATS_FORMAT="text", CUBESHIM_STATS=str(self.report))
        line = next(line for line in self.report.read_text().splitlines()
                    if line.startswith("cubeshim: large files: "))
        self.assertRegex(
            line,
            r"large files: 22\.9 MiB in 241 reads, \d+\.\d % of them without a wait; cubeshim "
            r"fetched 22\.9 MiB from the mount$"
        )

    def test_blocks_of_0_leave_the_file_to_the_kernel(self):
        said = self.run_job('said["digest"] = digest(read_all())', CUBESHIM_BLOCK="0")
        self.assertEqual(said["digest"], hashlib.blake2b(DATA).hexdigest())
        self.assertEqual(self.blocks()["files"], 0)


class LargerThanMemory(Job):
    """Reads 24 MB through a region with room for about eleven chunks of 2 MiB, five of them for
    passing chunks."""
    direct = True
    region = {"CUBESHIM_RAM": "24M"}

    def test_readers_share_one_fetch_and_kept_blocks_are_not_read_again(self):
        said = self.run_job(
            """
# Each of four processes reads a megabyte after the previous one.
readers = 4
rings = [os.pipe() for _ in range(readers)]
def read_in_turn(number):
    out = hashlib.blake2b()
    with open(path, "rb", buffering=0) as file:
        while True:
            os.read(rings[number][0], 1)
            part = file.read(1_000_000)
            while part and len(part) < 1_000_000 and (more := file.read(1_000_000 - len(part))):
                part += more
            out.update(part)
            os.write(rings[(number + 1) % readers][1], b"g")
            if not part:
                return out.hexdigest()
def epoch():
    results = [os.pipe() for _ in range(readers)]
    children = []
    for number in range(readers):
        pid = os.fork()
        if pid == 0:
            os.write(results[number][1], read_in_turn(number).encode())
            os._exit(0)
        children.append(pid)
    os.write(rings[0][1], b"g")
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    os.read(rings[0][0], 1)
    return [os.read(result[0], 1000).decode() for result in results] + statuses
before = asked(); said["digests"] = epoch(); said["first"] = asked() - before
before = asked(); said["again"] = epoch(); said["second"] = asked() - before
""", **self.region)
        right = [hashlib.blake2b(DATA).hexdigest()] * 4 + [0] * 4
        self.assertEqual([said["digests"], said["again"]], [right] * 2)
        # If each process fetched the file, the sum would be four times SIZE. In the second epoch,
        # the blocks that were kept are hits.
        self.assertLess(said["first"], 2 * SIZE)
        self.assertLess(said["second"], 0.95 * SIZE)

    def test_single_reader_is_read_ahead_beyond_the_memory(self):
        for name in "second", "third":
            (self.source / name).write_bytes(DATA)
            os.utime(self.source / name, (1e9, 1e9))
        said = self.run_job(
            """
folder = os.path.dirname(path)
said["digests"] = [
    digest(read_behind(f"{folder}/{name}", lead=256 << 10, patience=3))
    for name in ("f", "second", "third")
]
""", **self.region)
        self.assertEqual(said["digests"], [hashlib.blake2b(DATA).hexdigest()] * 3)
        # The read-ahead continues when the memory is full.
        self.assertGreater(self.blocks()["ahead"], 2 * SIZE)

    def test_reader_of_single_pages_leaves_what_passes_alone(self):
        said = self.run_job(
            """
read_all()
places = random.Random(3)
file = os.open(path, os.O_RDONLY)
said["right"] = True
with open(path, "rb", buffering=0) as reader:
    reader.seek(12_000_000)
    wanted, deadline, new = digest(reader.read(1_000_000)), time.monotonic() + 120, 1
    while new and time.monotonic() < deadline:
        before = asked()
        reader.seek(12_000_000)
        reader.read(1_000_000)
        new = asked() - before
    for _ in range(500):
        at = places.randrange(0, os.fstat(file).st_size - 100)
        if len(os.pread(file, 100, at)) != 100:
            said["right"] = False
    before = asked()
    reader.seek(12_000_000)
    said["same"] = digest(reader.read(1_000_000)) == wanted
    said["asked"] = asked() - before
""", **self.region)
        self.assertEqual(said, {"right": True, "same": True, "asked": 0})

    def test_bytes_are_right_while_processes_press_each_other(self):
        said = self.run_job(
            """
def press(seed):
    places = random.Random(seed)
    expected = open(os.environ["RIGHT"], "rb").read()
    file = os.open(path, os.O_RDONLY)
    for _ in range(150):
        at = places.randrange(len(expected))
        for _ in range(places.choice([1, 1, 4])):
            n = places.choice([100, 5000, 300_000, 1_000_000])
            if os.pread(file, n, at) != expected[at:at + n]:
                return 1
            at += n
    return 0
children = []
for seed in range(6):
    pid = os.fork()
    if pid == 0:
        os._exit(press(seed))
    children.append(pid)
os.kill(children[0], 9)
said["statuses"] = [os.waitpid(pid, 0)[1] for pid in children]
""", RIGHT=str(self.source / "f"), **self.region)
        self.assertEqual(said["statuses"], [9, 0, 0, 0, 0, 0])


class FileReadInPart(Job):
    # A file of at most CUBESHIM_MAX_FILE.
    def test_next_open_reuses_the_pages_already_read(self):
        said = self.run_job("""
def read_at(*places):
    before, parts = asked(), []
    for at in places:
        with open(path, "rb", buffering=0) as file:
            parts.append(os.pread(file.fileno(), 1 << 20, at))
    return digest(b"".join(parts)), asked() - before
said["first"], said["again"] = read_at(3 << 20), read_at(3 << 20)
said["other"], said["both"] = read_at(9 << 20), read_at(3 << 20, 9 << 20)
""", CUBESHIM_MAX_FILE="32M")
        def right(*places):
            return hashlib.blake2b(b"".join(DATA[at:at + (1 << 20)] for at in places)).hexdigest()
        self.assertEqual([said[name][0] for name in ("first", "again", "other", "both")],
                         [right(3 << 20), right(3 << 20), right(9 << 20), right(3 << 20, 9 << 20)])
        self.assertEqual((said["again"][1], said["both"][1]), (0, 0))
        # The kernel reads ahead.
        self.assertLessEqual(said["other"][1], 2 << 20)

    def test_close_fetches_at_most_the_last_mebibyte(self):
        said = self.run_job("""
def read_to(end):
    with open(path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), end, 0)
        before = asked()
    return digest(data), asked() - before
said["parts"] = [read_to(end << 20) for end in (10, 14, 20, 22)]
before = asked()
said["all"] = digest(read_all()), asked() - before
""", CUBESHIM_MAX_FILE="32M")
        ends = [10 << 20, 14 << 20, 20 << 20, 22 << 20]
        self.assertEqual([digest for digest, _ in said["parts"]],
                         [hashlib.blake2b(DATA[:end]).hexdigest() for end in ends])
        self.assertEqual([asked for _, asked in said["parts"][:3]], [0, 0, 0])
        self.assertLessEqual(said["parts"][3][1], 1 << 20)
        self.assertEqual(said["all"][0], hashlib.blake2b(DATA).hexdigest())


class LargeFilesWithoutPages(LargeFiles):
    direct = True


class Mappings(Job):
    def test_second_mapping_asks_the_origin_for_nothing(self):
        said = self.run_job("""
def map_all():
    with open(path, "rb") as file:
        # A lock that has ended must not prevent the copying of pages into memory.
        fcntl.flock(file, fcntl.LOCK_SH)
        fcntl.flock(file, fcntl.LOCK_UN)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) as mapping:
            return digest(mapping[:])
said["digests"] = [map_all()]
deadline = time.monotonic() + 120
said["asked"] = 1
# The pages are copied while the program runs.
while said["asked"] and time.monotonic() < deadline:
    before = asked()
    said["digests"].append(map_all())
    said["asked"] = asked() - before
""")
        self.assertEqual(set(said["digests"]), {hashlib.blake2b(DATA).hexdigest()})
        self.assertEqual(said["asked"], 0)
        # Each page is counted once, even if it was mapped several times.
        blocks, pages = self.blocks(), (SIZE + 4095) // 4096 * 4096
        self.assertEqual(blocks["mapped"], pages)
        self.assertEqual(blocks["kept"], pages - blocks["origin"])
        # This is a lower bound, because the kernel can drop a page before the check that would
        # count it.
        self.assertLessEqual(blocks["faulted"], blocks["kept"])
        self.assertGreater(blocks["faulted"], blocks["kept"] // 2)

    def test_a_mapping_whose_pages_were_dropped_unseen_is_not_counted(self):
        self.run_job("""
mapping = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
said["byte"] = mapping[5_000_000]
# FUSE drops the pages of the file.
os.open(path, os.O_RDONLY)
mapping.close()
""")
        self.assertEqual((self.blocks()["mappings"], self.blocks()["watched"]), (1, 0))

    def test_a_file_that_is_mapped_again_and_again_is_brought_by_reads(self):
        # At each open, FUSE drops the pages that the kernel has read for the previous mapping.
        said = self.run_job("""
data, rng = random.Random(1).randbytes(os.path.getsize(path)), random.Random(2)
def opens():
    return json.loads(open(counters).read())["open"]["data_files"]
quiet, rounds, deadline, said["same"] = 0, 0, time.monotonic() + 120, True
while quiet < 20 and time.monotonic() < deadline:
    before, rounds = asked(), rounds + 1
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for at in rng.choices(range(len(data) - 512), k=4):
        said["same"] &= mapping[at:at + 512] == data[at:at + 512]
    mapping.close()
    quiet = quiet + 1 if asked() == before else 0
said["quiet"], said["by_the_library"] = quiet, opens() > rounds
""")
        self.assertEqual(said, {"same": True, "quiet": 20, "by_the_library": True})

    def test_a_file_that_does_not_fit_is_not_brought_for_its_mappings(self):
        self.run_job("""
rng = random.Random(2)
for _ in range(60):
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for at in rng.choices(range(len(mapping)), k=4):
        mapping[at]
    mapping.close()
""", CUBESHIM_RAM="16M")
        blocks = self.blocks()
        self.assertEqual((blocks["mappings"], blocks["origin"]), (60, 0))

    def test_mapping_shows_the_pages_already_read(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
# Reads the head, which is fetched for each mapping anyway, and another part. Together they are less
# than a tenth of the file, so that the rest is not read ahead.
os.pread(file, 1 << 17, 0)
os.pread(file, 1_500_000, 3_000_000)
# Each of several mappings shows pieces of the region, although a single mapping may reserve half of
# all pieces while it is made.
def pieces():
    with open("/proc/self/maps") as maps:
        return maps.read().count(" /dev/shm/cubeshim-")
mappings, counts = [], [pieces()]
for _ in range(4):
    mappings.append(mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE))
    counts.append(pieces())
said["are_more"] = counts == sorted(set(counts))
before = asked()
with mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as mapping:
    said["present"] = digest(mapping[3_000_000:4_500_000])
    said["asked"] = asked() - before
    said["all"] = digest(mapping[:])
""")
        self.assertEqual(
            said, {
                "present": hashlib.blake2b(DATA[3_000_000:4_500_000]).hexdigest(), "asked": 0,
                "all": hashlib.blake2b(DATA).hexdigest(), "are_more": True
            })

    # Weights of a model, in the format of safetensors.
    HEADER = b'{"a":{"dtype":"U8","shape":[23999900],"data_offsets":[0,23999900]}}'
    MODEL = len(HEADER).to_bytes(8, "little") + HEADER + DATA[8 + len(HEADER):]

    def test_a_model_is_read_ahead_of_the_program_and_leaves_the_mount_once(self):
        (self.source / "f").write_bytes(self.MODEL)
        os.utime(self.source / "f", (1e9, 1e9))
        job = """
with open(path, "rb") as file:
    mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
parts, deadline, size = [], time.monotonic() + 120, len(mapping)
for at in range(0, size, 1 << 20):
    parts.append(mapping[at:at + (1 << 20)])
    while asked() < min(at + (2 << 20), size) and time.monotonic() < deadline:
        os.sched_yield()
said["digest"], said["asked"] = digest(b"".join(parts)), asked()
# In the end, the whole file is in memory.
def is_all_of_the_region():
    # A mount with direct I/O refuses MAP_SHARED.
    with (open(path, "rb") as file,
          mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)):
        with open("/proc/self/maps") as maps:
            return any(" /dev/shm/cubeshim-" in line and (end - begin) == -(-size // 4096) * 4096
                       for line in maps
                       for begin, end in [[int(at, 16) for at in line.split()[0].split("-")]])
while not is_all_of_the_region() and time.monotonic() < deadline:
    os.sched_yield()
said["is_there"] = is_all_of_the_region()
mapping.close()
"""
        for direct in (False, True):
            with SlowMount(Path(LAGFS), self.source, self.scratch, 200, direct) as mount:
                self.path, self.mount = mount.path / "f", mount
                self.env["CUBESHIM_PREFIXES"] = str(mount.path)
                said = self.run_job(job)
                # An access next to a part that is being read ahead must not request a byte twice.
                self.assertEqual(
                    said, {
                        "digest": hashlib.blake2b(self.MODEL).hexdigest(), "asked": SIZE,
                        "is_there": True
                    })

    def test_a_file_is_read_to_its_end_once_a_tenth_of_it_was_touched(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
places = random.Random(4)
said["right"] = all(len(mapping[at:at + 100]) == 100
                    for at in (places.randrange(len(mapping) - 100) for _ in range(60)))
deadline = time.monotonic() + 120
while asked() < len(mapping) and time.monotonic() < deadline:
    os.sched_yield()
said["asked"] = asked()
""")
        self.assertEqual(said, {"right": True, "asked": SIZE})

    def test_a_wanted_part_of_a_mapping_is_read_before_it_is_touched(self):
        said = self.run_job("""
mapping = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
mapping.madvise(mmap.MADV_WILLNEED)
deadline = time.monotonic() + 120
while asked() < len(mapping) and time.monotonic() < deadline:
    os.sched_yield()
said["asked"] = asked()
said["digest"] = digest(mapping[:])
said["again"] = asked() - said["asked"]
""")
        self.assertEqual(said, {
            "asked": SIZE, "digest": hashlib.blake2b(DATA).hexdigest(), "again": 0
        })

    def test_a_model_that_is_read_at_random_is_not_read_ahead(self):
        (self.source / "f").write_bytes(self.MODEL)
        os.utime(self.source / "f", (1e9, 1e9))
        said = self.run_job("""
mapping = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
mapping.madvise(mmap.MADV_RANDOM)
before = asked()
touched = sum(mapping[at] for at in range(0, 6 << 20, 1 << 16))
# Waits until the threads have read another range. They would also have read ahead of these places.
mapping.madvise(mmap.MADV_WILLNEED, 12 << 20, 4 << 20)
deadline = time.monotonic() + 120
while asked() - before < 4 << 20 and time.monotonic() < deadline:
    os.sched_yield()
said["asked"] = asked() - before
""")
        self.assertLess(said["asked"], 5 << 20)

    def test_populated_mapping_uses_present_pages_and_reads_the_rest(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
while os.lseek(file, 0, os.SEEK_CUR) < 8 << 20:
    os.read(file, 1 << 20)
# FUSE drops the pages of the file.
file = os.open(path, os.O_RDONLY)
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE)
said["asked"] = asked()
said["digest"] = digest(mapping[:])
said["again"] = asked() - said["asked"]
""", CUBESHIM_PREFETCH="0")
        self.assertEqual((said["digest"], said["again"]), (hashlib.blake2b(DATA).hexdigest(), 0))
        # The kernel also reads pages around the page of a fault.
        self.assertTrue(SIZE <= said["asked"] < 1.01 * SIZE, said["asked"])

    def test_a_mapping_that_the_kernel_refuses_is_not_counted(self):
        said = self.run_job("""
import ctypes
libc, file = ctypes.CDLL(None), os.open(path, os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
def is_mapped(size, protection, flags):
    at = libc.mmap(None, ctypes.c_size_t(size), protection, flags, file, ctypes.c_long(0))
    return at != ctypes.c_void_p(-1).value
MAP_NONBLOCK = 0x10000
said["mapped"] = [is_mapped(0, mmap.PROT_READ, mmap.MAP_PRIVATE),
                  is_mapped(4096, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED),
                  is_mapped(4096, mmap.PROT_READ, mmap.MAP_PRIVATE | MAP_NONBLOCK)]
""")
        self.assertEqual((said["mapped"], self.blocks()["mappings"]), ([False, False, True], 1))

    def test_the_pages_of_a_mapping_without_a_row_are_not_counted_as_mapped(self):
        self.run_job("""
file = os.open(path, os.O_RDONLY)
os.pread(file, 1 << 16, 0)
page = mmap.mmap(file, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
# Takes the remaining rows of the table.
rest = [mmap.mmap(file, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) for _ in range(4095)]
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
""")
        self.assertEqual((self.blocks()["mapped"], self.blocks()["mappings"]), (4096, 1))

    def test_two_hundred_mappings_of_a_file_are_followed_at_once(self):
        said = self.run_job("""
file = os.open(path, os.O_RDONLY)
def mapped(i):
    return mmap.mmap(file, 1 << 16, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED, offset=i << 16)
mappings = [mapped(i) for i in range(200)]
touched = [mapping[:] for mapping in mappings]
def pieces():
    with open("/proc/self/maps") as maps:
        return maps.read().count(" /dev/shm/cubeshim-")
def is_kept(i):
    before = pieces()
    with mapped(i):
        return pieces() > before
left, deadline = list(range(200)), time.monotonic() + 120
while left and time.monotonic() < deadline:
    left = [i for i in left if not is_kept(i)]
said["left"] = left
""")
        self.assertEqual(said["left"], [])

    def test_a_child_has_no_mapping_of_the_library(self):
        said = self.run_job("""
file, pipe = os.open(path, os.O_RDONLY), os.pipe()
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ)
def mapped():
    with open("/proc/self/maps") as maps:
        return maps.read().count(path)
said["parent"] = mapped()
if os.fork() == 0:
    os.write(pipe[1], bytes([mapped()]))
    os._exit(0)
said["child"] = os.read(pipe[0], 1)[0]
""")
        self.assertEqual(said, {"parent": 2, "child": 1})

    def test_looks_at_a_huge_mapping_take_a_small_share_of_the_time(self):
        os.truncate(self.source / "f", 512 << 30)
        said = self.run_until(
            lambda said: said["between"] < 0.1, """
file = os.open(path, os.O_RDONLY)
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
said["byte"] = mapping[300 << 30]
def spent(seconds):
    before = time.process_time()
    time.sleep(seconds)
    return time.process_time() - before
while time.process_time() < 0.2:
    time.sleep(0.1)
def runs(task):
    with open(f"/proc/self/task/{task}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "R"
def is_checking():
    return any(map(runs, set(os.listdir("/proc/self/task")) - {str(os.getpid())}))
# Waits for the end of the first check. It takes some seconds, longer on a busy machine.
for _ in range(20):
    if spent(1.5) <= 0.02 and not is_checking():
        break
said["between"] = spent(3)
""", CUBESHIM_RAM="64M")
        self.assertEqual(said["byte"], 0)
        self.assertLess(said["between"], 0.1)

    def test_a_lock_does_not_wait_for_a_look_at_a_huge_mapping(self):
        os.truncate(self.source / "f", 1 << 40)
        said = self.run_until(
            lambda said: said["took"] < 0.9, """
file = os.open(path, os.O_RDONLY)
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
said["byte"] = mapping[300 << 30]
while time.process_time() < 0.2:
    time.sleep(0.1)
before = time.monotonic()
fcntl.flock(file, fcntl.LOCK_SH)
said["took"] = time.monotonic() - before
""", CUBESHIM_RAM="64M")
        self.assertLess(said["took"], 0.9)

    def test_private_writes_stay_private(self):
        said = self.run_job("""
read_all()
file = os.open(path, os.O_RDONLY)
with mmap.mmap(file, 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE) as mapping:
    mapping[1_000_000:1_000_005] = b"mine!"
    said["mine"] = mapping[1_000_000:1_000_005].decode()
said["others"] = digest(read_all())
""")
        self.assertEqual(said, {"mine": "mine!", "others": hashlib.blake2b(DATA).hexdigest()})


class Ranks(Job):
    """Two processes of a job that map models. At each open, FUSE drops the file's pages in the
    kernel."""
    DATA = DATA[:6_000_001]
    HEADER = b'{"a":{"dtype":"U8","shape":[5999900],"data_offsets":[0,5999900]}}'
    MODEL = len(HEADER).to_bytes(8, "little") + HEADER + DATA[8 + len(HEADER):]
    # The other process opens the file, or maps its first page.
    OTHER = """
to_other, to_first = os.pipe(), os.pipe()
def map_page():
    file = os.open(path, os.O_RDONLY)
    mmap.mmap(file, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
def let_other(act):
    os.write(to_other[1], act)
    os.read(to_first[0], 1)
# This attaches the process to the region.
os.close(os.open(path, os.O_RDONLY))
if os.fork() == 0:
    os.close(to_other[1])
    while (act := os.read(to_other[0], 1)) != b"e":
        os.close(os.open(path, os.O_RDONLY)) if act == b"o" else map_page()
        os.write(to_first[1], b"d")
    os._exit(0)
before = asked()
let_other(b"m")
"""
    OPEN = """
file = os.open(path, os.O_RDONLY)
"""
    MAP = """
mapping = mmap.mmap(file, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
said["brought"] = asked() - before
"""
    END = """
os.write(to_other[1], b"e")
said["status"] = os.wait()[1]
"""
    def setUp(self):
        super().setUp()
        self.env["CUBESHIM_MAX_FILE"] = "1M"
        self.write(self.MODEL)

    def write(self, data: bytes):
        (self.source / "f").write_bytes(data)
        os.utime(self.source / "f", (1e9, 1e9))

    def test_a_model_leaves_the_mount_once_before_it_is_mapped(self):
        said = self.run_until(
            lambda said: said["brought"] >= len(self.MODEL), self.OTHER + self.OPEN + self.MAP + """
# If the kernel had made the mapping, this open would drop its pages.
let_other(b"o")
middle = asked()
said["digest"], said["again"] = digest(mapping[:]), asked() - middle
""" + self.END)
        size = len(self.MODEL)
        # After the first page, the kernel reads some pages ahead.
        self.assertTrue(size <= said["brought"] < size + (64 << 10), said)
        self.assertEqual((said["digest"], said["again"], said["status"]),
                         (hashlib.blake2b(self.MODEL).hexdigest(), 0, 0))
        blocks, pages = self.blocks(), -(-size // 4096) * 4096
        self.assertEqual((blocks["origin"], blocks["mapped"]), (size, pages))
        self.assertEqual((blocks["used"], blocks["unread"], blocks["faulted"]),
                         (blocks["ahead"], 0, 0))

    def test_a_lone_process_does_not_wait_for_a_model(self):
        said = self.run_job("before = asked()" + self.OPEN + self.MAP)
        self.assertLess(said["brought"], 1 << 20)

    def test_a_model_that_no_other_process_maps_is_not_waited_for(self):
        said = self.run_job(
            self.OTHER.replace('let_other(b"m")', 'let_other(b"o")') + self.OPEN + self.MAP +
            self.END)
        self.assertLess(said["brought"], 1 << 20)

    def test_a_process_does_not_wait_for_a_model_once_its_other_rank_has_ended(self):
        (self.source / "g").write_bytes(self.MODEL)
        os.utime(self.source / "g", (1e9, 1e9))
        # A third process only opens the file.
        said = self.run_job("""
ready, end = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(end[1])
    os.close(os.open(path, os.O_RDONLY))
    os.write(ready[1], b"r")
    os.read(end[0], 1)
    os._exit(0)
os.read(ready[0], 1)
""" + self.OTHER + self.OPEN + self.MAP + self.END + """
path, before = path[:-1] + "g", asked()
""" + self.OPEN + self.MAP + """
os.close(end[1])
os.wait()
""")
        self.assertLess(said["brought"], 1 << 20)

    def test_the_first_rank_waits_for_the_second_model(self):
        (self.source / "g").write_bytes(self.MODEL)
        os.utime(self.source / "g", (1e9, 1e9))
        said = self.run_until(
            lambda said: said["brought"] >= len(self.MODEL),
            self.OTHER.replace('let_other(b"m")', """
let_other(b"o")
map_page()
let_other(b"m")
path, before = path[:-1] + "g", asked()
""") + self.OPEN + self.MAP + self.END)
        self.assertGreaterEqual(said["brought"], len(self.MODEL))

    def test_a_process_with_the_same_command_is_found_without_reading_its_command(self):
        # A read of /proc/PID/cmdline would wait while a thread of that process hangs in mmap.
        words = [
            "/usr/bin/python3", "-c", PROLOGUE + self.OPEN + """
print("attached", flush=True)
before = asked()
if sys.stdin.readline() == "map\\n":
""" + self.MAP.replace("\n", "\n    ") + EPILOGUE,
            str(self.path),
            str(self.mount.path / ".lagfs" / "counters.json")
        ]
        jobs = []
        for _ in range(2):
            job = subprocess.Popen(words, env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
            self.addCleanup(lambda job=job: [job.kill(), job.communicate()])
            jobs.append(job)
            self.assertEqual(job.stdout.readline(), "attached\n")
        other, mapper = jobs
        stopped, opened = Stopped(mapper.pid), []
        self.addCleanup(stopped.go_on)

        def note(number: int, arguments: list[int]) -> bool:
            if number == OPENAT:
                with open(f"/proc/{mapper.pid}/mem", "rb", buffering=0) as memory:
                    memory.seek(arguments[1])
                    opened.append(memory.read(64).split(b"\0")[0].decode())
            return False

        print("map", file=mapper.stdin, flush=True)
        self.assertFalse(stopped.run_to(note))
        of_other = [name for name in opened if name.startswith(f"/proc/{other.pid}/")]
        self.assertEqual(of_other, [f"/proc/{other.pid}/task/{other.pid}/stat"])

    def test_a_file_that_is_rewritten_during_the_wait_shows_one_version(self):
        new = self.MODEL[:500_000] + bytes(len(self.MODEL) - 500_000)
        with SlowMount(Path(LAGFS), self.source, self.scratch, 200, bandwidth_mb=100) as mount:
            self.path, self.mount = mount.path / "f", mount
            self.env["CUBESHIM_PREFIXES"] = str(mount.path)

            def rewrite():
                counters = mount.path / ".lagfs" / "counters.json"
                while (json.loads(counters.read_text())["read"]["bytes"] < 1 << 20
                       and not mapped.exists()):
                    os.sched_yield()
                os.truncate(self.path, 500_000)
                while not mapped.exists():
                    os.sched_yield()
                self.path.write_bytes(new)
                written.touch()

            mapped, written = self.scratch / "mapped", self.scratch / "written"
            threading.Thread(target=rewrite, daemon=True).start()
            said = self.run_job(self.OTHER + self.OPEN + self.MAP + """
open(os.environ["MAPPED"], "w").close()
while not os.path.exists(os.environ["WRITTEN"]):
    os.sched_yield()
said["digest"] = digest(mapping[:])
""" + self.END, MAPPED=str(mapped), WRITTEN=str(written))
        # On a busy machine, the file may be in memory as a whole before it is rewritten.
        self.assertIn(said["digest"],
                      [hashlib.blake2b(data).hexdigest() for data in (self.MODEL, new)])

    def test_a_random_reader_and_a_file_of_another_format_do_not_wait(self):
        said = self.run_job(
            self.OTHER + self.OPEN + "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)" +
            self.MAP + self.END)
        self.assertLess(said["brought"], 1 << 20)
        self.write(self.DATA)
        said = self.run_job(self.OTHER + self.OPEN + self.MAP + self.END)
        self.assertLess(said["brought"], 1 << 20)

    def test_a_mapping_of_a_part_brings_this_part(self):
        part = self.MAP.replace("file, 0", "file, 2 << 20, offset=1 << 20")
        said = self.run_until(
            lambda said: said["brought"] >= 2 << 20,
            self.OTHER + self.OPEN + "os.pread(file, 100, 0)" + part + self.END)
        self.assertTrue(2 << 20 <= said["brought"] < 5 << 19, said)

    def test_a_mapping_does_not_wait_for_a_slow_mount(self):
        # The whole file would take six seconds.
        with SlowMount(Path(LAGFS), self.source, self.scratch, 200, bandwidth_mb=1) as mount:
            self.path, self.mount = mount.path / "f", mount
            self.env["CUBESHIM_PREFIXES"] = str(mount.path)
            said = self.run_until(lambda said: said["brought"] < len(self.MODEL),
                                  self.OTHER + self.OPEN + self.MAP + self.END)
        self.assertLess(said["brought"], len(self.MODEL))

    def test_a_mapping_does_not_wait_for_one_block_of_a_slow_mount(self):
        # One block alone would take two seconds.
        with SlowMount(Path(LAGFS), self.source, self.scratch, 200, bandwidth_mb=1) as mount:
            self.path, self.mount = mount.path / "f", mount
            self.env["CUBESHIM_PREFIXES"] = str(mount.path)
            said = self.run_until(lambda said: said["took"] < 1.5, self.OTHER + self.OPEN +
                                  "began = time.monotonic()" + self.MAP +
                                  'said["took"] = time.monotonic() - began' + self.END,
                                  CUBESHIM_BLOCK="2M")
        self.assertLess(said["took"], 1.5)

    def test_an_error_of_the_mount_leaves_the_mapping_to_the_kernel(self):
        said = self.run_job(self.OTHER + """
def tell(line):
    with open(os.path.dirname(counters) + "/script", "w") as script:
        script.write(line + "\\n")
tell("fail read EIO 9 1000")
""" + self.OPEN + self.MAP + """
said["head"] = digest(mapping[:4096])
tell("clear")
said["digest"] = digest(mapping[:])
""" + self.END)
        self.assertLess(said["brought"], len(self.MODEL))
        self.assertEqual((said["head"], said["digest"]),
                         (hashlib.blake2b(self.MODEL[:4096]).hexdigest(),
                          hashlib.blake2b(self.MODEL).hexdigest()))


class Races(Job):
    """A thread is stopped at the entry of a system call, and the main thread acts in the
    meantime."""
    JOB = """
import ctypes, threading
libc, begins, found = ctypes.CDLL(None), threading.Event(), []
libc.mmap.restype = ctypes.c_void_p
numbers = len(os.listdir("/proc/self/fd"))
file, size = os.open(path, os.O_RDONLY), ctypes.c_size_t(8 << 20)
def act():
    sys.stdin.readline()
    begins.set()
    found.append(ACT)
thread = threading.Thread(target=act)
thread.start()
print(thread.native_id, file, flush=True)
begins.wait()
stopped_at = int(sys.stdin.readline())
MEANWHILE
print("done", flush=True)
thread.join()
THEN
"""
    CLOSED = "os.close(file); assert os.open(sys.argv[3], os.O_RDONLY) == file"
    READ = """
said["digest"] = digest(found[0])
said["numbers"] = len(os.listdir("/proc/self/fd")) - numbers
"""

    def setUp(self):
        super().setUp()
        (self.scratch / "other").write_bytes(bytes(SIZE))

    def race(self, call: int, act: str, meanwhile: str, then: str = "", least: int = 0,
             nth: int = 1, by_region: bool = False, **settings: str) -> dict:
        """Stops the job once, at its nth call for at least `least` bytes on the file or, with
        `by_region`, on the region's file. The job's `stopped_at` is the fd of this call."""
        text = self.JOB.replace("ACT", act).replace("MEANWHILE", meanwhile).replace("THEN", then)
        words = [
            "/usr/bin/python3", "-c", PROLOGUE + text + EPILOGUE,
            str(self.path),
            str(self.mount.path / ".lagfs" / "counters.json"),
            str(self.scratch / "other")
        ]
        job = subprocess.Popen(words, env={**self.env, **settings}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: [job.kill(), job.communicate()])
        thread, file = (int(word) for word in job.stdout.readline().split())
        stopped = Stopped(thread)
        self.addCleanup(stopped.go_on)

        def is_wanted(number: int, arguments: list[int]) -> bool:
            fd, size = (arguments[i] for i in ((4, 1) if call == MMAP else (0, 2)))
            if number != call or size < least or fd >> 31:
                return False
            stopped_at[:] = [fd]
            return fd == file if not by_region else os.readlink(
                f"/proc/{job.pid}/fd/{fd}").startswith("/dev/shm/cubeshim-")

        stopped_at = []
        print(file=job.stdin, flush=True)
        for _ in range(nth):
            self.assertTrue(stopped.run_to(is_wanted))
        print(stopped_at[0], file=job.stdin, flush=True)
        self.assertEqual(job.stdout.readline(), "done\n")
        self.assertFalse(stopped.run_to(is_wanted))
        said = job.communicate(timeout=DEADLINE_S)[0]
        self.assertEqual(job.returncode, 0)
        return json.loads(said)

    def test_a_read_in_blocks_goes_on_with_its_file_after_a_close(self):
        # The kernel reads most of this range, because the region has no room for it.
        said = self.race(PREAD, "os.pread(file, 20_000_000, 17)", self.CLOSED, self.READ,
                         least=4 << 20, CUBESHIM_RAM="8M")
        self.assertEqual(said,
                         {"digest": hashlib.blake2b(DATA[17:20_000_017]).hexdigest(), "numbers": 1})

    def test_a_close_of_another_fd_of_the_file_drops_no_block(self):
        said = self.race(PREAD, "os.pread(file, 3000, 5_000_000)", "os.close(os.dup(file))",
                         'said["digest"] = digest(found[0])')
        self.assertEqual(said,
                         {"digest": hashlib.blake2b(DATA[5_000_000:5_003_000]).hexdigest()})
        self.assertEqual(self.blocks()["kernel"], 0)

    def test_a_read_at_the_origin_goes_on_with_its_file_after_a_close(self):
        (self.source / "g").write_bytes(DATA[:3 << 20])
        os.utime(self.source / "g", (1e9, 1e9))
        self.path = self.mount.path / "g"
        for before in ("", "os.listxattr(file); "):  # listxattr materializes the fd
            with self.subTest(before):
                said = self.race(PREADV, "os.pread(file, 3000, 2_000_000)", before + self.CLOSED,
                                 self.READ)
                digest = hashlib.blake2b(DATA[2_000_000:2_003_000]).hexdigest()
                self.assertEqual(said, {"digest": digest, "numbers": 1})

    def test_a_mapping_whose_fd_is_replaced_shows_one_file(self):
        # The second mapping is the library's own, from which it copies pages into the cache.
        digests = [hashlib.blake2b(data).hexdigest() for data in (DATA[:8 << 20], bytes(8 << 20))]
        for nth in (1, 2):
            with self.subTest(nth=nth):
                said = self.race(
                    MMAP, "(os.pread(file, 2 << 20, 0), libc.mmap(None, size, mmap.PROT_READ, "
                    "mmap.MAP_SHARED, file, ctypes.c_long(0)))[1]", self.CLOSED, """
said["bytes"] = digest(ctypes.string_at(found[0], 8 << 20))
libc.munmap(ctypes.c_void_p(found[0]), size)
said["again"] = digest(read_all())
""", least=8 << 20, nth=nth)
                self.assertIn(said["bytes"], digests)
                self.assertEqual(said["again"], hashlib.blake2b(DATA).hexdigest())

    def test_a_mapping_whose_fd_is_replaced_by_the_same_file_grows_into_this_file(self):
        # The mapping replaces a mapping of another file.
        (self.source / "g").write_bytes(bytes(SIZE))
        said = self.race(
            MMAP, "[at := libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE, os.open(path[:-1]"
            " + 'g', os.O_RDONLY), ctypes.c_long(0)), libc.mmap(ctypes.c_void_p(at), size, "
            "mmap.PROT_READ, mmap.MAP_PRIVATE | 0x10, file, ctypes.c_long(0))][1]",
            "os.dup2(os.open(path, os.O_RDONLY), file)", """
libc.mremap.restype, size = ctypes.c_void_p, ctypes.c_size_t(9 << 20)
at = libc.mremap(ctypes.c_void_p(found[0]), ctypes.c_size_t(8 << 20), size, 1)
said["digest"] = digest(ctypes.string_at(at, 9 << 20))
""")
        self.assertEqual(said, {"digest": hashlib.blake2b(DATA[:9 << 20]).hexdigest()})

    def test_a_mapping_of_the_region_whose_fd_is_replaced_shows_the_right_file(self):
        (self.source / "g").write_bytes(DATA[:3 << 20])
        os.utime(self.source / "g", (1e9, 1e9))
        for path, flags in (("f", 0), ("f", 0x10), ("g", 0), ("g", 0x10)):
            self.path = self.mount.path / path
            with self.subTest(path=path, flags=flags):
                said = self.race(
                    MMAP, "[os.pread(file, 1 << 20, 0), at := libc.mmap(None, size, 0, "
                    "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0)), libc.mmap("
                    "ctypes.c_void_p(at), ctypes.c_size_t(1 << 20), mmap.PROT_READ, "
                    f"mmap.MAP_PRIVATE | {flags}, file, ctypes.c_long(0))][2]",
                    "os.dup2(os.open(sys.argv[3], os.O_RDONLY), stopped_at)", """
said["digest"] = digest(ctypes.string_at(found[0], 1 << 20))
said["other"] = len(os.pread(stopped_at, 100, 0))
""", least=1 << 20, by_region=True)
                self.assertEqual(
                    said, {"digest": hashlib.blake2b(DATA[:1 << 20]).hexdigest(), "other": 100})

    def test_a_mapping_without_a_row_leaves_no_hole_in_the_programs_memory(self):
        # Another thread could map its memory into the hole, which MAP_FIXED would then replace.
        job = subprocess.Popen(["/usr/bin/python3", "-c", PROLOGUE + """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def map_at(at, size, protection, flags, file):
    return libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(size), protection,
                     mmap.MAP_PRIVATE | flags, file, ctypes.c_long(0))
file, reserved = os.open(path, os.O_RDONLY), map_at(None, 1 << 16, 0, mmap.MAP_ANONYMOUS, -1)
os.pread(file, 1 << 16, 0)
# Takes all rows of the table.
for _ in range(4096):
    map_at(None, 4096, mmap.PROT_READ, 0, file)
print(reserved, flush=True)
sys.stdin.readline()
assert map_at(reserved, 1 << 16, mmap.PROT_READ, 0x10, file) == reserved
said["digest"] = digest(ctypes.string_at(reserved, 1 << 16))
""" + EPILOGUE, str(self.path), str(self.mount.path / ".lagfs" / "counters.json")], env=self.env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: [job.kill(), job.communicate()])
        reserved = int(job.stdout.readline())
        stopped = Stopped(job.pid)
        self.addCleanup(stopped.go_on)
        print(file=job.stdin, flush=True)
        self.assertFalse(stopped.run_to(
            lambda number, arguments: number == MUNMAP and arguments[0] == reserved))
        self.assertEqual(json.loads(job.stdout.read()),
                         {"digest": hashlib.blake2b(DATA[:1 << 16]).hexdigest()})

    def test_a_lock_that_is_taken_during_a_mapping_is_not_held_by_another_mapping(self):
        # The library must not map the file as well, because its mapping would prolong the lock.
        self.race(MMAP,
                  "libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, ctypes.c_long(0))",
                  "fcntl.flock(file, fcntl.LOCK_EX)")


if __name__ == "__main__":
    unittest.main()
