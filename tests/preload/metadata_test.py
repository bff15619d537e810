"""Memory answers queries for metadata of a mount: listings, negative entries, stats.
CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
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
from tests.preload.stopped import FORKS, FUTEX, GETPPID, Stopped  # noqa: E402

LIBRARY, LAGFS = os.environ["CUBESHIM_LIBRARY"], os.environ["CUBESHIM_LAGFS"]
PYTHON, OLD, DEADLINE_S = "/usr/bin/python3", (1e9, 1e9), 120
SEEDS = range(100, 160) if os.environ.get("CUBESHIM_TEST_LONG") else range(100, 106)
DIRECTORIES, FILES = 20, 50


def environment(prefix: Path, **settings: str) -> dict:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")}
    return clean | {
        "CUBESHIM_PREFIXES": str(prefix), "CUBESHIM_NAME": f"names-{os.getpid()}",
        "CUBESHIM_RAM": "128M", "CUBESHIM_STATS": "off", "CUBESHIM_ANNOUNCE": "0",
        "LD_PRELOAD": LIBRARY
    } | settings


class Names(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-names-")))
        self.tree = self.scratch / "tree"
        self.tree.mkdir()

    def make_tree(self, root: Path):
        for d in range(DIRECTORIES):
            (root / f"d{d}").mkdir()
            for f in range(FILES):
                (root / f"d{d}" / f"f{f}").write_bytes(b"x" * f)
                os.utime(root / f"d{d}" / f"f{f}", OLD)
        self.age(root)

    def age(self, root: Path):
        """Makes directories old, because the listing of a directory that was just changed is not
        kept."""
        for top, _, _ in os.walk(root):
            os.utime(top, OLD)

    def run_job(self, text: str, *words: str, prefix: Path | None = None, **settings: str) -> str:
        env = environment(prefix or self.tree, **settings)
        done = subprocess.run([PYTHON, "-c", text, *words], env=env, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def start_job(self, text: str, *words: str, by: tuple[str, ...] = (),
                  **settings: str) -> subprocess.Popen:
        job = subprocess.Popen([*by, PYTHON, "-uc", text, *words],
                               env=environment(self.tree, **settings), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.stdin.close)
        return job

    def ask(self, job: subprocess.Popen, line: str = "") -> str:
        print(line, file=job.stdin, flush=True)
        return job.stdout.readline().rstrip("\n")


class Sequences(Names):
    def test_changes_by_any_process_and_path_are_seen_immediately(self):
        alias = self.scratch / "alias"
        alias.symlink_to(self.tree)
        answered = 0
        for seed in SEEDS:
            said = []
            for settings in ({},
                             environment(self.tree, CUBESHIM_STATS=str(self.scratch / "report"),
                                         CUBESHIM_STATS_FORMAT="json")):
                subprocess.run(["rm", "-rf", self.tree], check=True)
                self.tree.mkdir()
                words = [
                    PYTHON,
                    str(Path(__file__).with_name("metadata_job.py")),
                    str(self.tree),
                    str(alias),
                    str(seed), "300"
                ]
                clean = {
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith("CUBESHIM_")
                }
                said.append(
                    subprocess.run(words, env=clean | settings, capture_output=True, text=True,
                                   timeout=DEADLINE_S))
            with self.subTest(seed=seed):
                self.assertEqual(said[0].stdout.splitlines(), said[1].stdout.splitlines())
                self.assertEqual((said[0].returncode, said[0].stderr), (0, ""))
                self.assertEqual((said[1].returncode, said[1].stderr), (0, ""))
            names = json.loads((self.scratch / "report").read_text().splitlines()[-1])["metadata"]
            answered += names["listings"] and names["stats"] and names["negative"]
        self.assertGreater(answered, 0, "the sequences never asked what memory knows")


class Operations(Names):
    JOB = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
root, what = sys.argv[1:]
def walk():
    return sum(len(files) for _, _, files in os.walk(root))
def sizes():
    return sum(os.path.getsize(f"{root}/d{d}/f{f}") for d in range(20) for f in range(50))
def absent():
    return sum(os.path.exists(f"{root}/d{d}/none{f}") for d in range(20) for f in range(50))
def refused():
    found = 0
    for d in range(20):
        for f in range(50):
            try:
                open(f"{root}/d{d}/none{f}")
                found += 1
            except FileNotFoundError:
                pass
    return found
def links():
    return [f"{root}/models/snapshots/{c}/file{f}" for c in range(3) for f in range(50)]
def followed():
    return sum(os.stat(link).st_size for link in links())
def read():
    return sum(len(os.readlink(link)) for link in links())
def real():
    return len({os.path.realpath(link) for link in links()})
def by_libc():
    return len({libc_realpath(link) for link in links()})
def scanned():
    return sum(entry.stat().st_size + entry.is_file() for c in range(3)
               for entry in os.scandir(f"{root}/models/snapshots/{c}"))
def listed_by_libc():
    entries = ctypes.c_void_p()
    return sum(libc.scandir(f"{root}/d{d}".encode(), ctypes.byref(entries), None, libc.alphasort)
               for d in range(20))
def globbed_by_libc():
    found = (ctypes.c_size_t * 16)()
    return libc.glob(f"{root}/d*/f[1-3]*".encode(), 0, None, found) or found[0]
def libc_realpath(path):
    room = ctypes.create_string_buffer(4096)
    libc.realpath.restype = ctypes.c_char_p
    return libc.realpath(path.encode(), room)
calls = {call.__name__: call for call in (walk, sizes, absent, refused, followed, read, real,
                                          by_libc, scanned, listed_by_libc,
                                            globbed_by_libc)}
for line in sys.stdin:
    print(calls[what](), flush=True)
"""

    def make_models(self, root: Path):
        """Makes files in the layout of huggingface_hub: all files of a version are links to
        blobs."""
        (root / "models" / "blobs").mkdir(parents=True)
        for f in range(50):
            (root / "models" / "blobs" / f"blob{f}").write_bytes(b"x" * f)
            os.utime(root / "models" / "blobs" / f"blob{f}", OLD)
        for c in range(3):
            (root / "models" / "snapshots" / str(c)).mkdir(parents=True)
            for f in range(50):
                (root / "models" / "snapshots" / str(c) /
                 f"file{f}").symlink_to(f"../../blobs/blob{f}")
        self.age(root)

    def asked(self) -> int:
        counters = json.loads((self.mount.path / ".lagfs" / "counters.json").read_text())
        return sum(counters[name]["data_files"] + counters[name]["other"]
                   for name in ("lookup", "getattr", "opendir", "readdir", "readlink"))

    def passes_of(self, what: str) -> list[int]:
        job = subprocess.Popen(
            [PYTHON, "-c", self.JOB, str(self.mount.path), what],
            env=environment(self.mount.path, CUBESHIM_METADATA_TTL="job"), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        passes = []
        with job:
            said = set()
            # The first passes can end before the last stats are gathered. The counts include the
            # test's own read of the counters.
            while len(passes) < 2 or (passes[-1] > 0 and len(passes) < 30):
                before = self.asked()
                said.add(self.ask(job))
                passes.append(self.asked() - before)
        self.assertEqual(len(said), 1)
        return passes

    def test_a_second_pass_asks_the_origin_for_nothing(self):
        source = self.scratch / "source"
        source.mkdir()
        self.make_tree(source)
        self.make_models(source)
        self.mount = self.enterContext(SlowMount(Path(LAGFS), source, self.scratch, 100))
        for what in ("walk", "absent", "refused", "sizes", "followed", "read", "real", "by_libc",
                     "scanned", "listed_by_libc", "globbed_by_libc"):
            with self.subTest(what=what):
                passes = self.passes_of(what)
                self.assertGreater(passes[0], 10)
                self.assertEqual(passes[-1], 0, passes)
        with self.subTest("a name that is not listed"):
            said = self.run_job(
                "import os, sys; os.listdir(sys.argv[1]); print(os.path.exists(sys.argv[1] + "
                "'/.lagfs/counters.json'))",
                str(self.mount.path), prefix=self.mount.path)
            self.assertEqual(said, "True\n")


class Absent(Names):
    JOB = """
import ctypes, os, sys, threading
libc, root = ctypes.CDLL(None), sys.argv[1]
os.listdir(root + "/d0")
names = [f"{root}/d0/absent{i}".encode() for i in range(300)]
print(threading.get_native_id())
sys.stdin.readline()
for name in names:
    libc.open(name, 0)
libc.getppid()
"""

    def test_open_of_a_known_absent_name_wakes_no_thread(self):
        self.make_tree(self.tree)
        job = self.start_job(self.JOB, str(self.tree), CUBESHIM_METADATA_TTL="job")
        opener = Stopped(int(job.stdout.readline()))
        self.addCleanup(opener.go_on)
        print(file=job.stdin, flush=True)
        self.assertEqual(opener.run_to_any(FUTEX, *FORKS, GETPPID), GETPPID)


class Disk(Names):
    JOB = """
import os, sys
for top, _, names in os.walk(sys.argv[1]):
    print(os.path.basename(top), *sorted(names), os.path.exists(os.path.join(top, "none")))
"""

    def counted(self) -> dict:
        counters = json.loads((self.mount.path / ".lagfs" / "counters.json").read_text())
        return {
            name: counters[name]["data_files"] + counters[name]["other"]
            for name in ("opendir", "lookup", "getattr")
        }

    def look(self) -> tuple[str, int, dict]:
        """Runs a job with its own region. Returns its output, how many directories it opened at the
        origin, and its report."""
        before = self.counted()
        report = self.scratch / "report"
        said = self.run_job(self.JOB, str(self.mount.path), prefix=self.mount.path,
                            CUBESHIM_DISK_DIR=str(self.scratch / "disk"),
                            CUBESHIM_STATS=str(report), CUBESHIM_STATS_FORMAT="json")
        return said, self.counted()["opendir"] - before["opendir"], json.loads(
            report.read_text().splitlines()[-1])["metadata"]

    def look_until(self, is_enough) -> tuple[str, int, dict]:
        """Runs jobs until one is good enough: on a busy machine, a job can end before its listings
        are on the disk."""
        for _ in range(50):
            found = self.look()
            if is_enough(found):
                return found
        self.fail(str(found))

    def test_the_next_job_takes_listings_from_the_disk_after_a_stat_of_each_directory(self):
        source = self.scratch / "source"
        source.mkdir()
        (self.scratch / "disk").mkdir()
        self.make_tree(source)
        self.mount = self.enterContext(SlowMount(Path(LAGFS), source, self.scratch, 100))
        said, opened, names = self.look()
        self.assertEqual((opened, names["stored"]), (DIRECTORIES + 1, 0))
        # The first directory that a process reads shows whether the mount's times can be trusted.
        again, opened, names = self.look_until(lambda found: found[1] <= 1)
        self.assertEqual((again, names["stored"], names["read"]), (said, DIRECTORIES, 1))
        # Another process changes a directory, so the disk's listing of it is outdated.
        (self.mount.path / "d3/new").touch()
        os.utime(self.mount.path / "d3", (OLD[0] + 1, OLD[1] + 1))
        changed, opened, names = self.look()
        self.assertEqual((opened, names["stored"]), (2, DIRECTORIES - 1))
        self.assertEqual(changed, self.with_new(said))

    @staticmethod
    def with_new(said: str) -> str:
        """Returns the output of the job when d3 has a file named new."""
        lines = [line.split() for line in said.splitlines()]
        for words in lines:
            if words[0] == "d3":
                words[1:-1] = sorted(words[1:-1] + ["new"])
        return "".join(" ".join(words) + "\n" for words in lines)


class Ahead(Names):
    def opened(self) -> int:
        counters = json.loads((self.mount.path / ".lagfs" / "counters.json").read_text())["opendir"]
        return counters["data_files"] + counters["other"]

    def test_a_walk_finds_directories_in_memory_that_were_listed_before_it_came(self):
        source = self.scratch / "source"
        source.mkdir()
        for number in range(60):
            (source / f"d{number}/below").mkdir(parents=True)
        self.age(source)
        self.mount = self.enterContext(SlowMount(Path(LAGFS), source, self.scratch, 300))
        report = self.scratch / "report"
        for _ in range(50):
            before = self.opened()
            said = self.run_job("import os, sys; print(sum(1 for _ in os.walk(sys.argv[1])))",
                                str(self.mount.path), prefix=self.mount.path,
                                CUBESHIM_STATS=str(report), CUBESHIM_STATS_FORMAT="json")
            self.assertEqual(said, "121\n")
            names = json.loads(report.read_text().splitlines()[-1])["metadata"]
            # Each directory is read once, by one of the processes.
            self.assertEqual((self.opened() - before, names["read"]), (121, 121))
            if names["listings"] > 0:
                return
        self.fail("none was listed ahead of the walk")


class Room(Names):
    def test_a_directory_that_has_no_room_is_left_to_the_kernel(self):
        for number in range(3000):
            (self.tree / f"name{number:04}").touch()
        self.age(self.tree)
        report = self.scratch / "report"
        # The second job has room for a few kilobytes of listings, the third job for less than any
        # listing needs.
        for room, most in (("1M", 1), ("32K", 1), ("1", 0)):
            with self.subTest(room=room):
                said = self.run_job(
                    "import os, sys\nfor _ in range(10): print(len(os.listdir(sys.argv[1])))",
                    str(self.tree), CUBESHIM_METADATA_RAM=room, CUBESHIM_STATS=str(report),
                    CUBESHIM_STATS_FORMAT="json")
                self.assertEqual(set(said.split()), {"3000"})
                names = json.loads(report.read_text().splitlines()[-1])["metadata"]
                # The threads can also have read the directory.
                self.assertLessEqual(names["read"], 2 * most)

    def test_a_stream_that_is_closed_leaks_nothing(self):
        self.make_tree(self.tree)
        report, passes = self.scratch / "report", 70_000  # more fds than a process may have open
        text = f"""
import os, resource, sys
os.listdir(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range({passes}):
    os.listdir(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        grown_kib = int(
            self.run_job(text, str(self.tree / "d0"), CUBESHIM_METADATA_TTL="job",
                         CUBESHIM_STATS=str(report), CUBESHIM_STATS_FORMAT="json"))
        self.assertLess(grown_kib, 20_000)
        self.assertGreaterEqual(
            json.loads(report.read_text().splitlines()[-1])["metadata"]["listings"], passes - 1)


    def test_a_stream_without_a_free_fd_leaks_nothing(self):
        self.make_tree(self.tree)
        text = """
import os, resource, sys
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
os.listdir(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0) + 1,) * 2)
refused = 0
for i in range(10_000):
    if i == 1000:
        before = peak()
    try:
        os.listdir(sys.argv[1])
    except OSError as error:
        refused += error.errno == 24
