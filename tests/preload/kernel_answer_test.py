"""Memory agrees with each answer of the kernel that a program receives, and metadata is revalidated
after the end of a child that never attached. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's
files."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = os.environ["CUBESHIM_LIBRARY"], os.environ["CUBESHIM_LAGFS"]
PYTHON, OLD, DEADLINE_S = "/usr/bin/python3", (1e9, 1e9), 600
JOB = Path(__file__).with_name("kernel_answer_job.py")
SEEDS = range(20) if os.environ.get("CUBESHIM_TEST_LONG") else range(2)
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")}


class Mounted(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-answer-")))

    def mount(self, name: str) -> tuple[Path, Path]:
        """Makes a tree and a mount of it. The kernel keeps no names of this mount, so it always
        reports the current state."""
        origin = self.scratch / name
        origin.mkdir()
        # Both runs are compared with the kernel's own answer.
        return origin, self.enterContext(
            SlowMount(Path(LAGFS), origin, self.scratch, latency_us=0, keeps_names=False)).path

    def environment(self, prefix: Path, settings: dict) -> dict:
        return CLEAN | {
            "CUBESHIM_PREFIXES": str(prefix), "CUBESHIM_NAME": f"answer-{os.getpid()}",
            "CUBESHIM_RAM": "128M", "CUBESHIM_STATS": "off", "CUBESHIM_ANNOUNCE": "0",
            "LD_PRELOAD": LIBRARY
        } | settings

    def run_job(self, env: dict, *words: str) -> list[str]:
        done = subprocess.run([PYTHON, str(JOB), *words], env=env, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()


class KernelAnswer(Mounted):
    SETTINGS = ({"CUBESHIM_METADATA_TTL": "job"},
                {"CUBESHIM_CONSISTENCY": "ttl:60",
                 "CUBESHIM_METADATA_TTL": "60"}, {"CUBESHIM_CONSISTENCY": "open"})

    def answers(self, name: str, settings: dict, what: str, *words: str) -> list[str]:
        origin, tree = self.mount(name)
        if what == "calls":
            self.run_job(CLEAN, "make", "-", str(origin))
        return self.run_job(
            self.environment(tree, settings) if settings else CLEAN, what, str(tree), str(origin),
            *words)

    def assert_same(self, native: list[str], shim: list[str]):
        differ = [(a, b) for a, b in zip(native, shim) if a != b]
        self.assertEqual(differ, [])
        self.assertEqual(len(native), len(shim))

    def test_memory_agrees_with_each_call_that_reached_the_kernel(self):
        native = self.answers("native", {}, "calls")
        self.assertGreater(len(native), 500)
        for i, settings in enumerate(self.SETTINGS):
            with self.subTest(settings=settings):
                self.assert_same(native, self.answers(f"shim{i}", settings, "calls"))

    def test_memory_agrees_with_calls_in_random_order(self):
        for seed in SEEDS:
            native = self.answers(f"native{seed}", {}, "random", str(seed), "400")
            with self.subTest(seed=seed):
                self.assert_same(
                    native,
                    self.answers(f"shim{seed}", {"CUBESHIM_METADATA_TTL": "job"}, "random",
                                 str(seed), "400"))


class OwnChanges(Mounted):
    """The program makes changes after other processes have changed the same names, so that memory
    is outdated."""
    JOB = """
import os, subprocess, sys
tree, origin = sys.argv[1:]
def others(*words):
    subprocess.run(["/usr/bin/env", "-u", "LD_PRELOAD", *words], check=True, cwd=origin)
def tried(act, *words):
    try:
        return act(*words)
    except OSError as error:
        return type(error).__name__
def read(name):
    return tried(lambda: open(f"{tree}/{name}").read())
def size(name):
    return tried(lambda: os.stat(f"{tree}/{name}").st_size)
for _ in range(2):
    print(os.path.exists(f"{tree}/new"), os.path.exists(f"{tree}/real/new"), read("out/x"),
          read("link"), size("link"), read("gone/x"))
    for name in ("", "out", "next", "real", "gone"):
        os.listdir(f"{tree}/{name}")
others("rm", "-r", "out")
os.rename(f"{tree}/next", f"{tree}/out")
print("renamed", read("out/x"), size("out/x"))
others("mkdir", "new")
os.mkdir(f"{tree}/new/in")
print("made below", os.path.isdir(f"{tree}/new"), os.path.isdir(f"{tree}/new/in"))
others("mkdir", "real/new")
print("by a link", tried(os.mkdir, f"{tree}/way/new"), os.path.isdir(f"{tree}/real/new"))
others("ln", "-sfn", "two", "link")
os.truncate(f"{tree}/link", 1)
print("truncated", read("link"), size("link"))
others("rm", "-r", "gone")
print("made in a removed one", tried(os.mkdir, f"{tree}/gone/new"), read("gone/x"), size("gone/x"))
"""

    def run_in(self, name: str, settings: dict | None) -> str:
        origin, tree = self.mount(name)
        for directory, data in (("out", "old"), ("next", "new bytes"), ("real", "x"),
                                ("gone", "left")):
            (origin / directory).mkdir()
            (origin / directory / "x").write_text(data)
        (origin / "one").write_text("first")
        (origin / "two").write_text("the second")
        (origin / "link").symlink_to("one")
        (origin / "way").symlink_to("real")
        for path in sorted(origin.rglob("*"), reverse=True):
            os.utime(path, OLD, follow_symlinks=False)
        env = CLEAN if settings is None else self.environment(tree, settings)
        done = subprocess.run(
            [PYTHON, "-c", self.JOB, str(tree), str(origin)], env=env, capture_output=True,
            text=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_agree_with_what_the_kernel_shows(self):
        native = self.run_in("native", None)
        for settings in ({}, {"CUBESHIM_METADATA_TTL": "job"}):
            self.assertEqual(native, self.run_in(f"shim{len(settings)}", settings), settings)


class Children(Mounted):
    WAYS = """
