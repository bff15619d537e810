"""A call on an fd that another thread is materializing has the same result as natively: the kernel
never uses the placeholder. CUBESHIM_LIBRARY and CUBESHIM_HELPER name the build's files."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.preload.stopped import (  # noqa: E402
    FORKS, GETPPID, OPENAT, PREADV, SCHED_YIELD, VFORKS, Stopped)

# For each call in turn, one thread materializes the fd, and the other thread makes the call. A
# thread that is done calls getppid. Both call through ctypes, so that neither holds the
# interpreter's lock while it is stopped.
JOB = """
import ctypes, errno, fcntl, json, mmap, os, select, socket, sys, termios, threading
path = sys.argv[1].encode()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.fdopen.restype = libc.readahead.restype = ctypes.c_void_p
SYS_mmap, PRIVATE, POPULATE = (9 if os.uname().machine == "x86_64" else 222), 2, 0x8000
null, (pipe_end, pipe) = os.open("/dev/null", os.O_WRONLY), os.pipe()
ours, theirs = socket.socketpair()
room, number = ctypes.create_string_buffer(4096), ctypes.c_int()

def said(result):
    return errno.errorcode[ctypes.get_errno()] if result in (-1, 2**64 - 1, None) else result

def call(name, *words):
    return said(getattr(libc, name)(*words))

def made(fd):  # of an fd for the same file
    return fd if isinstance(fd, str) else os.pread(fd, 20, 3).decode()

def mapped(fd, protection, flags, at=0):
    here = call("mmap", None, ctypes.c_size_t(4096), protection, flags, fd, ctypes.c_long(at))
    if protection == 0 or at or isinstance(here, str):
        return here if isinstance(here, str) else "mapped"
    return ctypes.string_at(here, 20).decode()

def mapped_by_number(fd):
    libc.syscall.restype = ctypes.c_void_p
    here = said(libc.syscall(SYS_mmap, None, ctypes.c_size_t(4096), 1, PRIVATE, fd, None))
    libc.syscall.restype = ctypes.c_long
    return here if isinstance(here, str) else ctypes.string_at(here, 20).decode()

def with_room(name, *words):
    return [call(name, *words), room.raw[:20].decode(errors="replace")]

def by_fd_name(fd):
    return f"/proc/self/fd/{fd}".encode()

def sent(fd):
    socket.send_fds(ours, [b"x"], [fd])
    return made(socket.recv_fds(theirs, 1, 1)[1][0])

def through_pipe(fd):
    return [call("splice", fd, None, pipe, None, 20, 0), os.read(pipe_end, 20).decode()]

def by_dup(fd):
    copy = dups[fd]
    call("fsync", copy)
    return [os.read(fd, 20).decode(), os.read(copy, 20).decode(), os.lseek(fd, 0, 1)]