print(refused, peak() - before)
"""
        refused, grown_kib = self.run_job(text, str(self.tree / "d0"),
                                          CUBESHIM_METADATA_TTL="job").split()
        self.assertEqual(int(refused), 10_000)
        self.assertLess(int(grown_kib), 20_000)


class Others(Names):
    def test_a_file_that_others_make_is_seen_within_a_second_or_so(self):
        job_text = """
import os, sys, time
directory = sys.argv[1]
os.listdir(directory), os.path.exists(directory + "/flag")
print("ready", flush=True)
while not os.path.exists(directory + "/flag"):
    time.sleep(0.01)
print(time.time(), flush=True)
"""
        for number, settings in enumerate(
            ({}, {"CUBESHIM_METADATA_TTL": "3600"}, {"CUBESHIM_CONSISTENCY": "open"},
             {"CUBESHIM_CONSISTENCY": "ttl:60"})):
            with self.subTest(**settings):
                directory = self.tree / f"barrier{number}"
                directory.mkdir()
                (directory / "other").touch()
                self.age(self.tree)
                job = self.start_job(job_text, str(directory), **settings)
                self.assertEqual(job.stdout.readline(), "ready\n")
                made = time.time()
                (directory / "flag").touch()
                self.assertLess(float(job.stdout.readline()) - made, 5)

    def test_entries_of_a_directory_are_never_older_than_a_second(self):
        self.make_tree(self.tree)
        job = self.start_job(
            "import os, sys\nfor line in sys.stdin: print(sorted(os.listdir(sys.argv[1])), "
            "os.path.exists(sys.argv[1] + '/new'))",
            str(self.tree / "d0"))
        before = sorted(f"f{f}" for f in range(FILES))
        self.assertEqual(self.ask(job), f"{before} False")
        (self.tree / "d0" / "new").touch()
        after = f"{sorted(before + ['new'])} True"
        until = time.monotonic() + DEADLINE_S
        while (said := self.ask(job)) != after and time.monotonic() < until:
            pass
        self.assertEqual(said, after)

    # Within this time, memory answers as it did before.
    LONG = {"CUBESHIM_METADATA_TTL": "3600"}

    def test_a_working_directory_that_others_have_renamed_is_searched(self):
        self.make_tree(self.tree)
        job = self.start_job(
            """
