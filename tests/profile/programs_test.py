"""Programs under `cubeshim profile`: each pattern is named, with the function that makes it;
threads, forks, signals and execs. CUBESHIM_COMMAND, CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the
build's files."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

COMMAND, LIBRARY, LAGFS = (
    os.environ[name] for name in ("CUBESHIM_COMMAND", "CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
FILES = 6


def make_files(where: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (300, 300, 3), dtype=np.uint8)
    for i in range(FILES):
        Image.fromarray(noise).save(where / f"{i}.jpg", quality=90)
        np.save(where / f"{i}.npy", noise)
        np.savez(where / f"{i}.npz", noise, noise[:10], noise[:20])
        with h5py.File(where / f"{i}.h5", "w") as f:
            f.create_dataset("images", data=noise, chunks=(10, 300, 3), compression="gzip")
        (where / f"{i}.txt").write_bytes(b"12345678" * 200)
    (where / "large.bin").write_bytes(bytes(20 << 20))
    (where / "sub").mkdir()


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = Path(
            cls.enterClassContext(tempfile.TemporaryDirectory(prefix="cubeshim-profile-")))
        (scratch / "source").mkdir()
        make_files(scratch / "source")
        cls.mount = cls.enterClassContext(SlowMount(Path(LAGFS), scratch / "source", scratch, 300))

    def setUp(self):
        self.out = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-profile-out-")))
        self.name = f"profile-{os.getpid()}-{self.id().rsplit('.', 1)[-1]}"[:64]
        self.addCleanup(
            lambda: Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}").unlink(missing_ok=True))

    def profile(self, program: str, *options: str) -> dict:
        script = self.out / "train.py"
        script.write_text(f"import os, sys\ndata = {str(self.mount.path)!r}\n" + program)
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("CUBESHIM_") and k != "LD_PRELOAD"
        }
        command = [
            COMMAND, "profile", "-p",
            str(self.mount.path), "--name", self.name, "--ram", "64M", "--stats", "off",
            "--library", LIBRARY, "--out",
            str(self.out), *options, "--", "/usr/bin/python3",
            str(script)
        ]
        done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(done.stderr, "")
        self.text = done.stdout
        return json.loads((self.out / "profile.json").read_text())

    def assert_pattern(self, found: dict, name: str, function: str) -> None:
        there = [(p["name"], p["site"]) for p in found["patterns"]]
        self.assertTrue([
            1 for pattern, site in there if pattern == name and site.split(" (")[0] == function
            or pattern == name and f" {function} (" in site
        ], f"{name} in {function}: {there}")
        self.assertIn(name + ":", self.text)

    def check_loaders(self, *options: str) -> dict:
        found = self.profile(
            """
import cv2, h5py, numpy as np
from PIL import Image
def read_cv2(i): return cv2.imread(f"{data}/{i}.jpg")
def read_pil(i): return Image.open(f"{data}/{i}.jpg").tobytes()
def read_np(i): return np.load(f"{data}/{i}.npy")
def read_zip(i):
    with np.load(f"{data}/{i}.npz") as z: return [z[name].sum() for name in z]
def read_h5(i):
    with h5py.File(f"{data}/{i}.h5", "r") as f: return f["images"][::50].sum()
def read_bytes(i):
    with open(f"{data}/{i}.txt", "rb", buffering=0) as f:
        while f.read(8): pass
def read_twice(i):
    for _ in range(2): open(f"{data}/{i}.txt", "rb").read()
def look_first(i):
    os.path.getsize(f"{data}/{i}.npy")
    return open(f"{data}/{i}.npy", "rb").read(1000)
def forget(i): open(f"{data}/{i}.txt").close()
def seek_about(i):
    with open(f"{data}/{i}.npy", "rb", buffering=0) as f:
        for at in range(0, 90000, 9000): f.seek(at), f.read(600)
def read_at_random():
    with open(f"{data}/large.bin", "rb", buffering=0) as f:
        for at in range(30): f.seek((at * 7919 % 19) << 20), f.read(4096)
def lock(i):
    import fcntl
    with open(f"{data}/{i}.txt", "rb") as f: fcntl.flock(f, fcntl.LOCK_SH)
def list_again():
    for _ in range(4): os.listdir(data)
for f in (read_cv2, read_pil, read_np, read_zip, read_h5, read_bytes, read_twice, look_first,
          forget, seek_about, lock):
    for i in range(6): f(i)