def polled(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return [event for _, event in poll.poll(0)]

CALLS = {
    "mmap": lambda fd: mapped(fd, 1, PRIVATE),
    "mmap PROT_NONE": lambda fd: mapped(fd, 0, PRIVATE),
    "mmap MAP_POPULATE": lambda fd: mapped(fd, 1, PRIVATE | POPULATE),
    "mmap beyond the end": lambda fd: mapped(fd, 1, PRIVATE, 1 << 20),
    "mmap by number": mapped_by_number,
    "dup": lambda fd: made(call("dup", fd)),
    "dup2": lambda fd: made(call("dup2", fd, 90)),
    "dup2 over an open fd": lambda fd: made(call("dup2", fd, os.dup(null))),
    "dup3": lambda fd: made(call("dup3", fd, 91, os.O_CLOEXEC)),
    "dup by number": lambda fd: made(said(libc.syscall(32 if SYS_mmap == 9 else 23, fd))),
    "F_DUPFD": lambda fd: made(call("fcntl", fd, fcntl.F_DUPFD, 80)),
    "F_GETFD": lambda fd: call("fcntl", fd, fcntl.F_GETFD),
    "F_SETFD": lambda fd: [call("fcntl", fd, fcntl.F_SETFD, 1), call("fcntl", fd, fcntl.F_GETFD)],
    "F_GETFL": lambda fd: call("fcntl", fd, fcntl.F_GETFL) & os.O_ACCMODE,
    "FIOCLEX": lambda fd: [call("ioctl", fd, termios.FIOCLEX), call("fcntl", fd, fcntl.F_GETFD)],
    "close_range": lambda fd: [call("close_range", fd, fd, 4), call("fcntl", fd, fcntl.F_GETFD)],
    "FIONREAD": lambda fd: [call("ioctl", fd, termios.FIONREAD, ctypes.byref(number)),
                            number.value],
    "TCGETS": lambda fd: call("ioctl", fd, termios.TCGETS, room),
    "isatty": lambda fd: [call("isatty", fd), errno.errorcode[ctypes.get_errno()]],
    "fstat": lambda fd: call("fstat", fd, room),
    "statx": lambda fd: call("statx", fd, b"", 0x1000, 0x7ff, room),
    "fstatfs": lambda fd: call("fstatfs", fd, room),
    "lseek": lambda fd: [call("lseek", fd, 7, 0), os.read(fd, 20).decode()],
    "read": lambda fd: with_room("read", fd, room, 20),
    "pread": lambda fd: with_room("pread", fd, room, 20, 3),
    "fdopen": lambda fd: libc.fgetc(ctypes.c_void_p(libc.fdopen(fd, b"r"))),
    "sendfile": lambda fd: call("sendfile", null, fd, None, 20),
    "splice": through_pipe,
    "copy_file_range": lambda fd: call("copy_file_range", fd, None, fd, None, 20, 0),
    "flock": lambda fd: call("flock", fd, 1),
    "posix_fadvise": lambda fd: libc.posix_fadvise(fd, 0, 0, 3),
    "readahead": lambda fd: libc.readahead(fd, 0, 4096),
    "sync_file_range": lambda fd: call("sync_file_range", fd, 0, 0, 0),
    "fsync": lambda fd: call("fsync", fd),
    "fsync of a dup": by_dup,
    "fallocate": lambda fd: call("fallocate", fd, 0, 0, 1),
    "fchdir": lambda fd: call("fchdir", fd),
    "openat": lambda fd: call("openat", fd, b"below", 0),
    "fgetxattr": lambda fd: call("fgetxattr", fd, b"user.none", room, 100),
    "name_to_handle_at": lambda fd: call("name_to_handle_at", fd, b"", bytes(8), room, 0x1000),
    "open_tree": lambda fd: call("close", said(libc.syscall(428, fd, b"", 0x1000))),
    "inotify": lambda fd: call("inotify_add_watch", call("inotify_init"), by_fd_name(fd), 1),
    "readlink": lambda fd: os.path.basename(with_room("readlink", by_fd_name(fd), room, 4096)[1]),
    "open by name": lambda fd: made(call("open", by_fd_name(fd), 0)),
    "poll": polled,
    "epoll_ctl": lambda fd: call("epoll_ctl", call("epoll_create", 1), 1, fd, room),
    "SCM_RIGHTS": sent,
    "pidfd_getfd": lambda fd: made(said(libc.syscall(438, os.pidfd_open(os.getpid()), fd, 0))),
    "listen": lambda fd: call("listen", fd, 1),
    "close": lambda fd: [call("close", fd), call("fcntl", fd, fcntl.F_GETFD)],
}
files, dups, said_by = [], {}, {}

def materialize():
    for fd in files:
        sys.stdin.buffer.raw.read(1)
        os.fstatvfs(fd)
        libc.getppid()

def call_all():
    go_on = int(sys.argv[2])
    for fd, (name, one) in zip(files, CALLS.items()):
        os.read(go_on, 1)
        try:
            said_by[name] = one(fd)
        except OSError as error:
            said_by[name] = str(error)
        libc.getppid()

for name in CALLS:
    files.append(libc.open(path, os.O_RDONLY))
    if name.endswith("of a dup"):
        dups[files[-1]] = libc.dup(files[-1])
threads = [threading.Thread(target=work) for work in (materialize, call_all)]
for thread in threads:
    thread.start()
print(json.dumps([thread.native_id for thread in threads] + list(CALLS)), flush=True)
for thread in threads:
    thread.join()
print(json.dumps(said_by))
"""

# A thread reads a file that is fetched in parts. The process forks while the read waits.
READ_AND_FORK = """
import ctypes, os, sys, threading
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(100_000)
fd, got = libc.open(sys.argv[1].encode(), os.O_RDONLY), []

def read():
    os.read(int(sys.argv[2]), 1)
    got.append(libc.read(fd, room, 100_000))

thread = threading.Thread(target=read)
thread.start()
print(thread.native_id, flush=True)
sys.stdin.readline()
if os.fork() == 0:
    os._exit(0)
os.wait()
print("forked", flush=True)
thread.join()
print(got[0], os.lseek(fd, 0, os.SEEK_CUR), flush=True)
"""


class MaterializeRace(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-race-")))
        (self.scratch / "data").mkdir()
        self.file = self.scratch / "data" / "f"
        self.file.write_text("the bytes of the file " * 500)
        os.utime(self.file, (1e9, 1e9))
        shutil.copy2(self.file, self.file.with_name("f-other"))

    def settings(self) -> dict:
        return {
            "CUBESHIM_PREFIXES": str(self.file.parent), "CUBESHIM_NAME": f"race-{os.getpid()}",
            "CUBESHIM_RAM": "32M", "CUBESHIM_STATS": "off",
            "LD_PRELOAD": os.environ["CUBESHIM_LIBRARY"]
        }

    def popen(self, words: list, settings: dict, **more) -> subprocess.Popen:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        job = subprocess.Popen(words, env=clean | settings, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, **more)
        self.addCleanup(lambda: [job.kill(), job.communicate()])
        return job

    def start(self, settings: dict, code: str = JOB):
        end, go_on = os.pipe()
        self.addCleanup(os.close, go_on)
        job = self.popen(["/usr/bin/python3", "-c", code, str(self.file), str(end)], settings,
                         pass_fds=[end])
        os.close(end)
        return job, go_on, json.loads(job.stdout.readline())

    def end_of(self, job: subprocess.Popen) -> dict:
        said = job.communicate(timeout=300)[0]
        self.assertEqual(job.returncode, 0)
        return json.loads(said)

    def native(self) -> dict:
        job, go_on, (_, _, *calls) = self.start({})
        job.stdin.write(b"x" * len(calls))
        job.stdin.flush()
        os.write(go_on, b"x" * len(calls))
        return self.end_of(job)

    def raced(self, mode: str) -> dict:
        job, go_on, (one, two, *calls) = self.start(self.settings() | {"CUBESHIM_MODE": mode})
        materializer, caller = Stopped(one), None
        self.addCleanup(materializer.go_on)
        for _ in calls:
            job.stdin.write(b"x")
            job.stdin.flush()
            self.assertEqual(materializer.run_to_any(OPENAT, GETPPID), OPENAT)
            if caller is None:
                # The caller is stopped only now: if it were stopped while it holds Python's lock,
                # it would block the materializer.
                caller = Stopped(two)
                self.addCleanup(caller.go_on)
            os.write(go_on, b"x")
            # A call that does not wait for the materializer must not need the kernel's file.
            at = caller.run_to_any(SCHED_YIELD, GETPPID)
            self.assertEqual(materializer.run_to_any(GETPPID), GETPPID)
            if at != GETPPID:
                self.assertEqual(caller.run_to_any(GETPPID), GETPPID)
        materializer.go_on()
        caller.go_on()
        return self.end_of(job)

    def test_calls_are_answered_as_natively(self):
        native = self.native()
        for mode in ("virtual", "real"):
            with self.subTest(mode=mode):
                said = self.raced(mode)
                self.assertEqual([name for name in native if said[name] != native[name]], [], said)

    def test_offset_is_right_after_a_short_read_during_a_fork(self):
        self.file.write_bytes(b"x" * 3_000_000)
        os.utime(self.file, (1e9, 1e9))
        job, go_on, thread = self.start(self.settings(), READ_AND_FORK)
        reader = Stopped(thread)
        self.addCleanup(reader.go_on)
        os.write(go_on, b"x")
        self.assertEqual(reader.run_to_any(PREADV), PREADV)
        os.truncate(self.file, 50)
        job.stdin.write(b"fork\n")
        job.stdin.flush()
        self.assertEqual(job.stdout.readline(), b"forked\n")
        reader.go_on()
        self.assertEqual(job.communicate(timeout=60)[0].split(), [b"50", b"50"])

    def test_a_child_leaves_the_offset_of_its_parent_alone(self):
        for size in 30, 3_000_000:
            with self.subTest(size=size):
                self.file.write_bytes(b"x" * size)
                os.utime(self.file, (1e9, 1e9))
                self.check_offset_beside_child()

    def check_offset_beside_child(self):
        job = self.popen([os.environ["CUBESHIM_HELPER"], "fork-beside", str(self.file)],
                         self.settings())
        forker = Stopped(int(job.stdout.readline()))

        def say(expected: bytes):
            job.stdin.write(b"\n")
            job.stdin.flush()
            if expected:
                self.assertEqual(job.stdout.readline(), expected)

        say(b"")
        self.assertIn(forker.run_to_any(*FORKS), FORKS)
        say(b"read\n")
        child = forker.run_to_fork()
        forker.go_on()
        say(b"the kernel's\n")
        child.go_on()
        self.assertEqual(job.communicate(timeout=60)[0], b"20\n")

    def test_a_handler_just_before_vfork_leaves_the_parents_fds_alone(self):
        job = self.popen([os.environ["CUBESHIM_HELPER"], "handled-vfork", str(self.file)],
                         self.settings())
        caller = Stopped(int(job.stdout.readline()))
        job.stdin.write(b"\n")
        job.stdin.flush()
        self.assertIn(caller.run_to_any(*VFORKS), VFORKS)
        # The kernel handles the signal first, and then begins the call again.
        os.kill(job.pid, signal.SIGALRM)
        caller.go_on()
        self.assertEqual(job.communicate(timeout=60)[0], b"reads\n")


if __name__ == "__main__":
    unittest.main()
