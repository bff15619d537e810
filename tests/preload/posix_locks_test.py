"""The library must not release POSIX locks of the program. When a process closes any fd of a file,
the kernel drops all POSIX locks of the process on this file. CUBESHIM_LIBRARY, CUBESHIM_HELPER,
CUBESHIM_LAGFS name the build's files."""
import fcntl
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.stopped import CLOSE, OPENAT2, SCHED_YIELD, Stopped  # noqa: E402

LAGFS, DEADLINE_S = os.environ["CUBESHIM_LAGFS"], 60
# Reports that the file should be locked, and waits until the test has checked.
START = """
import ctypes, fcntl, mmap, os, sys, threading
path, libc = sys.argv[1], ctypes.CDLL(None, use_errno=True)
def look():
    print("locked", flush=True)
    sys.stdin.readline()
"""
LONGER_MAPPING = """
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
size = 4 << 20
at = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED,
               os.open(path, os.O_RDONLY), ctypes.c_long(0))
fcntl.lockf(os.open(path, os.O_RDWR), fcntl.LOCK_EX)
look()
longer = libc.mremap(ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.c_size_t(2 * size), 1)
assert longer != 2**64 - 1
look()
"""
LOCKED_BEFORE_AN_EXEC = """
if len(sys.argv) > 2:
    look()
    assert len(os.read(os.open(path, os.O_RDONLY), 10)) == 10
    look()
else:
    served = os.open(path, os.O_RDONLY)
    assert len(os.read(served, 10)) == 10
    for fd in served, (locked := os.open(path, os.O_RDWR)):
        os.set_inheritable(fd, True)
    fcntl.lockf(locked, fcntl.LOCK_EX)
    look()
    os.execv(sys.executable, [sys.executable, "-c", os.environ["JOB"], path, "second"])
"""
MANY_LOCKS = """
served = os.open(path + "-other", os.O_RDONLY)
assert len(os.read(served, 10)) == 10
others = [open(f"{path}.{i}", "w") for i in range(300)]
for other in others:
    fcntl.lockf(other, fcntl.LOCK_EX)
fd = os.open(path, os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
for _ in range(20):
    again = os.open(path + "-other", os.O_RDONLY)
    assert len(os.read(again, 10)) == 10
    os.fsync(again)
    os.close(again)
look()
assert len(os.listdir("/proc/self/fd")) < 300 + 20
"""
# If another fd of a locked file is materialized, the library leaves one more fd open.
LOCKS_END = """
names = [f"{path}.{i}" for i in range(100)]
for name in names:
    with open(name, "wb") as file:
        file.write(b"x" * 1000)
    os.utime(name, (1e9, 1e9))
    os.close(os.open(name, os.O_RDONLY))
def fds():
    return len(os.listdir("/proc/self/fd"))
fd = os.open(path, os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
null = os.open("/dev/null", os.O_RDONLY)
few = fds()
for end in "unlock", "close", "replace", "close range":
    pairs = [(os.open(name, os.O_RDONLY), os.open(name, os.O_RDONLY)) for name in names]
    for locked, other in pairs:
        assert len(os.read(other, 10)) == 10
        fcntl.lockf(locked, fcntl.LOCK_SH)
        if end == "unlock":
            os.fsync(other)
        else:
            fcntl.flock(other, fcntl.LOCK_SH)
    child = os.fork()
    if child == 0:
        # The program's own, and the one that lists them.
        os._exit(0 if fds() == few + 2 * len(names) else 1)
    assert os.waitpid(child, 0)[1] == 0
    for locked, other in pairs:
        if end == "unlock":
            fcntl.lockf(locked, fcntl.LOCK_UN)
        elif end == "replace":
            os.dup2(null, locked)
        elif end == "close range":
            os.closerange(locked, locked + 1)
    if end in ("replace", "close range"):
        assert fds() == few + len(names) * (2 if end == "replace" else 1), (end, fds(), few)
    for locked, other in pairs:
        if end != "close range":
            os.close(locked)
        os.close(other)
    assert fds() == few, (end, fds(), few)
look()
"""
# Another process has locked the file. `use_often` makes the library open and close it.
USE_OFTEN = """
def use_often(lock_and_unlock=lambda fd: None):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        fd = os.open(path, os.O_RDONLY)
        assert len(os.read(fd, 10)) == 10
        os.fsync(fd)
        lock_and_unlock(fd)
        os.close(fd)
    assert len(os.listdir("/proc/self/fd")) < before + 5, os.listdir("/proc/self/fd")
"""
OTHERS_LOCK = USE_OFTEN + """
def whole(fd):
    fcntl.lockf(fd, fcntl.LOCK_SH)
    fcntl.lockf(fd, fcntl.LOCK_UN)
def whole_by_lockf(fd):
    fcntl.lockf(fd, fcntl.LOCK_SH)
    os.lseek(fd, 0, os.SEEK_SET)
    assert libc.lockf(fd, os.F_ULOCK, ctypes.c_long(0)) == 0
held = os.open(path, os.O_RDONLY)
def by_two_fds(fd):
    fcntl.lockf(held, fcntl.LOCK_SH)
    fcntl.lockf(fd, fcntl.LOCK_UN)
for way in whole, whole_by_lockf, by_two_fds, lambda fd: fcntl.lockf(fd, fcntl.LOCK_SH):
    use_often(way)
"""
CHILD_OF_HOLDER = USE_OFTEN + """
fd = os.open(path, os.O_RDONLY)
fcntl.lockf(fd, fcntl.LOCK_SH)
child = os.fork()
if child == 0:
    use_often()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
HELD_BESIDE_ANOTHER = """
fd, again = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)
fcntl.lockf(fd, fcntl.LOCK_SH)
assert len(os.read(again, 10)) == 10
few = len(os.listdir("/proc/self/fd"))
os.close(os.open(path, os.O_PATH))
os.fsync(again)
look()
fcntl.lockf(fd, fcntl.LOCK_UN)
assert len(os.listdir("/proc/self/fd")) == few
"""
OPENED_MEANWHILE = """
os.close(os.open(path + "-other", os.O_RDONLY))
opener = threading.Thread(
    target=lambda: [sys.stdin.readline(), libc.open(path.encode(), os.O_RDONLY)])
