"""The mount keeps attributes and names for longer than a test runs, and another node changes files
at the same time. If freshness is promised, a reader must receive the bytes that a plain open and
read would return. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = os.environ["CUBESHIM_LIBRARY"], os.environ["CUBESHIM_LAGFS"]
PYTHON, OLD, DEADLINE_S, FILES = "/usr/bin/python3", 1e9, 60, 120
READER = """
import fcntl, hashlib, os, sys
held = {}
def answer(word, path):
    if word == "hold":
        held[path] = os.open(path, os.O_RDONLY)
        return len(os.pread(held[path], 1, 0))
    if word == "lock":
        fcntl.flock(held[path], fcntl.LOCK_SH)
        return hashlib.md5(os.pread(held[path], 1 << 30, 0)).hexdigest()
    if word == "stat":
        return os.stat(path).st_mtime
    if word == "exists":
        return os.path.exists(path)
    if word == "list":
        return sorted(os.listdir(path))
    with open(path, "rb", buffering=0) as file:
        return hashlib.md5(b"".join(iter(lambda: file.read(100_000), b""))).hexdigest()
for line in sys.stdin:
    print(answer(*line.split()), flush=True)
"""


class KeepingMount(SlowMount):
    def _options(self) -> list[str]:
        # The mount is read-only: on a writable mount, the kernel asks again after each read,
        # because of the access time.
        return [
            *super()._options(), "--attr-timeout", "1000", "--entry-timeout", "1000", "-o", "ro"
        ]


def digest(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class KeptAttributes(unittest.TestCase):
    latency_us = 0

    def setUp(self):
        self.scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-kept-")))
        self.source = self.scratch / "source"
        self.source.mkdir()

    def mount_source(self):
        os.utime(self.source, (OLD, OLD))
        self.mount = self.enterContext(
            KeepingMount(Path(LAGFS), self.source, self.scratch, self.latency_us))

    def put(self, name: str, data: bytes, mtime: float = OLD):
        with open(self.source / name, "r+b" if (self.source / name).exists() else "wb") as file:
            file.write(data)
            file.truncate()
        os.utime(self.source / name, (mtime, mtime))

    def change(self, name: str, data: bytes):
        """Makes a change like another node, while the kernel of this node keeps the old
        attributes."""
        os.stat(self.mount.path / name)
        self.put(name, data, OLD + 1)
        self.assertEqual(
            os.stat(self.mount.path / name).st_mtime, OLD, "the mount has not kept the attributes")

    def environment(self, **settings: str) -> dict:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        return clean | {
            "CUBESHIM_PREFIXES": str(
                self.mount.path), "CUBESHIM_NAME": f"kept-{os.getpid()}", "CUBESHIM_RAM": "64M",
            "CUBESHIM_STATS": "off", "CUBESHIM_ANNOUNCE": "0", "LD_PRELOAD": LIBRARY
        } | settings

    def start(self, **settings: str) -> subprocess.Popen:
        job = subprocess.Popen([PYTHON, "-uc", READER], env=self.environment(**settings),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.stdin.close)
        return job

    def ask(self, job: subprocess.Popen, word: str, name: str) -> str:
        print(word, self.mount.path / name, file=job.stdin, flush=True)
        return job.stdout.readline().rstrip("\n")

    def ask_until(self, job: subprocess.Popen, word: str, name: str, wanted: str):
        until = time.monotonic() + DEADLINE_S
        while (said := self.ask(job, word, name)) != wanted:
            self.assertLess(time.monotonic(), until, said)
            time.sleep(0.01)

    def run_job(self, *names: str, **settings: str) -> list[str]:
        lines = "".join(f"read {self.mount.path / name}\n" for name in names)
        done = subprocess.run([PYTHON, "-c", READER], env=self.environment(**settings), input=lines,
                              capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def opens(self) -> int:
        return json.loads(
            (self.mount.path / ".lagfs" / "counters.json").read_text())["open"]["data_files"]


class Files(KeptAttributes):
    def setUp(self):
        super().setUp()
        self.put("f", b"old content")
        self.mount_source()

    def test_an_open_that_asks_each_time_sees_the_new_bytes_and_times(self):
        for consistency in ("open", "ttl:0"):
            with self.subTest(consistency):
                self.put("f", b"old content")
                job = self.start(CUBESHIM_CONSISTENCY=consistency)
                for _ in range(3):
                    self.ask_until(job, "read", "f", digest(b"old content"))
                self.change("f", b"new content")
                self.assertEqual(self.ask(job, "read", "f"), digest(b"new content"))
                self.assertEqual(self.ask(job, "stat", "f"), str(OLD + 1))

    def test_a_lock_brings_the_new_bytes_to_an_open_file(self):
        job = self.start()
        self.assertEqual(self.ask(job, "read", "f"), digest(b"old content"))
        self.assertEqual(self.ask(job, "hold", "f"), "1")
        self.change("f", b"new content")
        self.assertEqual(self.ask(job, "lock", "f"), digest(b"new content"))

    def test_a_file_that_has_grown_is_seen_whole_after_the_seconds_of_ttl(self):
        job = self.start(CUBESHIM_CONSISTENCY="ttl:1")
        self.assertEqual(self.ask(job, "read", "f"), digest(b"old content"))
        self.change("f", b"new content that is longer")
        self.ask_until(job, "read", "f", digest(b"new content that is longer"))

    def test_a_first_read_is_not_cut_at_the_size_that_the_mount_keeps(self):
        self.change("f", b"new content that is longer")
        self.assertEqual(self.run_job("f", "f"), [digest(b"new content that is longer")] * 2)

    def test_the_next_job_sees_the_new_bytes_instead_of_those_in_memory(self):
        # The keeper is another job, which keeps the region alive.
        keeper = self.start()
        self.assertEqual(self.ask(keeper, "read", "f"), digest(b"old content"))
        self.assertEqual(self.run_job("f"), [digest(b"old content")])
        self.change("f", b"new content")
        self.assertEqual(self.run_job("f"), [digest(b"new content")])

    def test_the_next_job_sees_the_new_bytes_instead_of_those_on_the_disk(self):
        (self.scratch / "disk").mkdir()
        report = self.scratch / "report"
        settings = {
            "CUBESHIM_DISK_DIR": str(self.scratch / "disk"), "CUBESHIM_STATS": str(report),
            "CUBESHIM_STATS_FORMAT": "json"
        }
        for _ in range(50):
            self.assertEqual(self.run_job("f", **settings), [digest(b"old content")])
            if json.loads(report.read_text().splitlines()[-1])["hits"]["disk"] == 1:
                break
        else:
            self.fail("the file has not come to the disk")
        self.change("f", b"new content")
        self.assertEqual(self.run_job("f", **settings), [digest(b"new content")])

    def test_a_file_that_changes_while_it_is_fetched_in_parts_is_not_kept(self):
        old, new = (random.Random(seed).randbytes(3 << 20) for seed in (1, 2))
        self.put("parts", old)
        job = self.start()
        reads = f"""