import os, sys
os.listdir(sys.argv[1])
os.chdir(sys.argv[1] + "/d0")
for line in sys.stdin:
    print(os.path.exists("f1"), os.path.exists("none"))
""", str(self.tree), **self.LONG)
        self.assertEqual(self.ask(job), "True False")
        (self.tree / "d0").rename(self.tree / "renamed")
        self.assertEqual(self.ask(job), "True False")

    def test_a_directory_that_others_have_made_is_seen_once_mkdir_has_failed(self):
        self.make_tree(self.tree)
        (self.scratch / "alias").symlink_to(self.tree)
        job = self.start_job(
            """
import os, sys
os.listdir(sys.argv[1])
print(os.path.exists(sys.argv[1] + "/new"), flush=True)
sys.stdin.readline()
try:
    os.mkdir(sys.argv[2] + "/new/")
except FileExistsError:
    print(os.path.exists(sys.argv[1] + "/new"))
""", str(self.tree), str(self.scratch / "alias"), **self.LONG)
        self.assertEqual(job.stdout.readline(), "False\n")
        (self.tree / "new").mkdir()
        self.assertEqual(self.ask(job), "True")

    def test_a_file_that_others_have_removed_is_absent_once_its_open_has_failed(self):
        self.make_tree(self.tree)
        job = self.start_job(
            """