import ctypes, os, signal, subprocess, sys, time
tree, origin = sys.argv[1:]
libc = ctypes.CDLL(None)
libc.popen.restype = ctypes.c_void_p
def words(path):
    return ["/usr/bin/env", "-u", "LD_PRELOAD", "/usr/bin/touch", path]
def spawn(path):
    return os.posix_spawn(words(path)[0], words(path), os.environ)
def by_pidfd(path):
    fd = os.pidfd_open(spawn(path))
    os.waitid(os.P_PIDFD, fd, os.WEXITED)
    os.close(fd)
def polled(path):
    child = spawn(path)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
def ignored(path):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        os.waitpid(spawn(path), 0)
    except ChildProcessError:
        pass
    signal.signal(signal.SIGCHLD, before)
ways = {"subprocess": lambda p: subprocess.run(words(p), check=True),
        "system": lambda p: os.system(" ".join(words(p))),
        "pclose": lambda p: libc.pclose(
            ctypes.c_void_p(libc.popen(" ".join(words(p)).encode(), b"r"))),
        "wait": lambda p: spawn(p) and os.wait(), "wait3": lambda p: spawn(p) and os.wait3(0),
        "wait4": lambda p: os.wait4(spawn(p), 0),
        "waitid": lambda p: os.waitid(os.P_PID, spawn(p), os.WEXITED), "pidfd": by_pidfd,
        "polled": polled, "ignored": ignored,
        "wait4 by number": lambda p: libc.syscall(
            61 if os.uname().machine == "x86_64" else 260, spawn(p), None, 0, None)}
for i, (way, make) in enumerate(ways.items()):
    new = f"{tree}/d{i}/new"
    before = os.listdir(f"{tree}/d{i}"), os.path.exists(new)
    make(new)
    print(way, before, os.path.exists(new), sorted(os.listdir(f"{tree}/d{i}")), flush=True)
"""
    COST = """
import json, os, subprocess, sys
tree, what = sys.argv[1:]
def asked():
    counters = json.load(open(f"{tree}/.lagfs/counters.json"))
    return [sum(counters[name]["data_files"] + counters[name]["other"] for name in names)
            for names in (("opendir", "readdir"), ("lookup", "getattr"))]
os.listdir(f"{tree}/d0")
os.path.exists(f"{tree}/d0/none")
open(f"{tree}/d0/f").read()
before = asked()
if what == "attached":
    child = os.fork()
    if child == 0:
        open(f"{tree}/d0/f").read()
        os._exit(0)
    os.waitpid(child, 0)
if what == "clean":
    subprocess.run(["/usr/bin/env", "-u", "LD_PRELOAD", "true"])
found = [os.path.exists(f"{tree}/d0/none{i}") for i in range(9)]
print(any(found), [b - a for a, b in zip(before, asked())])
"""

    def make(self, origin: Path):
        for i in range(12):
            (origin / f"d{i}").mkdir()
            (origin / f"d{i}" / "f").write_text("text")
            os.utime(origin / f"d{i}" / "f", OLD)
            os.utime(origin / f"d{i}", OLD)

    def run_text(self, text: str, env: dict, *words: str) -> str:
        done = subprocess.run([PYTHON, "-c", text, *words], env=env, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_names_that_a_child_without_the_library_has_made_are_seen_after_each_kind_of_wait(self):
        said = []
        for name, is_shim in (("native", False), ("shim", True)):
            origin, tree = self.mount(name)
            self.make(origin)
            env = self.environment(tree, {"CUBESHIM_METADATA_TTL": "job"}) if is_shim else CLEAN
            said.append(self.run_text(self.WAYS, env, str(tree), str(origin)))
        self.assertEqual(said[0].splitlines(), said[1].splitlines())
        self.assertEqual(said[0].count(" True "), 11)

    def test_such_a_child_costs_one_stat_of_a_directory_and_an_attached_one_none(self):
        origin, tree = self.mount("tree")
        self.make(origin)
        env = self.environment(tree, {"CUBESHIM_METADATA_TTL": "job"})
        none = json.loads(self.run_text(self.COST, env, str(tree), "nobody").split(" ", 1)[1])
        attached = json.loads(self.run_text(self.COST, env, str(tree), "attached").split(" ", 1)[1])
        clean = json.loads(self.run_text(self.COST, env, str(tree), "clean").split(" ", 1)[1])
        self.assertEqual(none, [0, 0])
        # The child can rely on everything that its parent has verified.
        self.assertEqual(attached[0], 0)
        self.assertEqual(clean[0], 0)
        self.assertGreater(clean[1], 0)
        # The nine negative entries of the directory cost only one revalidation. The path to the
        # directory has two names and the root of the mount.
        self.assertLessEqual(clean[1], 4)


if __name__ == "__main__":
    unittest.main()