opener.start()
print(opener.native_id, threading.get_native_id(), flush=True)
with open(int(sys.argv[2])) as go_on:
    go_on.readline()
fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
libc.fcntl(fd, fcntl.F_SETLK, ctypes.c_char_p(bytes(32)))  # F_RDLCK of the whole file
opener.join()
look()
"""


class PosixLocks(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-locks-")))
        self.file = self.scratch / "f"
        for file in self.file, self.scratch / "f-other":
            file.write_bytes(b"x" * 1000)
            os.utime(file, (1e9, 1e9))

    def start(self, command: list, **more) -> subprocess.Popen:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        job = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean | {
                "CUBESHIM_PREFIXES": str(self.file.parent), "CUBESHIM_NAME": f"locks-{os.getpid()}",
                "CUBESHIM_RAM": "64M", "CUBESHIM_STATS": "off", "JOB": command[2],
                "LD_PRELOAD": os.environ["CUBESHIM_LIBRARY"]
            }, **more)
        self.addCleanup(lambda: [job.kill(), job.communicate()])
        return job

    def start_python(self, code: str, *words, **more) -> subprocess.Popen:
        return self.start(["/usr/bin/python3", "-c", START + code, str(self.file), *words], **more)

    def assert_locked(self, job: subprocess.Popen, times: int) -> None:
        for time in range(times):
            self.assertEqual(job.stdout.readline(), "locked\n")
            with open(self.file, "r+b") as file, self.assertRaises(BlockingIOError, msg=time):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            job.stdin.write("\n")
            job.stdin.flush()
        self.assertEqual(job.wait(DEADLINE_S), 0)

    def test_they_outlast_a_longer_mapping_of_a_large_file(self):
        os.truncate(self.file, 24 << 20)
        os.utime(self.file, (1e9, 1e9))
        self.assert_locked(self.start_python(LONGER_MAPPING), 2)

    def test_they_outlast_an_exec(self):
        self.assert_locked(self.start_python(LOCKED_BEFORE_AN_EXEC), 3)

    def test_they_outlast_a_close_in_a_child_of_vfork(self):
        helper = os.environ["CUBESHIM_HELPER"]
        self.assert_locked(self.start([helper, "lock-vfork", str(self.file)]), 2)

    def test_any_number_of_locked_files_leaves_others_served_and_their_fds_closed(self):
        self.assert_locked(self.start_python(MANY_LOCKS), 1)

    def test_fds_that_are_left_open_for_them_are_closed_at_their_end_and_in_a_child(self):
        self.assert_locked(self.start_python(LOCKS_END), 1)

    def mount(self, keeps_locks: bool) -> None:
        mount = self.enterContext(
            SlowMount(Path(LAGFS), self.scratch, self.scratch, 0, keeps_locks=keeps_locks))
        self.file = mount.path / "f"

    def test_no_fd_is_left_open_for_the_lock_of_another_process(self):
        for keeps_locks in False, True:
            self.mount(keeps_locks)
            for code in OTHERS_LOCK, CHILD_OF_HOLDER:
                with open(self.file, "rb") as file:
                    fcntl.lockf(file, fcntl.LOCK_SH)
                    job = self.start_python(code)
                    self.assertEqual(job.wait(DEADLINE_S), 0, (keeps_locks, code))

    def test_no_fd_is_left_open_because_the_program_inherits_one(self):
        self.mount(keeps_locks=False)
        # The file is in memory before it is locked.
        reader = self.start_python("os.read(os.open(path, os.O_RDONLY), 10)\nlook()")
        self.assertEqual(reader.stdout.readline(), "locked\n")
        with open(self.file, "rb") as file, open(self.file, "rb") as inherited:
            fcntl.lockf(file, fcntl.LOCK_SH)
            job = self.start_python(USE_OFTEN + "use_often()", pass_fds=[inherited.fileno()])
            self.assertEqual(job.wait(DEADLINE_S), 0)

    def test_they_outlast_closes_on_a_mount_whose_server_keeps_them(self):
        self.mount(keeps_locks=True)
        with open(self.file, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH)
            self.assert_locked(self.start_python(HELD_BESIDE_ANOTHER), 1)

    def stopped_at(self, call: int):
        """Starts a job whose opener has stopped at this call for the file. Also returns the other
        thread, and the fd `go_on`: a line on it lets the other thread lock the file."""
        end, go_on = os.pipe()
        job = self.start_python(OPENED_MEANWHILE, str(end), pass_fds=[end])
        os.close(end)
        self.addCleanup(os.close, go_on)
        opener, locker = (int(thread) for thread in job.stdout.readline().split())
        # The locker must not be stopped yet: if it held Python's lock while stopped, it would block
        # the opener.
        opener = Stopped(opener)
        self.addCleanup(opener.go_on)
        job.stdin.write("\n")
        job.stdin.flush()
        self.assertEqual(opener.run_to_any(OPENAT2), OPENAT2)
        if call != OPENAT2:
            self.assertEqual(opener.run_to_any(call), call)
        return job, opener, locker, go_on

    def test_a_lock_outlasts_an_open_that_began_before_it(self):
        job, opener, _, go_on = self.stopped_at(OPENAT2)
        os.write(go_on, b"\n")
        opener.go_on()
        self.assert_locked(job, 1)

    def test_a_lock_waits_for_a_close_that_began_before_it(self):
        job, opener, locker, go_on = self.stopped_at(CLOSE)
        locker = Stopped(locker)
        self.addCleanup(locker.go_on)
        os.write(go_on, b"\n")
        self.assertEqual(locker.run_to_any(SCHED_YIELD), SCHED_YIELD)
        locker.go_on()
        opener.go_on()
        self.assert_locked(job, 1)


if __name__ == "__main__":
    unittest.main()
