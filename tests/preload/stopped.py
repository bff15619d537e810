"""Stops a thread of another process at the entry of a system call, while the rest of the process
continues (ptrace)."""
import contextlib
import ctypes
import os
import signal

SEIZE, INTERRUPT, SYSCALL, DETACH, SYSCALL_INFO = 0x4206, 0x4207, 24, 17, 0x420e
TRACE_SYSCALLS, TRACE_FORK, ENTRY = 1, 2, 1
CONTINUE, EVENT_MESSAGE, FORK_EVENT = 7, 0x4201, 1
THREADS_TOO = 0x40000000  # __WALL
IS_X86 = os.uname().machine == "x86_64"
PREAD, PREADV, MMAP = (17, 295, 9) if IS_X86 else (67, 69, 222)
FUTEX, STATX = (202, 332) if IS_X86 else (98, 291)
OPENAT, SCHED_YIELD, GETPPID = (257, 24, 110) if IS_X86 else (56, 124, 173)
MUNMAP = 11 if IS_X86 else 215
CLOSE, OPENAT2 = 3 if IS_X86 else 57, 437
FORKS = (56, 57, 435) if IS_X86 else (220, 435)  # clone, fork, clone3
VFORKS = (58,) if IS_X86 else FORKS
RENAMES = (82, 264, 316) if IS_X86 else (38, 276)  # rename, renameat, renameat2

DEADLINE_S = 300

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _too_late(*_) -> None:
    raise TimeoutError(f"the thread has neither stopped nor ended within {DEADLINE_S} s")


def _wait(thread: int) -> int:
    """Waits until the thread has stopped or ended, and returns its status. Call it on the main
    thread."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(DEADLINE_S)
    try:
        return os.waitpid(thread, THREADS_TOO)[1]
    finally:
        signal.alarm(0)


class Stopped:
    def __init__(self, thread: int):
        self.thread = thread
        self._ask(SEIZE, data=TRACE_SYSCALLS | TRACE_FORK)
        self._ask(INTERRUPT)
        _wait(thread)

    def _ask(self, request: int, address=None, data=None) -> int:
        result = _libc.ptrace(request, self.thread, address, data)
        if result < 0:
            raise OSError(ctypes.get_errno(), "ptrace")
        return result

    def run_to(self, is_wanted) -> bool:
        """Runs until is_wanted(number, arguments) is true for a system call that is about to begin.
        Returns False if the thread has ended before."""
        info = (ctypes.c_uint64 * 11)()  # 24 bytes of head, the number, six arguments
        deliver = 0
        while True:
            self._ask(SYSCALL, data=deliver)
            status = _wait(self.thread)
            if not os.WIFSTOPPED(status):
                return False
            stop = os.WSTOPSIG(status)
            deliver = 0 if stop & 0x80 or stop == signal.SIGTRAP or status >> 16 else stop
            if stop != signal.SIGTRAP | 0x80:
                continue
            self._ask(SYSCALL_INFO, ctypes.sizeof(info), info)
            if info[0] & 0xff == ENTRY and is_wanted(info[3], list(info[4:10])):
                return True

    def run_to_any(self, *calls: int) -> int | None:
        """Like run_to, for any of these system calls. Returns the number of the call, or None if
        the thread has ended."""
        found = []
        self.run_to(lambda number, _: number in calls and not found.append(number))
        return found[0] if found else None

    def run_to_fork(self) -> "Stopped":
        """Runs until the thread has forked. Returns the child, which has not begun to run."""
        status = 0
        while status >> 8 != signal.SIGTRAP | FORK_EVENT << 8:
            self._ask(CONTINUE)
            status = _wait(self.thread)
        pid = ctypes.c_ulong()
        self._ask(EVENT_MESSAGE, data=ctypes.addressof(pid))
        child = Stopped.__new__(Stopped)
        child.thread = pid.value
        _wait(child.thread)
        return child

    def go_on(self) -> None:
        """Lets the thread run without further stops. No-op if it has ended."""
        try:
            self._ask(DETACH)
        except ProcessLookupError:  # it is running, or has ended
            with contextlib.suppress(ProcessLookupError):
                self._ask(INTERRUPT)
                _wait(self.thread)
                self._ask(DETACH)