import os, sys
for turn in range(2):
    for name in os.listdir(sys.argv[1]):
        size = os.stat(sys.argv[1] + "/" + name).st_size
print("ready", flush=True)
for line in sys.stdin:
    path = sys.argv[1] + "/f1"
    try:
        open(path)
    except FileNotFoundError:
        print(os.path.exists(path), "f1" in os.listdir(sys.argv[1]))
""", str(self.tree / "d0"), **self.LONG)
        self.assertEqual(job.stdout.readline(), "ready\n")
        (self.tree / "d0" / "f1").unlink()
        self.assertEqual(self.ask(job), "False False")

    def test_a_directory_that_others_have_made_is_seen_once_it_was_listed(self):
        self.make_tree(self.tree)
        job = self.start_job(
            """
import ctypes, os, sys
libc, entries = ctypes.CDLL(None), ctypes.c_void_p()
os.listdir(sys.argv[1])
for name in sys.stdin:
    path = f"{sys.argv[1]}/{name.strip()}"
    print(os.path.exists(path), flush=True)
    sys.stdin.readline()
    if name == "scandir\\n":
        count = libc.scandir(path.encode(), ctypes.byref(entries), None, None) - 2
    else:
        count = len(os.listdir(path))
    print(count, os.path.isdir(path), os.path.exists(f"{path}/inner"), flush=True)