read_at_random()
list_again()
""", *options)
        for name, *functions in [("tiny reads", "read_bytes", "read_np"),
                                 ("whole file read twice", "read_twice"),
                                 ("file opened again", "read_cv2"),
                                 ("stat before open", "look_first"),
                                 ("files opened and not read", "forget"),
                                 ("seek storm", "seek_about", "read_zip", "read_h5"),
                                 ("locks that materialize files", "lock", "read_h5"),
                                 ("large file read at random", "read_at_random"),
                                 ("tree listed again", "list_again")]:
            for function in functions:
                self.assert_pattern(found, name, function)
        by_function = {}
        for site in found["sites"]:
            for frame in site["frames"]:
                if frame["file"].endswith("train.py"):
                    by_function.setdefault(frame["function"], []).append(site)
        jpg = (self.mount.path / "0.jpg").stat().st_size
        for function in ("read_cv2", "read_pil"):
            read = sum(site["bytes"] for site in by_function[function] if site["kind"] == "read")
            self.assertGreaterEqual(read, FILES * jpg, function)
        npy = (self.mount.path / "0.npy").stat().st_size
        self.assertGreaterEqual(sum(site["bytes"] for site in by_function["read_np"]), FILES * npy)
        # cv2.imread first reads only the head of a file.
        self.assertEqual([
            p["name"]
            for p in found["patterns"]
            if p["name"].startswith("whole") and "read_cv2" in p["site"]
        ], [])
        self.assertEqual({p["example"] for p in found["patterns"] if p["name"].startswith("large")},
                         {f"{self.mount.path}/large.bin"})
        self.assertTrue([
            1 for site in by_function["read_cv2"]
            for frame in site["frames"] if frame["function"] == "cv::imread"
        ], "native frames")
        self.assertEqual(found["dropped"]["native"], 0)
        folded = (self.out / "stacks.folded").read_text()
        self.assertRegex(folded, r"(?m)^<module> \(.*;read_cv2 \(.*;open \d+$")
        return found

    def test_loaders_that_are_watched_alone(self):
        found = self.check_loaders("--observe")
        self.assertTrue(found["observed"])
        self.assertFalse(Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}").exists())
        total = found["total"]
        self.assertGreater(total["origin_calls"], total["calls"] * 0.9, "nothing is served")

    def test_loaders_that_are_served(self):
        total = self.check_loaders()["total"]
        self.assertLess(total["origin_calls"], total["calls"] * 0.5,
                        "most calls are answered from memory")

    def test_time_line_of_a_serial_reader(self):
        found = self.profile(
            """
def epoch():
    for i in range(6):
        for suffix in ("txt", "npy", "jpg"):
            for _ in range(10): open(f"{data}/{i}.{suffix}", "rb", 0).read(100)
epoch()
""", "--observe")
        self.assert_pattern(found, "serial first epoch", "epoch")
        in_flight = found["in_flight"]
        busy = sum(one["busy"] for one in in_flight["bins"])
        self.assertEqual(sum(one["calls"] for one in in_flight["bins"]),
                         found["total"]["origin_calls"])
        self.assertLess(abs(busy - found["total"]["origin_time"]),
                        found["total"]["origin_time"] * 0.01 + 1000)
        self.assertGreaterEqual(sum(found["latency"]["open"]), 180)

    def test_cost_of_the_profiler_is_reported(self):
        program = ("for i in range(640): open(data + '/0.txt', 'rb', 0).read()\n"
                   "if os.fork() == 0: os._exit(open(data + '/1.txt', 'rb', 0).read(1) != b'1')\n")
        program += "assert os.wait()[1] == 0\n"
        each, seldom = self.profile(program, "--every", "1"), self.profile(program, "--every", "64")
        self.assertIn(seldom["cost"]["text"], self.text)
        for found in (each, seldom):
            cost = found["cost"]
            self.assertEqual(found["processes"], 2)
            self.assertEqual(cost["time"],
                             cost["stack_time"] + cost["call_time"] + cost["start_time"])
            self.assertLess(cost["time"], found["wall"])
            self.assertGreater(cost["start_time"], 0)
        self.assertEqual(each["cost"]["stacks"], each["total"]["calls"])
        self.assertGreater(each["cost"]["stack_time"], each["total"]["calls"] * 100)
        self.assertLess(seldom["cost"]["stacks"], seldom["total"]["calls"] / 16)
        self.assertGreater(seldom["cost"]["call_time"], seldom["total"]["calls"] * 20)
        self.assertRegex(self.text, r"the profiler took \S+ \S+, [\d.]+ % of it: ")

    def test_reader_with_many_threads_is_not_serial(self):
        found = self.profile(
            """
import threading
def read(i):
    for _ in range(30): open(f"{data}/{i % 6}.txt", "rb", 0).read(100)
