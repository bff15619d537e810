"""Jobs whose files are prefetched. A test either compares them with the same job alone (Job) or
harms them step by step (FaultCase).

The data set is on a lagfs mount. No test sleeps to wait for prefetching: `cubeshim stats` tells how
far it is."""
import importlib.util
import json
import os
import pathlib
import random
import shutil
import socket
import stat
import struct
import subprocess
import threading
import time
import zlib


def _load(name, folder):
    path = pathlib.Path(__file__).parents[2] / "hostile" / folder / "support.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The preloaded library can be another build, to show that the tests notice its faults.
LIBRARY = os.environ.get("SIDECAR_LIBRARY")
if LIBRARY:
    os.environ["COMPANY_LIBRARY"] = os.environ["PRELOAD_LIBRARY"] = LIBRARY
company = _load("company_support", "company")
crash = _load("crash_support", "crash")
LIBRARY = company.LIBRARY
COMMAND = str(company.BUILD / "cubeshim")
PYTHON = company.PYTHON
NOBODY = 65534
PATIENCE_S = int(os.environ.get("SIDECAR_PATIENCE_S", "60"))
TRIGGER = "trigger"  # a file that is not listed; reading it starts the sidecar
COUNT = 60
DEMAND = ("full", "busy"
         )  # reasons for which a reader had to ask the origin though the file could be cached

program, need_root, need_tool = company.program, company.need_root, company.need_tool
Host, content, whole = crash.Host, crash.content, crash.whole


def write_files(directory, count=COUNT, salt=0, sizes=company.SIZES):
    directory.mkdir(parents=True, exist_ok=True)
    for n in range(count + 1):
        name = f"f{n}" if n < count else TRIGGER
        (directory / name).write_bytes(
            random.Random(f"{n} {salt}").randbytes(sizes[n % len(sizes)]))
        # Makes the file old, which is the common case: new files are checked twice.
        os.utime(directory / name, (1_600_000_000, 1_600_000_000))
    return directory


def demand_misses(report):
    """Returns how often a reader asked the origin for a file that the cache could hold."""
    return report["misses"] + sum(report["bypassed"][reason] for reason in DEMAND)


def wait_until(condition, what):
    """`what` is a text, or a function that describes the state if the wait takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(
                f"after {PATIENCE_S} s: not {what if isinstance(what, str) else what()}")
        time.sleep(0.01)


def held(mount):
    """Waits until an operation is held by a `hold` of the mount's script."""
    timer = threading.Timer(PATIENCE_S, lambda: mount.script("clear"))
    timer.start()
    try:
        if mount.held() == 0:
            raise AssertionError("no operation came that could be held")
    finally:
        timer.cancel()


class Watch:
    """Follows the progress of a cache's sidecar with `cubeshim stats`."""

    # True: also counts files that a reader has already requested from the origin. These are not
    # prefetched, so without them the list might never be complete.
    counts_late = False

    def __init__(self, settings):
        self.environment = {"PATH": "/usr/bin:/bin"} | {
            key: value
            for key, value in settings.items()
            if key in ("CUBESHIM_NAME", "CUBESHIM_RAM_DIR")
        }
        self.command = [COMMAND]  # a test can set another command, for the cache of another user

    def counts(self):
        """Returns the sum over the jobs of the cache; None while there is no job."""
        done = subprocess.run([*self.command, "stats", "--json"], env=self.environment,
                              capture_output=True, text=True)
        if done.returncode != 0:
            return None
        sums = {}
        for job in json.loads(done.stdout)["jobs"]:
            for key, value in job["report"]["prefetch"].items():
                sums[key] = sums.get(key, 0) + value
        return sums

    def fetched(self):
        counts = self.counts() or {}
        return counts.get("fetched", 0) + (counts.get("late", 0) if self.counts_late else 0)

    def wait(self, files):
        wait_until(lambda: self.fetched() >= files,
                   lambda: f"{files} files fetched, but {self.counts()}")


class Gate(threading.Thread):
    """The other end of a job's stdin. A job asks for a number of prefetched files by a line with
    this number (`need()` in READ). When they are prefetched, the gate lets the job continue.
    `at_once` is the number for programs that only wait for the end of their input."""
    def __init__(self, watch, at_once=None, action=None):
        super().__init__(daemon=True)
        self.watch, self.at_once, self.action = watch, at_once, action
        self.ours, self.theirs = socket.socketpair()
        self.failure = None
        self.start()

    def run(self):
        with self.ours:
            if self.at_once is not None:
                self.obey(self.at_once)
                return
            try:
                for line in self.ours.makefile("r"):
                    self.obey(line.strip())
                    self.ours.sendall(b"\n")
            except OSError:
                pass  # the job has ended first

    def obey(self, wish):
        # If the request is not fulfilled, the job continues anyway, so that the test can report
        # other faults.
        try:
            if wish != "act" and self.failure is None:
                self.watch.wait(int(wish))
            if self.action and (wish == "act" or self.at_once is not None):
                self.action()
        except (AssertionError, KeyError) as failure:
            self.failure = self.failure or failure

    def end(self):
        self.theirs.close()
        self.join()


