"""Code that the fault tests share: a slow mount with faults on request, hosts that are harmed, and
the counters of both."""
import concurrent.futures
import functools
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import unittest
import zlib

BUILD = pathlib.Path(os.environ["CUBESHIM_BUILD"])
LIBRARY = os.environ.get("PRELOAD_LIBRARY", str(BUILD / "libcubeshim.so"))
HOST = str(BUILD / "tests/hostile/crash/crash_host")
LAGFS = str(BUILD / "lagfs")
WATCHDOG_S = int(os.environ.get("CRASH_WATCHDOG_S", "60"))
REGION_DIRECTORY = "/dev/shm"
UID = os.geteuid()

# `make test-long` makes more random tries, and tests every pair of possible combinations.
IS_LONG = os.environ.get("CUBESHIM_TEST_LONG") == "1"

totals = {"tried": 0, "harmed": 0}
_names = iter(range(1 << 30))


@functools.cache
def content(generation, size):
    """Returns bytes that encode their generation and place."""
    unit = b"".join(b"%07d:%07d\n" % (generation, i) for i in range(size // 16 + 1))
    return unit[:size]


@functools.cache
def whole(data, size=None):
    """Returns the host's answer after it has read the whole file."""
    return f"ok {len(data) if size is None else size} {len(data)} {zlib.crc32(data)}"


class Host:
    """A program under test; without `settings` it runs without the library."""
    def __init__(self, case, settings=None, command=(), cwd="/"):
        self.case = case
        env = {"PATH": "/usr/bin:/bin", "LANG": "C"}
        if settings is not None:
            env |= {"LD_PRELOAD": LIBRARY, "CUBESHIM_STATS": "off"} | settings
            preload = settings.get("PRELOAD_TOO")
            if preload:
                env["LD_PRELOAD"] = f"{LIBRARY}:{preload}"
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*command, HOST], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.stderr, env=env,
                                        cwd=cwd, text=True, bufsize=1)
        self.killed = False
        case.addCleanup(self.end)

    def send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self):
        """Returns the next line, or '' if the host is gone or does not answer."""
        reader = _pool.submit(self.process.stdout.readline)
        try:
            line = reader.result(WATCHDOG_S).strip()
        except concurrent.futures.TimeoutError:
            self.process.kill()
            self.case.fail("the host hangs")
        if not line and not self.killed:
            totals["harmed"] += 1
            self.case.fail(f"the host died: {self.process.wait()}: {self.complaints()}")
        return line

    def ask(self, line):
        self.send(line)
        return self.answer()

    def complaints(self):
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def ask_or_die(self, line):
        """Asks a host that possibly cannot run at all."""
        self.killed = True
        return self.ask(line)

    def end_and_expect_complaint(self):
        self.process.stdin.close()
        self.process.wait(WATCHDOG_S)
        lines = self.complaints().splitlines()
        self.case.assertEqual(len(lines), 1, lines)
        self.case.assertTrue(lines[0].startswith("cubeshim"), lines)
        self.end()

    def end(self):
        """Ends the host normally, and fails if its exit status shows harm."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(WATCHDOG_S)
            except subprocess.TimeoutExpired:
                self.killed = True
                self.process.kill()
                self.process.wait()
                totals["harmed"] += 1
                self.case.fail("the host does not end")
        if self.process.returncode != 0 and not self.killed:
            self.killed = True
            totals["harmed"] += 1
            self.case.fail(f"the host ended with {self.process.returncode}: {self.complaints()}")
        self.process.stdout.close()
        if self.stderr.closed:
            return
        strange = [
            line for line in self.complaints().splitlines() if not line.startswith("cubeshim")
        ]
        self.stderr.close()
        self.case.assertEqual(strange, [], "a host says what it would not say without the library")


_pool = concurrent.futures.ThreadPoolExecutor(64)


class Mount:
    """A lagfs mount whose operations fail, wait or return false attributes on demand."""
    def __init__(self, case, *options, source=None):
        self.case = case
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cubeshim-crash-"))
        os.chmod(self.directory, 0o755)
        self.source_root = pathlib.Path(source) if source else self.directory / "source"
        self.root = self.directory / "mount"
        self.source_root.mkdir(exist_ok=True)
        self.root.mkdir()
        self.options = options
        case.addCleanup(self.remove)
        self.start()

    def start(self):
        latency = [
            f"--{what}-us=0" for what in ("lookup", "open", "read", "getattr", "readdir", "other")
        ]
        timeouts = ["--attr-timeout=0", "--entry-timeout=0"]
        subprocess.run(
            [LAGFS, *latency, *timeouts, *self.options,
             str(self.source_root),
             str(self.root)], check=True)
        # lagfs puts itself into the background. Its process has this mount point as the last
        # argument.
        found = subprocess.run(["pgrep", "-f", f"{LAGFS}.* {self.root}$"], capture_output=True,
                               text=True).stdout.split()
        self.pid = int(found[0]) if found else None

    def path(self, name):
        return f"{self.root}/{name}"

    def source(self, name):
        return self.source_root / name

    def put(self, name, data):
        """Writes at the origin like another node, bypassing the mount."""
        self.source(name).write_bytes(data)
        return self.path(name)

    def script(self, *lines):
        with open(self.root / ".lagfs/script", "wb", buffering=0) as file:
            file.write("\n".join(lines).encode())

    def held(self):
        with open(self.root / ".lagfs/held", "rb", buffering=0) as file:
            return int(file.read(100))

    def while_held(self, host, command, rule, action):
        """Sends the command, calls `action` while the operation of the rule is held, and releases
        the operation. Returns the answer, and whether the operation was held at all."""
        self.script(rule)
        host.send(command)

        def wait_for_answer():
            line = host.answer()
            self.script("go")
            return line

        answer = _pool.submit(wait_for_answer)
        was_held = self.held() > 0
        if was_held:
            action()
            self.script("go")
        line = answer.result(WATCHDOG_S)
        self.script("clear")
        return line, was_held

    def unmount(self, *options):
        subprocess.run(["umount", *options, str(self.root)], check=True, capture_output=True)

    def kill_daemon(self):
        process = os.pidfd_open(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        select.select([process], [], [])
        os.close(process)

    def remove(self):
        subprocess.run(["umount", "-l", str(self.root)], capture_output=True)
        if os.path.ismount(self.root):
            return
        shutil.rmtree(self.directory, ignore_errors=True)


class FaultCase(unittest.TestCase):
    """Each test has its own cache. The region must be gone at the end, except if the test says
    otherwise."""

    longMessage = True

    def setUp(self):
        self.name = f"crash-{os.getpid()}-{next(_names)}"
        self.region_may_stay = False
        self.region_directory = REGION_DIRECTORY
        self.addCleanup(self.check_region)

    @property
    def region(self):
        return f"{self.region_directory}/cubeshim-{UID}-{self.name}"

    def check_region(self):
        left = os.path.lexists(self.region)
        if left and os.path.isdir(self.region) and not os.path.islink(self.region):
            shutil.rmtree(self.region)
        elif left:
            os.unlink(self.region)
        if left and not self.region_may_stay:
            self.fail("the region is still there")

    def settings(self, prefix, **more):
        values = {
            "CUBESHIM_PREFIXES": str(prefix), "CUBESHIM_NAME": self.name, "CUBESHIM_RAM": "16M",
            "CUBESHIM_RAM_DIR": self.region_directory
        }
        return values | {f"CUBESHIM_{key}": str(value) for key, value in more.items()}

    def tried(self, count=1):
        totals["tried"] += count

    def native(self):
        return Host(self)

    def mount(self, *options, **more):
        if not os.path.exists("/dev/fuse"):
            self.skipTest("no /dev/fuse")
        return Mount(self, *options, **more)

    def temporary(self):
        directory = tempfile.mkdtemp(prefix="cubeshim-crash-")
        os.chmod(directory, 0o755)
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        return pathlib.Path(directory)

    def tmpfs(self, size):
        if UID != 0:
            self.skipTest("a tmpfs of a set size needs root")
        directory = self.temporary()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "cubeshim-crash",
             str(directory)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(directory)], capture_output=True)
        return directory


def main(module_name):
    import sys
    program = unittest.main(module=module_name, exit=False, verbosity=1)
    print(f"faults tried {totals['tried']}, host harmed {totals['harmed']}")
    sys.stdout.flush()
    os._exit(0 if program.result.wasSuccessful() and totals["harmed"] == 0 and totals["tried"] > 0
             else 1)
