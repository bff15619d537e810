"""Sandboxes made of seccomp filters. A filter is installed before the program starts, or by the
program itself while it reads."""
import os
import unittest

from support import LIBRARY, Job, program

STEPS = ("read:DIR", "read:DIR", "threads:DIR:4:262144", "fork:DIR", "vfork:DIR", "held",
         "send:DIR")
# The library also works without these calls.
WORKS_WITHOUT = (
    "io_uring_setup memfd_create get_robust_list openat2 statx membarrier madvise mremap mlock "
    "copy_file_range pidfd_open pidfd_send_signal rseq close_range process_vm_readv "
    "process_vm_writev unlinkat prlimit64 fchmod getcwd kill readlinkat dup3 rt_sigpending "
    "rt_sigtimedwait rt_sigprocmask getpid getuid"
).split()
# The library makes no region without these calls: (call, what the line on stderr says).
NO_CACHE_WITHOUT = (
    ("fallocate", "cannot make a region in /dev/shm: fallocate: "),
    ("linkat", "cannot make a region in /dev/shm: linkat: "),
    ("ftruncate", "cannot make a region in /dev/shm: ftruncate: "),
    ("statfs", "CUBESHIM_RAM_DIR=/dev/shm: .*; it takes a directory on a tmpfs"),
    ("set_robust_list",
     "a sandbox refuses the system call set_robust_list, which reports the death of a process"),
    ("fcntl",
     "a sandbox refuses locks of open files .F_OFD_SETLK., which show whether a process is alive"))
# The calls that a reader needs by itself: open, read, close, end.
PLAIN_CALLS = "read,write,openat,close,newfstatat,fstat,lseek,exit_group"


