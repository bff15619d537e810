"""Lists and announcements that name large files or parts of them: the named bytes are fetched
before the program reads them. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
PACKAGE = Path(__file__).resolve().parent.parent.parent / "prefetch" / "python"
SHARDS, SIZE, BLOCK = 4, 9_000_001, 1 << 20
DEADLINE_S = 300
PROLOGUE = """
import glob, hashlib, json, os, sys, time
mount, counters = sys.argv[1], sys.argv[2]
def asked(what="bytes"):
    return json.loads(open(counters).read())["read"][what]
def wait_until_asked(wanted):
    deadline = time.monotonic() + 120
    while asked() < wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    # Nor do more bytes arrive.
    seen = asked()
    time.sleep(0.2)
    return seen if asked() == seen else asked()
def shard(number):
    return f"{mount}/s{number}.tar"
def names_of_open_files():
    names = []
    for fd in glob.glob("/proc/self/task/*/fd/*"):
        try:
            names.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    return names
def digest(path, at=0, n=-1):
    with open(path, "rb", buffering=0) as file:
        file.seek(at)
        parts = []
        while n != 0 and (part := file.read(100_000 if n < 0 else min(n, 100_000))):
            parts.append(part)
            n -= len(part) if n > 0 else 0
        return hashlib.blake2b(b"".join(parts)).hexdigest()
said = {}
"""
START = 'open(f"{mount}/trigger", "rb").read()\n'
ANNOUNCE = f"""
sys.path.insert(0, {str(PACKAGE)!r})
import cubeshim
"""


def content(number):
    return random.Random(number).randbytes(SIZE)


def digest(data):
    return hashlib.blake2b(data).hexdigest()


class Lists(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shards = [content(number) for number in range(SHARDS)]

    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-large-")))
        self.source = self.scratch / "source"
        self.source.mkdir()
        for number, data in enumerate(self.shards):
            self.write(f"s{number}.tar", data)
        self.write("trigger", b"x")
        # The mount has no page cache, so only requested bytes are read.
        self.mount = self.enterContext(
            SlowMount(Path(LAGFS), self.source, self.scratch, 200, direct=True))
        self.report = self.scratch / "report.json"
        self.list = self.scratch / "list"
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        self.env = clean | {
            "CUBESHIM_PREFIXES": str(self.mount.path), "CUBESHIM_NAME": f"list-{os.getpid()}",
            "CUBESHIM_RAM": "256M", "CUBESHIM_BLOCK": "1M", "CUBESHIM_MAX_FILE": "1M",
            "CUBESHIM_ANNOUNCE": "0", "CUBESHIM_STATS": str(
                self.report), "CUBESHIM_STATS_FORMAT": "json", "LD_PRELOAD": LIBRARY
        }

    def write(self, name, data):
        (self.source / name).write_bytes(data)
        os.utime(self.source / name, (1e9, 1e9))

    def run_job(self, body: str, said_beside: str = "", **settings: str) -> dict:
        words = [
            "/usr/bin/python3", "-c", PROLOGUE + body + "\nprint(json.dumps(said))\n",
            str(self.mount.path),
            str(self.mount.path / ".lagfs" / "counters.json")
        ]
        done = subprocess.run(words, env={**self.env, **settings}, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, f"^{said_beside}$")
        return json.loads(done.stdout)

    def with_list(self, lines, body, **options):
        self.list.write_text("".join(f"{line}\n" for line in lines))
        return self.run_job(START + body, CUBESHIM_PREFETCH_LIST=str(self.list), **options)

    def blocks(self) -> dict:
        return json.loads(self.report.read_text().splitlines()[-1])["blocks"]

    def shard(self, number):
        return f"{self.mount.path}/s{number}.tar"

    def test_all_shards_of_a_list_are_there_before_they_are_read(self):
        said = self.with_list([self.shard(number) for number in range(SHARDS)], f"""
said["fetched"] = wait_until_asked({SHARDS * SIZE} + 1)
said["digests"] = [digest(shard(number)) for number in range({SHARDS})]
said["read"] = asked() - said["fetched"]
# A file whose fetch has ended is closed, by a thread that has a table of its own.
deadline = time.monotonic() + 120
def open_shards(): return [name for name in names_of_open_files() if name.endswith(".tar")]
while (open_still := open_shards()) and time.monotonic() < deadline:
    time.sleep(0.01)