import os, sys
fd = os.open({str(self.mount.path / "parts")!r}, os.O_RDONLY)
first = os.read(fd, 1 << 20)
print("begun", flush=True)
sys.stdin.readline()
while os.read(fd, 1 << 20):
    pass
"""
        half = subprocess.Popen([PYTHON, "-uc", reads], env=self.environment(),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with half:
            self.assertEqual(half.stdout.readline(), "begun\n")
            self.change("parts", new)
            print(file=half.stdin, flush=True)
        self.assertEqual(half.returncode, 0)
        self.assertEqual(self.ask(job, "read", "parts"), digest(new))

    def test_an_open_during_a_fetch_in_parts_sees_the_new_bytes(self):
        old, new = (random.Random(seed).randbytes(3 << 20) for seed in (1, 2))
        self.put("parts", old)
        job = self.start()
        self.assertEqual(self.ask(job, "hold", "parts"), "1")
        self.change("parts", new)
        self.assertEqual(self.ask(job, "read", "parts"), digest(new))


class LargeFile(KeptAttributes):
    def setUp(self):
        super().setUp()
        old, self.new = (random.Random(seed).randbytes(3 << 20) for seed in (1, 2))
        self.put("f", old)
        self.mount_source()
        self.job = self.start(CUBESHIM_MAX_FILE="1M")
        self.assertEqual(self.ask(self.job, "read", "f"), digest(old))

    def test_the_next_open_of_a_file_in_blocks_sees_the_new_bytes(self):
        self.change("f", self.new)
        self.assertEqual(self.ask(self.job, "read", "f"), digest(self.new))

    def test_a_lock_brings_the_new_bytes_to_an_open_file_in_blocks(self):
        self.assertEqual(self.ask(self.job, "hold", "f"), "1")
        self.change("f", self.new)
        self.assertEqual(self.ask(self.job, "lock", "f"), digest(self.new))


class ManyFiles(KeptAttributes):
    latency_us = 200
    changed = range(0, FILES, 7)

    def setUp(self):
        super().setUp()
        for n in range(FILES):
            self.put(f"f{n}", b"old %d" % n)
        self.mount_source()
        self.names = [f"f{n}" for n in range(FILES)]
        self.keeper = self.start()
        for n in range(FILES):
            self.assertEqual(self.ask(self.keeper, "read", f"f{n}"), digest(b"old %d" % n))
        for n in self.changed:
            self.change(f"f{n}", b"new %d" % n)
        self.now = [
            digest((b"new %d" if n in self.changed else b"old %d") % n) for n in range(FILES)
        ]

    def test_stats_gathered_by_threads_prove_no_old_record(self):
        self.assertEqual(self.run_job(*self.names), self.now)

    def check_list(self, engine: str):
        paths = self.scratch / "list"
        paths.write_text("".join(f"{self.mount.path / name}\n" for name in self.names))
        before = self.opens()
        job = self.start(CUBESHIM_PREFETCH_LIST=str(paths), CUBESHIM_IO_ENGINE=engine)
        self.assertEqual(self.ask(job, "exists", "none"), "False")
        until = time.monotonic() + DEADLINE_S
        # Each file is opened and revalidated, without the program's help.
        while self.opens() - before < FILES:
            self.assertLess(time.monotonic(), until, "the list is not fetched")
            time.sleep(0.01)
        self.assertEqual([self.ask(job, "read", name) for name in self.names], self.now)

    def test_list_fetched_ahead_by_threads_proves_no_old_record(self):
        self.check_list("threads")

    def test_list_fetched_ahead_by_io_uring_proves_no_old_record(self):
        self.check_list("uring")


class Names(KeptAttributes):
    def setUp(self):
        super().setUp()
        (self.source / "d").mkdir()
        for n in range(60):
            (self.source / "d" / f"f{n}").touch()
        os.utime(self.source / "d", (OLD, OLD))
        self.mount_source()

    def test_entries_that_another_node_makes_and_removes_are_seen(self):
        report = self.scratch / "report"
        job = self.start(CUBESHIM_STATS=str(report), CUBESHIM_STATS_FORMAT="json")
        for _ in range(2):
            self.assertEqual(self.ask(job, "list", "d").count("'f"), 60)
        self.assertEqual(self.ask(job, "exists", "d/new"), "False")
        os.stat(self.mount.path / "d")
        (self.source / "d" / "new").touch()
        self.assertEqual(
            os.stat(self.mount.path / "d").st_mtime, OLD, "the mount has not kept the attributes")
        self.ask_until(job, "exists", "d/new", "True")
        self.assertEqual(self.ask(job, "list", "d").count("'new'"), 1)
        job.stdin.close()
        job.wait()
        names = json.loads(report.read_text().splitlines()[-1])["metadata"]
        self.assertTrue(names["negative"] and names["listings"], names)


if __name__ == "__main__":
    unittest.main()