""", str(self.tree), **self.LONG)
        for name in ("opendir", "scandir"):
            with self.subTest(name):
                self.assertEqual(self.ask(job, name), "False")
                (self.tree / name).mkdir()
                (self.tree / name / "inner").touch()
                self.assertEqual(self.ask(job), "1 True True")

    def test_a_statx_that_asks_the_server_is_answered_by_it(self):
        self.make_tree(self.tree)
        job = self.start_job(
            """
import ctypes, os, sys
AT_FDCWD, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS = -100, 0x2000, 0x7ff
libc, room = ctypes.CDLL(None), ctypes.create_string_buffer(256)
def modified(flags):
    assert libc.statx(AT_FDCWD, sys.argv[1].encode(), flags, STATX_BASIC_STATS, room) == 0
    return int.from_bytes(room[112:120], "little")
os.listdir(sys.argv[1])
for line in sys.stdin:
    print(modified(0), modified(AT_STATX_FORCE_SYNC))
""", str(self.tree / "d0"), **self.LONG)
        old, new = int(OLD[1]), int(OLD[1]) + 1
        self.assertEqual(self.ask(job), f"{old} {old}")
        os.utime(self.tree / "d0", (new, new))
        self.assertEqual(self.ask(job), f"{old} {new}")

    def test_a_stream_of_a_directory_that_was_replaced_leaves_no_fd_open(self):
        self.make_tree(self.tree)
        job = self.start_job(
            """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