said["open"] = open_still
""")
        self.assertEqual(said["digests"], [digest(data) for data in self.shards])
        self.assertEqual((said["fetched"], said["read"], said["open"]), (SHARDS * SIZE + 1, 0, []))
        self.assertEqual(self.blocks()["misses"], 0)

    def test_relative_lines_and_directories(self):
        for lines in (["s1.tar"], [str(self.mount.path)]):
            with self.subTest(lines):
                self.mount.reset()
                size = SIZE if len(lines[0]) < 10 else SHARDS * SIZE
                said = self.with_list(
                    lines, f"""
wait_until_asked({size} + 1)
before = asked()
said["digest"] = digest(shard(1))
said["read"] = asked() - before
""")
                self.assertEqual(said, {"digest": digest(self.shards[1]), "read": 0})

    def test_ranges_bring_their_pages_and_no_others(self):
        pages = 4096
        # One range is within a block, one crosses a block's end, and one crosses the end of the
        # file.
        ranges = [(2 * pages, pages), (3 * BLOCK - pages, 2 * pages),
                  (SIZE // pages * pages, 1 << 30)]
        wanted = 3 * pages + SIZE % pages
        for form in ("{}@{}+{}", "{}@{}B+{}B"):
            with self.subTest(form):
                said = self.with_list([form.format("s2.tar", *one) for one in ranges], f"""
said["fetched"] = wait_until_asked({wanted} + 1)
said["digests"] = [digest(shard(2), at, min(n, {SIZE} - at)) for at, n in {ranges}]
""")
                # The reads can look like the beginning of a sequence, whose next block is fetched
                # ahead.
                self.assertEqual(self.blocks()["misses"], 0)
                self.assertEqual(
                    said, {
                        "fetched": wanted + 1,
                        "digests": [digest(self.shards[2][at:at + n]) for at, n in ranges]
                    })
                self.mount.reset()

    def test_units_of_ranges(self):
        said = self.with_list([f"{self.shard(0)}@2M+1M", f"{self.shard(1)}@1024K+8k"], f"""
said["fetched"] = wait_until_asked({BLOCK + 8192} + 1)
said["digests"] = [digest(shard(0), 2 << 20, 1 << 20), digest(shard(1), 1 << 20, 8192)]
""")
        self.assertEqual(self.blocks()["misses"], 0)
        self.assertEqual(
            said, {
                "fetched": BLOCK + 8192 + 1, "digests": [
                    digest(self.shards[0][2 << 20:3 << 20]),
                    digest(self.shards[1][1 << 20:(1 << 20) + 8192])
                ]
            })

    def test_name_that_looks_like_a_range_is_a_name_where_there_is_such_a_file(self):
        self.write("s0.tar@1+2", self.shards[3][:5000])
        self.write("s0.tar@4096+4096", self.shards[1])
        said = self.with_list([f"{self.shard(0)}@1+2", "s0.tar@4096+4096"], f"""
said["fetched"] = wait_until_asked(5000 + {SIZE} + 1)
said["digests"] = [digest(shard(0) + "@1+2"), digest(shard(0) + "@4096+4096")]
said["read"] = asked() - said["fetched"]
""")
        self.assertEqual(
            said, {
                "fetched": 5000 + SIZE + 1, "read": 0,
                "digests": [digest(self.shards[3][:5000]),
                            digest(self.shards[1])]
            })

    def test_file_of_exactly_the_bound_is_small(self):
        self.write("bound", self.shards[0][:1 << 20])
        said = self.with_list(["bound"], """
said["fetched"] = wait_until_asked((1 << 20) + 1)
said["digest"] = digest(mount + "/bound")
said["read"] = asked() - said["fetched"]
""")
        self.assertEqual(
            said, {"fetched": (1 << 20) + 1, "read": 0, "digest": digest(self.shards[0][:1 << 20])})

    def test_range_of_a_small_file_brings_all_of_it(self):
        self.write("small", self.shards[0][:50_000])
        said = self.with_list(["small@100+5", "small@20+5"], """