class Planned:
    """A data set, its list, and the figures expected in the report. A mixin for Job and
    FaultCase."""

    count = COUNT

    def write_list(self, paths=None, separator="\n"):
        paths = [f"{self.data}/f{n}" for n in range(self.count)] if paths is None else paths
        self.list.write_bytes(b"".join(os.fsencode(f"{path}{separator}") for path in paths))
        self.list.chmod(0o644)
        return self.list

    @property
    def socket(self):
        return pathlib.Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}.sock")

    def check_socket(self):
        left = os.path.lexists(self.socket)
        if left and stat.S_ISDIR(os.lstat(self.socket).st_mode):
            self.socket.rmdir()
        elif left:
            self.socket.unlink()
        if left and not self.socket_may_stay:
            self.fail(f"{self.socket} is still there")

    def leader(self):
        """Returns the process that listens on the socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.setblocking(False)  # the queue of a stopped process can be full
            try:
                client.connect(str(self.socket))
            except OSError:
                return None
            return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                                         12))[0]


class Job(Planned, company.Job):
    """self.data is on a mount, and self.list has each of its files except TRIGGER."""

    lagfs = ()
    nobody = NOBODY

    def setUp(self):
        super().setUp()
        self.list = self.dir / "list"
        self.watch = Watch(self.settings)
        self.settings |= {"CUBESHIM_PREFETCH_LIST": str(self.write_list())}
        self.socket_may_stay = False
        self.addCleanup(self.check_socket)

    def make_data(self):
        self.source = self.make_source()
        self.mount = crash.Mount(self, *self.lagfs, source=self.source)
        return self.mount.root

    def make_source(self):
        return write_files(self.dir / "source", self.count)

    # How many files are prefetched before the job continues. The job is Python (READ) or
    # company_job with the step `wait`.
    def check_gated(self, command, fetched=None, action=None, misses=1, native=None, **options):
        """Like check(). misses: how often a reader may ask the origin, including the trigger; None:
        not checked."""
        native = native or self.run_one(command, shim=False, preexec_fn=options.get("preexec_fn"))
        gate = Gate(self.watch, fetched, action)
        try:
            done = self.check(command, native=native, stdin=gate.theirs, **options)
        finally:
            gate.end()
        self.assertIsNone(gate.failure, f"{gate.failure}\n{done}")
        if misses is not None:
            self.assertLessEqual(demand_misses(done.report), misses, str(done))
        return done

    READ_NOTHING = """
import os, sys, zlib
D, COUNT = sys.argv[1], int(sys.argv[2])
def need(files):
    # Waits until this many files are prefetched; does nothing without the library.
    os.write(0, b'%d\\n' % files)
    os.read(0, 1)
def act():
    os.write(0, b'act\\n')
    os.read(0, 1)
def read(name):
    with open(f'{D}/{name}', 'rb') as f: data = f.read()
    assert os.stat(f'{D}/{name}').st_size == len(data)
    return zlib.crc32(data)
def read_all(names=None):
    for name in names or [f'f{n}' for n in range(COUNT)]:
        try: print(name, read(name))
        except OSError as e: print(name, e.errno)
    sys.stdout.flush()
"""
    READ = READ_NOTHING + "read('trigger')\n"

    def script(self, text, name="job.py", first=READ):
        path = self.dir / name
        path.write_text(first + text)
        return [PYTHON, path, self.data, self.count]

    def as_nobody(self, *command):
        """Returns the command as run by another user. This user may not enter the build tree, only
        the directory that copy_for_others() has made."""
        return [
            need_tool("setpriv"), "--reuid",
            str(self.nobody), "--regid",
            str(NOBODY), "--clear-groups", *command
        ]

    def copy_for_others(self):
        need_root()
        for name, path in {"lib.so": LIBRARY, "job": program("company_job"),
                           "cubeshim": COMMAND}.items():
            shutil.copy(path, self.dir / name)
        self.dir.chmod(0o777)
        self.watch.command = self.as_nobody(self.dir / "cubeshim")

    def nobodys(self, *command):
        """Returns the command without the library and with it. setpriv itself never loads the
        library."""
        return self.as_nobody(*command), self.as_nobody("/usr/bin/env",
                                                        f"LD_PRELOAD={self.dir}/lib.so", *command)


class FaultCase(Planned, crash.FaultCase):
    """Hosts that follow the test's orders. The files `f0`... and `trigger` are on a mount that
    fails on demand."""

    size = 20_000
    lagfs = ()

    def setUp(self):
        super().setUp()
        self.dir = self.temporary()
        self.list = self.dir / "list"
        self.origin = self.mount(*self.lagfs)
        self.data = self.origin.root
        for n in range(self.count):
            self.origin.put(f"f{n}", content(n, self.size))
            os.utime(self.origin.source(f"f{n}"), (1_600_000_000, 1_600_000_000))
        self.origin.put(TRIGGER, b"go")
        self.write_list()
        self.watch = Watch(self.settings(self.data))
        self.socket_may_stay = False
        self.addCleanup(self.check_socket)

    def planned(self, **more):
        return self.settings(self.data, **{"PREFETCH_LIST": self.list} | more)

    def host(self, **more):
        host = Host(self, self.planned(**more))
        self.assertEqual(host.ask(f"read {self.data}/{TRIGGER}"), f"ok 2 2 {zlib.crc32(b'go')}")
        return host

    def check_reads(self, host, numbers=None):
        for n in range(self.count) if numbers is None else numbers:
            self.assertEqual(host.ask(f"read {self.data}/f{n}"), whole(content(n, self.size)),
                             f"f{n}")
            self.tried()

    def origin_counters(self):
        return json.loads((pathlib.Path(self.data) / ".lagfs/counters.json").read_text())

    def origin_count(self, operation="open"):
        return self.origin_counters()[operation]["data_files"]
