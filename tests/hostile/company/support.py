"""A job of the company tests, with a data set under a prefix. It runs without the library and with
it, and the results are compared."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("CUBESHIM_BUILD",
                                    pathlib.Path(__file__).parents[3] / "build")).resolve()
# Another build of the library, to show that the tests notice its faults.
LIBRARY = os.environ.get("COMPANY_LIBRARY", str(BUILD / "libcubeshim.so"))
PROGRAMS = BUILD / "tests" / "hostile" / "company"
PYTHON = "/usr/bin/python3"
SIZES = [0, 1, 100, 4096, 5000, 32768, 65537, 200000, 300, 700]
FILES = 20
OURS = re.compile(r"^cubeshim: .*\n?", re.MULTILINE)


def program(name):
    """Returns a helper program. If it does not exist, skips the test with the reason."""
    path = PROGRAMS / name
    if not path.exists():
        raise unittest.SkipTest(f"{name} was not built: its compiler is not there")
    return str(path)


def need_tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise unittest.SkipTest(f"{name} is not installed")
    return path


def need_root():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root")


def content(number, salt=0):
    return bytes(
        (i * 31 + number * 7 + (i >> 8) + salt) & 255 for i in range(SIZES[number % len(SIZES)]))


def write_files(directory, salt=0):
    directory.mkdir(parents=True, exist_ok=True)
    for n in range(FILES):
        (directory / f"f{n}").write_bytes(content(n, salt))
    # Makes the files old, which is the common case: new files are checked twice.
    for n in range(FILES):
        os.utime(directory / f"f{n}", (1_600_000_000, 1_600_000_000))
    return directory


class Outcome:
    def __init__(self, status, out, err, report):
        self.status, self.out, self.err, self.report = status, out, err, report
        self.ours = [line for line in err.splitlines() if line.startswith("cubeshim: ")]
        self.theirs = OURS.sub("", err)

    @property
    def hits(self):
        return self.report["hits"]["ram"] if self.report else 0

    def __str__(self):
        return (f"status {self.status}\nstdout:\n{self.out[-3000:]}\nstderr:\n"
                f"{self.err[-3000:]}\nreport: {self.report}")


class Job(unittest.TestCase):
    """Base of the tests: self.data is the prefix; check() runs a command both ways."""

    timeout = 100

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="company-"))
        self.dir.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.data = self.make_data()
        self.name = f"company-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"[:64]
        self.addCleanup(self.remove_regions)
        self.preload = [LIBRARY]
        self.env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
        self.settings = {
            "CUBESHIM_PREFIXES": str(self.data), "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "32M",
            "CUBESHIM_STATS": str(self.dir / "report.json"), "CUBESHIM_STATS_FORMAT": "json"
        }

    def make_data(self):
        return write_files(self.dir / "data")

    def regions(self):
        shm = pathlib.Path(self.settings.get("CUBESHIM_RAM_DIR", "/dev/shm"))
        return [path for path in shm.glob("cubeshim-*-" + self.name)]

    def remove_regions(self):
        for path in self.regions():
            path.unlink()

    def run_one(self, command, shim, preload=None, stdin=subprocess.DEVNULL, **popen):
        env = dict(self.env)
        preload = list(self.preload if preload is None else preload)
        if shim:
            env.update(self.settings)
        else:
            preload = [p for p in preload if p != LIBRARY]
        if preload:
            env["LD_PRELOAD"] = ":".join(preload)
        report = pathlib.Path(self.settings["CUBESHIM_STATS"])
        report.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            options = {
                "stdout": out, "stderr": err, "stdin": stdin, "env": env, "start_new_session": True,
                "cwd": self.dir
            }
            options.update(popen)
            child = subprocess.Popen([str(c) for c in command], **options)
            try:
                status = child.wait(self.timeout)
            except subprocess.TimeoutExpired:
                stacks = self.stacks_of(child.pid)
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                self.fail(
                    f"{'with' if shim else 'without'} the library it hangs: {command}\n{stacks}")
            out.seek(0)
            err.seek(0)
            texts = [f.read().decode(errors="replace") for f in (out, err)]
        lines = report.read_text().splitlines() if report.exists() else []
        return Outcome(status, texts[0], texts[1], json.loads(lines[-1]) if lines else None)

    def stacks_of(self, pid):
        """Returns the stacks of all threads in the process group of `pid`, to explain a hang."""
        gdb = shutil.which("gdb")
        if gdb is None:
            return "(no gdb for stacks)"
        pids = subprocess.run(["pgrep", "-g", str(pid)], capture_output=True,
                              text=True).stdout.split()
        texts = []
        for p in pids[:8]:
            done = subprocess.run([gdb, "-p", p, "-batch", "-ex", "thread apply all bt 20"],
                                  capture_output=True, text=True)
            texts.append(f"== {p}\n{done.stdout[-6000:]}")
        return "\n".join(texts)

    def check(self, command, hits=True, says=None, same_err=True, native=None, status=0, quiet=True,
              tries=1, **options):
        """Runs the command without and with the library. Without it, the exit status must be
        `status`; with it, status and output must be the same. hits: the cache must have served
        files (False: no files; None: not checked). says: a pattern. The library must print exactly
        one line, which matches. Without a pattern, a quiet run must print no line. tries: how often
        to run until the line is printed. The lines of a background thread are lost if the job ends
        first."""
        plain = native or self.run_one(command, shim=False, **options)
        for _ in range(tries):
            shim = self.run_one(command, shim=True, **options)
            if says is None or shim.ours:
                break
        with self.subTest(command=" ".join(str(c) for c in command)[-200:]):
            self.assertEqual(plain.status, status, f"without the library:\n{plain}")
            self.assertEqual(shim.status, plain.status, f"without:\n{plain}\nwith:\n{shim}")
            self.assertEqual(shim.out, plain.out, str(shim))
            if same_err:
                self.assertEqual(shim.theirs, plain.theirs, str(shim))
            if hits:
                self.assertGreater(shim.hits, 0, str(shim))
            elif hits is False:
                self.assertEqual(shim.hits, 0, str(shim))
            if says is None and quiet:
                self.assertEqual(shim.ours, [], str(shim))
            elif says is not None:
                self.assertEqual(len(shim.ours), 1, str(shim))
                self.assertRegex(shim.ours[0], says)
        return shim

    def steps(self, *steps):
        """Arguments of company_job; DIR stands for the prefix."""
        return [step.replace("DIR", str(self.data)) for step in steps]

    def check_job(self, *steps, launcher=(), **options):
        return self.check([*launcher, program("company_job"), *self.steps(*steps)], **options)

    @staticmethod
    def limited(**limits):
        """Returns a preexec_fn that sets limits by their names (NOFILE=64)."""
        def apply():
            for name, value in limits.items():
                resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))

        return apply

    READ_ALL = """
import os, sys
D = sys.argv[1]
SIZES = [0, 1, 100, 4096, 5000, 32768, 65537, 200000, 300, 700]
def content(n): return bytes((i * 31 + n * 7 + (i >> 8)) & 255 for i in range(SIZES[n % 10]))
CONTENT = [content(n) for n in range(20)]
def check(n):
    with open(f'{D}/f{n}', 'rb') as f: assert f.read() == CONTENT[n], n
    assert os.stat(f'{D}/f{n}').st_size == len(CONTENT[n])
def check_all(*_):
    for n in range(20): check(n)
"""

    # there(command): a shell without the library, started before, runs the command. A fork at this
    # point would materialize the open files.
    THERE = """
import subprocess
shell = subprocess.Popen(['/bin/sh'], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True)
def there(command):
    shell.stdin.write(command + '; echo done\\n')
    shell.stdin.flush()
    assert shell.stdout.readline() == 'done\\n'
"""

    def python(self, script):
        path = self.dir / "job.py"
        path.write_text(self.READ_ALL + script)
        return [PYTHON, path, self.data]