threads = [threading.Thread(target=read, args=(i,)) for i in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
""", "--observe")
        self.assertGreater(found["total"]["origin_time"], 16 * 30 * 300_000)
        self.assertNotIn("serial first epoch", [p["name"] for p in found["patterns"]])

    def test_threads_and_forked_workers(self):
        found = self.profile("""
import threading
def read(i):
    for _ in range(50): open(f"{data}/{i}.txt", "rb").read()
threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
[t.start() for t in threads]
children = []
for i in range(3):
    child = os.fork()
    if child == 0:
        read(i)
        os._exit(0)
    children.append(child)
[t.join() for t in threads]
for child in children:
    assert os.waitpid(child, 0)[1] == 0
""")
        opens = sum(site["calls"]
                    for site in found["sites"]
                    if site["kind"] == "open" and site["frames"][-1]["line"] and any(
                        frame["function"] == "read" for frame in site["frames"]))
        self.assertEqual(opens, 7 * 50)
        self.assertEqual(found["processes"], 4)
        self.assertEqual(len(list(self.out.glob("raw.*"))), 4)

    def opens_by_function(self, found: dict) -> dict:
        opens = {}
        for site in found["sites"]:
            if site["kind"] == "open":
                for function in {frame["function"] for frame in site["frames"]}:
                    opens[function] = opens.get(function, 0) + site["calls"]
        return opens

    def test_many_functions_are_distinguished_though_few_stacks_are_walked(self):
        opens = self.opens_by_function(
            self.profile(
                """
for i in range(600):
    exec(f"def f{i}(): open(data + '/0.txt', 'rb', 0)")
    for _ in range(2): eval(f"f{i}")()
""", "--every", "256"))
        self.assertEqual({f"f{i}": opens.get(f"f{i}") for i in range(600)},
                         {f"f{i}": 2 for i in range(600)})

    def test_a_function_in_the_place_of_one_that_was_freed(self):
        opens = self.opens_by_function(
            self.profile("""
places, names = set(), []
def call_once(i):
    exec(f"def f{i}(): open(data + '/0.txt', 'rb', 0)", globals())
    function = globals().pop(f"f{i}")
    place = id(function.__code__)
    is_again = place in places
    places.add(place)
    # The profiler distinguishes them by the place of their names, too.
    names.append(function.__code__.co_qualname)
    function()
    return is_again
assert any([call_once(i) for i in range(50)])
"""))
        self.assertEqual({f"f{i}": opens.get(f"f{i}") for i in range(50)},
                         {f"f{i}": 1 for i in range(50)})

    def test_program_that_becomes_another(self):
        found = self.profile(
            "open(data + '/0.txt').read()\nos.execv('/bin/cat', ['cat', data + '/1.txt'])\n")
        self.assertEqual(found["processes"], 2)
        self.assertEqual(len(list(self.out.glob("raw.*"))), 1)
        self.assertTrue([
            1 for site in found["sites"]
            if site["kind"] == "open" and not any(f["line"] for f in site["frames"])
        ], "cat's open")

    def test_handlers_that_read_while_a_call_is_under_way(self):
        found = self.profile("""
import signal
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(open(f"{data}/1.txt", "rb").read()))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
def main_loop():
    want = open(f"{data}/2.txt", "rb").read()
    while len(seen) < 50:
        assert open(f"{data}/2.txt", "rb").read() == want
main_loop()
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(set(seen)) == 1
""")
        functions = {frame["function"] for site in found["sites"] for frame in site["frames"]}
        self.assertIn("<lambda>", functions)
        self.assertIn("main_loop", functions)

    def test_process_id_is_appended_and_every_is_obeyed(self):
        raw = self.out / "profile"
        env = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        env |= {
            "CUBESHIM_PROFILE": str(raw), "CUBESHIM_PROFILE_EVERY": "7", "CUBESHIM_OBSERVE": "1",
            "CUBESHIM_PREFIXES": str(self.mount.path), "LD_PRELOAD": LIBRARY
        }
        code = f"for i in range(70): open({str(self.mount.path)!r} + '/0.txt').read()"
        subprocess.run(["/usr/bin/python3", "-c", code], env=env, check=True)
        (made,) = self.out.glob("profile.*")
        lines = made.read_text().splitlines()
        self.assertEqual(lines[0].split("\t")[6], "7")
        opens = [
            line.split("\t")
            for line in lines
            if line.startswith("site\t") and line.split("\t")[2] == "open"
        ]
        self.assertEqual(sum(int(fields[6].split(",")[0]) for fields in opens), 70)
        done = subprocess.run(
            [COMMAND, "profile", "--read", str(made)], capture_output=True, text=True, cwd=self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("70 open", done.stdout)
        self.assertFalse((self.out / "cubeshim-profile").exists())

    def test_files_of_others_in_the_directory_stay(self):
        (self.out / "raw.csv").write_text("precious")
        (self.out / "raw.1").write_text("cubeshim-profile\t1\t1\t1\t1\t2\t1\t0\nend\n")
        (self.out / "raw.directory").mkdir()
        os.mkfifo(self.out / "raw.pipe")
        found = self.profile("open(data + '/0.txt').read()")
        self.assertEqual(found["processes"], 1)
        names = {path.name for path in self.out.glob("raw.*")}
        self.assertEqual(((self.out / "raw.csv").read_text(), names
                          >= {"raw.directory", "raw.pipe"}, "raw.1" in names),
                         ("precious", True, False))

    def test_directory_with_the_mark_of_a_process_id_is_refused(self):
        done = subprocess.run([
            COMMAND, "profile", "-p",
            str(self.mount.path), "--out",
            str(self.out / "a%p"), "--library", LIBRARY, "true"
        ], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("%p", done.stderr)

    def test_empty_profile_is_reported(self):
        (self.out / "train.py").write_text("")
        done = subprocess.run([
            COMMAND, "profile", "-p",
            str(self.mount.path), "--observe", "--out",
            str(self.out), "--library", LIBRARY, "true"
        ], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing was recorded", done.stderr)


if __name__ == "__main__":
    unittest.main()