said["fetched"] = wait_until_asked(50_000 + 1)
said["digest"] = digest(mount + "/small")
said["read"] = asked() - said["fetched"]
""")
        self.assertEqual(said,
                         {"fetched": 50_001, "read": 0, "digest": digest(self.shards[0][:50_000])})

    def test_wrong_ranges_are_reported_in_one_line_and_the_rest_is_fetched(self):
        wrong = [
            f"{self.shard(0)}@5+", f"{self.shard(0)}@5+0", f"{self.shard(0)}@-1+5",
            f"{self.shard(0)}@1+99999999999T", f"{self.shard(0)}@{SIZE}+1"
        ]
        line = (rf"cubeshim: warn: prefetch list {self.list}: 5 entries are without such a "
                r"range, the first is [^\n]*s0.tar@[^\n]*\n")
        said = self.with_list([*wrong, self.shard(1)], f"""
said["fetched"] = wait_until_asked({SIZE} + 1)
said["digest"] = digest(shard(1))
said["read"] = asked() - said["fetched"]
""", said_beside=line)
        self.assertEqual(said, {"fetched": SIZE + 1, "read": 0, "digest": digest(self.shards[1])})

    def test_file_that_is_smaller_than_its_path_said_comes_whole(self):
        self.write("shrunk", self.shards[0][:50_000])
        script = self.mount.path / ".lagfs" / "script"
        script.write_text("lie size 2000000\nhold open\n")
        self.list.write_text("shrunk\n")
        said = self.run_job(f"""
try:
    open(mount + "/absent")
except FileNotFoundError:
    pass
open(mount + "/.lagfs/held").read()
open({str(script)!r}, "w").write("clear\\n")
said["fetched"] = wait_until_asked(50_000)
said["digest"] = digest(mount + "/shrunk")
said["read"] = asked() - said["fetched"]
""", CUBESHIM_PREFETCH_LIST=str(self.list))
        self.assertEqual(said,
                         {"fetched": 50_000, "read": 0, "digest": digest(self.shards[0][:50_000])})

    def test_list_that_is_larger_than_the_memory_stops_where_it_is_full(self):
        said = self.with_list([self.shard(number) for number in range(SHARDS)], f"""
said["fetched"] = wait_until_asked(8 << 20)
said["digests"] = [digest(shard(number)) for number in range({SHARDS})]
""", CUBESHIM_RAM="24M")
        self.assertEqual(said["digests"], [digest(data) for data in self.shards])
        self.assertLessEqual(said["fetched"], 24 << 20)

    def test_announced_by_the_program_in_its_order(self):
        said = self.run_job(ANNOUNCE + START + f"""
order = [shard(2), shard(0) + "@0+4M", "s1.tar@1M+1M", shard(3)]
os.chdir(mount)
with cubeshim.announce(order) as rest:
    wanted = {2 * SIZE + 5 * BLOCK} + 1
    said["fetched"] = wait_until_asked(wanted)
    said["digests"] = [digest(shard(2)), digest(shard(0), 0, 4 << 20),
                       digest(shard(1), 1 << 20, 1 << 20), digest(shard(3))]
    said["same"] = list(rest) == order
""")
        self.assertEqual(self.blocks()["misses"], 0)
        self.assertEqual(
            said, {
                "fetched": 2 * SIZE + 5 * BLOCK + 1, "same": True, "digests": [
                    digest(self.shards[2]),
                    digest(self.shards[0][:4 << 20]),
                    digest(self.shards[1][1 << 20:2 << 20]),
                    digest(self.shards[3])
                ]
            })

    def test_wrong_announced_range_is_reported_in_one_line(self):
        said = self.run_job(
            ANNOUNCE + START + f"""
with cubeshim.announce([shard(0) + "@1M+", shard(1)]):
    said["fetched"] = wait_until_asked({SIZE} + 1)
    # Announced later: by then the line has been printed.
with cubeshim.announce([shard(2)]):
    wait_until_asked({2 * SIZE} + 1)
open(f"{{mount}}/s3.tar", "rb").close()
""", said_beside=
            r"cubeshim: warn: announced by the job: 1 entry is without such a range, the first is "
            r"[^\n]*s0.tar@1M\+\n"
        )
        self.assertEqual(said["fetched"], SIZE + 1)


if __name__ == "__main__":
    unittest.main()