class Before(Job):
    """The filter exists before the library is loaded. A static program, which never loads the
    library, installs it."""
    def setUp(self):
        super().setUp()
        self.plain = {}

    def launch(self, how, calls, *steps):
        preload = f"LD_PRELOAD={LIBRARY}"
        command = [program("company_static"), f"seccomp:{how}:{calls}", "exec", "/usr/bin/env"]
        job = [program("company_job"), *self.steps(*steps)]
        if steps not in self.plain:
            self.plain[steps] = self.run_one(job, shim=False)
        plain = self.plain[steps]
        shim = self.run_one(command + [preload] + job, shim=True, preload=[])
        self.assertEqual((plain.status, plain.ours), (0, []), str(plain))
        self.assertEqual((shim.status, shim.out, shim.theirs), (0, plain.out, plain.err), str(shim))
        return shim

    def test_refused_calls_that_the_cache_does_not_need(self):
        for call in WORKS_WITHOUT:
            for error in ("EPERM", "ENOSYS", "EACCES"):
                with self.subTest(call=call, error=error):
                    shim = self.launch(error, call, *STEPS)
                    self.assertEqual(shim.ours, [], str(shim))
                    self.assertGreater(shim.hits, 20, str(shim))
                    self.remove_regions()

    def test_there_is_no_cache_without_these_calls(self):
        for call, says in NO_CACHE_WITHOUT:
            for error in ("EPERM", "ENOSYS"):
                with self.subTest(call=call, error=error):
                    shim = self.launch(error, call, *STEPS)
                    self.assertEqual(len(shim.ours), 1, str(shim))
                    self.assertRegex(shim.ours[0], "files are read without a cache: " + says)
                    self.assertEqual(shim.hits, 0)
                    self.assertEqual(self.regions(), [])

    def test_no_file_is_fetched_without_preadv(self):
        shim = self.launch("EPERM", "preadv", *STEPS)
        self.assertEqual((shim.hits, shim.ours), (0, []), str(shim))
        self.assertGreater(shim.report["bypassed"]["busy"], 0)

    def test_calls_that_it_never_makes_may_kill(self):
        never = (
            "io_uring_setup,io_uring_enter,io_uring_register,membarrier,mlock,pidfd_open,"
            "pidfd_send_signal,process_vm_readv,"
            "process_vm_writev,copy_file_range,sysinfo")
        shim = self.launch("kill", never, *STEPS)
        self.assertGreater(shim.hits, 0, str(shim))

    # Calls that threads that read ahead make only without a sandbox.
    NEVER = (
        "pidfd_open,pidfd_getfd,sched_getscheduler,sched_setscheduler,sched_setaffinity,"
        "getpriority,setpriority,"
        "ioprio_get,ioprio_set,mincore")

    def read_large(self, how, calls, from_shell=True):
        """A shell starts the reader under the filter, as in a container, so clone is known to be
        allowed."""
        (self.data / "f20").write_bytes(bytes(i // 7 & 255 for i in range(6_000_000)))
        os.utime(self.data / "f20", (1_600_000_000, 1_600_000_000))
        self.settings |= {"CUBESHIM_MAX_FILE": "1M", "CUBESHIM_BLOCK": "64K"}
        job = [program("company_job"), *self.steps("read:DIR", "read:DIR")]
        shell = ["/bin/sh", "-c", 'LD_PRELOAD=%s "$@"; exit $?' %
                 LIBRARY, "sh"] if from_shell else ["/usr/bin/env", f"LD_PRELOAD={LIBRARY}"]
        plain = self.run_one(job, shim=False)
        shim = self.run_one(
            [program("company_static"), f"seccomp:{how}:{calls}", "exec", *shell, *job], shim=True,
            preload=[])
        self.assertEqual((plain.status, plain.ours), (0, []), str(plain))
        self.assertEqual((shim.status, shim.out, shim.theirs), (0, plain.out, plain.err), str(shim))
        self.assertGreater(shim.report["blocks"]["hits"], 0, str(shim))
        return shim.report["blocks"]["ahead"]

    def test_large_files_are_read_ahead_where_copies_of_fds_are_refused(self):
        self.assertGreater(self.read_large("EPERM", "pidfd_getfd"), 1 << 20)

    def test_large_files_are_read_ahead_without_calls_that_may_kill(self):
        self.assertGreater(self.read_large("kill", self.NEVER), 1 << 20)

    def test_large_files_are_not_read_ahead_where_a_call_of_the_threads_kills(self):
        for calls in ("close_range", "clone3", "tgkill", f"close_range,{self.NEVER}"):
            with self.subTest(calls):
                self.assertEqual(self.read_large("kill", calls), 0)
        self.assertEqual(self.read_large("EPERM", "close_range"), 0)

    def test_nothing_is_cloned_where_that_may_kill(self):
        self.assertEqual(self.read_large("kill", "clone,clone3", from_shell=False), 0)

    def test_a_cluster_makes_no_call_that_kills(self):
        """A filter for programs that read files and have threads: it allows neither sockets nor
        priorities."""
        # No process listens at this address.
        self.settings |= {"CUBESHIM_CLUSTER": "memcached://127.0.0.1:1", "CUBESHIM_LOG": "info"}
        job = [program("company_job"), *self.steps("read:DIR", "threads:DIR:4:262144", "fork:DIR")]
        shell = ["/bin/sh", "-c", 'LD_PRELOAD=%s "$@"; exit $?' % LIBRARY, "sh"]
        plain = self.run_one(job, shim=False)
        for calls, has_thread in (("socket", False), ("connect", False), ("ppoll", False),
                                  ("setpriority", False), ("sched_getscheduler", False), ("mincore",
                                                                                          True)):
            with self.subTest(calls):
                shim = self.run_one(
                    [program("company_static"), f"seccomp:kill:{calls}", "exec", *shell, *job],
                    shim=True, preload=[])
                self.assertEqual((shim.status, shim.out), (0, plain.out), str(shim))
                self.assertEqual("the program is in a sandbox" in str(shim.ours), not has_thread,
                                 str(shim))


class Within(Job):
    """The program installs the filter on itself. After that, the library makes no call that the
    program does not make."""
    def test_a_filter_that_kills_for_everything_a_reader_does_not_need(self):
        done = self.check_job("read:DIR", "read:DIR", "hold:DIR", f"allow:{PLAIN_CALLS}",
                              "read:DIR", "held")
        self.assertEqual(done.report["hits"]["ram"], 20 + 1, str(done))
        self.assertEqual(self.regions(), [])

    def test_a_filter_before_the_first_read(self):
        # The buffer of stdout needs brk.
        self.check_job(f"allow:{PLAIN_CALLS},brk,mmap,getrandom", "read:DIR", "read:DIR",
                       hits=False)

    def test_children_of_the_sandboxed(self):
        calls = PLAIN_CALLS + (",clone,wait4,rseq,set_robust_list,munmap,mmap,brk,rt_sigprocmask,"
                               "gettid,getrandom")
        self.check_job("read:DIR", "read:DIR", f"allow:{calls}", "read:DIR", "fork:DIR")

    def test_by_the_system_call_itself(self):
        script = self.python("""
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
check_all(); check_all()
held = open(D + '/f7', 'rb', buffering=0)
assert held.read(10) == CONTENT[7][:10]
PR_SET_NO_NEW_PRIVS, SYS_seccomp, KILL, ALLOW = 38, 317, 0x80000000, 0x7fff0000
FORBIDDEN = (437, 332, 295, 265, 25)  # openat2 statx preadv linkat mremap
code = [(0x20, 0, 0, 0)] + [(0x15, len(FORBIDDEN) - i, 0, n) for i, n in enumerate(FORBIDDEN)]
code += [(0x06, 0, 0, ALLOW), (0x06, 0, 0, KILL)]
program = b''.join(struct.pack('HBBI', *c) for c in code)
buffer = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(code), ctypes.addressof(buffer)))
# The first call asks whether filters exist; there is none yet.
assert libc.syscall(SYS_seccomp, 1, 0, None) == -1 and ctypes.get_errno() == 14
check_all()
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.syscall(SYS_seccomp, 1, 0, filter) == 0, ctypes.get_errno()
check_all()
assert held.read() == CONTENT[7][10:]
print('done')
""")
        done = self.check(script)
        self.assertEqual(done.report["hits"]["ram"], 20 * 2 + 1, str(done))

    def test_a_filter_that_refuses_after_attaching(self):
        for error in ("EPERM", "ENOSYS", "EACCES"):
            refused = f"seccomp:{error}:openat2,statx,mremap,fallocate,memfd_create,madvise"
            self.check_job("read:DIR", "read:DIR", refused, "read:DIR", "fork:DIR", "send:DIR")


if __name__ == "__main__":
    unittest.main()