before = len(os.listdir("/proc/self/fd"))
stream = ctypes.c_void_p(libc.opendir(sys.argv[1].encode()))
print("open", flush=True)
sys.stdin.readline()
inode = os.fstat(libc.dirfd(stream)).st_ino
assert libc.closedir(stream) == 0
print(inode, len(os.listdir("/proc/self/fd")) - before)
""", str(self.tree / "d0"), **self.LONG)
        self.assertEqual(job.stdout.readline(), "open\n")
        inode = (self.tree / "d0").stat().st_ino
        (self.tree / "d0").rename(self.tree / "former")
        (self.tree / "d0").mkdir()
        self.assertEqual(self.ask(job), f"{inode} 0")

    def test_a_process_without_the_right_to_list_is_refused(self):
        (self.tree / "closed").mkdir()
        (self.tree / "closed" / "inside").touch()
        os.chown(self.tree / "closed", 12345, 12345)
        os.chmod(self.tree / "closed", 0o700)
        self.age(self.tree)
        text = """
import os, sys
closed = sys.argv[1] + "/closed"
for look in (os.listdir, lambda d: os.stat(d + "/inside").st_size, lambda d: os.stat(d + "/none")):
    try:
        print(look(closed))
    except OSError as error:
        print(error.errno)
"""
        holder = self.start_job(
            "import os, sys; print(os.listdir(sys.argv[1] + '/closed'), flush=True); "
            "sys.stdin.read()",
            str(self.tree))
        self.assertEqual(holder.stdout.readline(), "['inside']\n")
        self.assertEqual(self.run_job(text, str(self.tree)), "['inside']\n0\n2\n")
        words = [
            "capsh", "--drop=cap_dac_override,cap_dac_read_search", "--", "-c",
            'exec "$0" -c "$1" "$2"', PYTHON, text,
            str(self.tree)
        ]
        done = subprocess.run(words, env=environment(self.tree), capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.stdout, "13\n13\n13\n", done.stderr)

    def test_a_directory_that_root_gives_away_is_closed_to_root_without_capabilities(self):
        given = self.tree / "given"
        given.mkdir()
        (given / "inside").write_text("text")
        given.chmod(0o500)
        self.age(self.tree)
        reader = self.start_job(
            """
import sys
for _ in range(2):
    try:
        print(open(sys.argv[1]).read(), flush=True)
    except OSError as error:
        print(error.errno, flush=True)
    sys.stdin.readline()
""", str(given / "inside"), by=("setpriv", "--bounding-set", "-dac_override,-dac_read_search"),
            **self.LONG)
        self.assertEqual(reader.stdout.readline(), "text\n")
        self.run_job("import os, sys; os.chown(sys.argv[1], 12345, 12345)", str(given))
        self.assertEqual(self.ask(reader), "13")

    def test_a_directory_that_is_replaced_shows_the_new_one(self):
        self.make_tree(self.tree)
        job = self.start_job(
            "import os, sys\nfor line in sys.stdin: print(len(os.listdir(sys.argv[1])), "
            "os.path.exists(sys.argv[1] + '/f1'))",
            str(self.tree / "d0"))
        self.assertEqual(self.ask(job), f"{FILES} True")
        other = self.tree / "other"
        other.mkdir()
        (other / "one").touch()
        os.utime(other, OLD)
        (self.tree / "d0").rename(self.tree / "former")
        other.rename(self.tree / "d0")
        until = time.monotonic() + DEADLINE_S
        while (said := self.ask(job)) != "1 False" and time.monotonic() < until:
            pass
        self.assertEqual(said, "1 False")


if __name__ == "__main__":
    unittest.main()
