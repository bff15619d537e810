"""Sandboxes and limits: io_uring is refused, threads are refused, or there is little memory. The
job reads the right bytes, and the library logs at most one line."""
import os
import unittest

from support import COUNT, LIBRARY, Job, demand_misses, program

MB = 1 << 20
URING = "io_uring_setup,io_uring_enter,io_uring_register"
PLAIN_CALLS = ("read,write,openat,close,newfstatat,fstat,lseek,exit_group,exit,rt_sigprocmask,"
               "futex,munmap,madvise,brk,mmap")


class Sandboxed(Job):
    """The filter exists before the library is loaded. A static program, which never loads the
    library, installs it."""
    def check_refused(self, how, calls, says=None, fetched=COUNT, **settings):
        self.settings |= settings
        job = [
            program("company_job"), *self.steps("one:DIR/trigger", "wait", "read:DIR", "fork:DIR")
        ]
        native = self.run_one(job, shim=False)
        command = [
            program("company_static"), f"seccomp:{how}:{calls}", "exec", "/usr/bin/env",
            f"LD_PRELOAD={LIBRARY}", *job
        ]
        misses = 1 if fetched else COUNT + 1
        # If nothing is fetched, the job does not wait, and can end before the line is logged.
        tries = 1 if fetched else 20
        return self.check_gated(command, fetched=fetched, native=native, preload=[], says=says,
                                misses=misses, hits=None, tries=tries)

    def test_io_uring_refused(self):
        for how in ("EPERM", "ENOSYS", "EACCES"):
            with self.subTest(how):
                self.check_refused(how, URING)

    def test_io_uring_refused_that_was_asked_for(self):
        self.check_refused("EPERM", URING, CUBESHIM_IO_ENGINE="uring",
                           says="io_uring.*(threads|refused)")

    def test_io_uring_that_kills(self):
        # Some sandboxes kill the process. So if there is a filter, calls that it might punish in
        # this way are not tried.
        self.check_refused("kill", URING)

    def test_parts_of_io_uring_refused(self):
        for call in ("io_uring_enter", "io_uring_register"):
            with self.subTest(call):
                self.check_refused("EPERM", call)

    def test_an_fd_table_of_its_own_refused(self):
        # Without its own fd table, the sidecar fetches nothing, because its fds would interfere
        # with the job's fds.
        done = self.check_refused("ENOSYS", "close_range", fetched=0, says="prefetch")
        self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))

    def test_priorities_refused(self):
        self.check_refused("EPERM", "prctl,prlimit64")


class NoThreads(Job):
    def check_alone(self, done, native):
        self.assertEqual((done.status, done.out, done.theirs), (0, native.out, native.err),
                         str(done))
        self.assertLessEqual(len(done.ours), 1, str(done))
        self.assertEqual(done.report["prefetch"]["fetched"], 0, str(done))
        self.assertEqual((demand_misses(done.report), done.hits), (COUNT + 1, COUNT), str(done))

    def test_by_a_sandbox(self):
        job = [program("company_job"), *self.steps("one:DIR/trigger", "read:DIR", "read:DIR")]
        native = self.run_one(job, shim=False)
        for how in ("EPERM", "ENOSYS"):
            with self.subTest(how):
                command = [
                    program("company_static"), f"seccomp:{how}:clone3,clone", "exec",
                    "/usr/bin/env", f"LD_PRELOAD={LIBRARY}", *job
                ]
                self.check_alone(self.run_one(command, shim=True, preload=[]), native)

    def test_by_a_limit(self):
        # A user under which no other test runs processes.
        self.nobody = 1_000_000 + os.getpid()
        self.copy_for_others()
        steps = self.steps("one:DIR/trigger", "read:DIR", "read:DIR")
        plain, command = self.nobodys(self.dir / "job", *steps)
        native = self.run_one(plain, shim=False, preload=[])
        self.check_alone(
            self.run_one(command, shim=True, preload=[], preexec_fn=self.limited(NPROC=1)), native)


class Small(Job):
    def check_small(self, **limits):
        steps = self.steps("one:DIR/trigger", "wait", "read:DIR", "threads:DIR:4:65536", "fork:DIR",
                           "vfork:DIR")
        command = [program("company_job"), *steps]
        return self.check_gated(command, fetched=COUNT, preexec_fn=self.limited(**limits))

    def test_stack(self):
        self.check_small(STACK=64 << 10)

    def test_address_space(self):
        # This much address space was enough without a sidecar.
        self.check_small(AS=200 * MB)

    def test_number_of_fds(self):
        self.check_small(NOFILE=16)

    def test_locked_memory(self):
        for engine in ("uring", "threads"):
            with self.subTest(engine):
                self.settings["CUBESHIM_IO_ENGINE"] = engine
                self.check_small(MEMLOCK=0, CORE=0)

    def test_data_segment(self):
        self.check_small(DATA=64 * MB)

    def test_threads_of_the_job_with_the_smallest_stacks(self):
        # The first thread that reads starts the sidecar, on a stack of 16 KB.
        done = self.check([program("company_job"), *self.steps("threads:DIR:8:16384", "read:DIR")])
        read = done.hits + demand_misses(done.report) + done.report["bypassed"]["error"]
        self.assertEqual(read, done.report["opens"], str(done))


class SandboxedLater(Job):
    """The job installs a filter on itself while the sidecar works."""

    lagfs = ("--open-us=20000",)

    def test_that_kills_for_what_a_reader_does_not_need(self):
        steps = self.steps("one:DIR/trigger", "wait", f"allow:{PLAIN_CALLS}", "read:DIR")
        # A filter turns the cache off for files that are opened later.
        self.check_gated([program("company_job"), *steps], fetched=COUNT, hits=None, misses=None)

    def test_on_all_its_threads(self):
        # The filter also applies to the sidecar's threads. If they have not ended before, the
        # filter kills the job.
        script = self.script("""
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
SYS_seccomp, TSYNC, KILL, ALLOW = 317, 1, 0x80000000, 0x7fff0000
FORBIDDEN = (425, 426, 427, 437, 332, 295)  # io_uring_*, openat2, statx, preadv
code = [(0x20, 0, 0, 0)] + [(0x15, len(FORBIDDEN) - i, 0, n) for i, n in enumerate(FORBIDDEN)]
code += [(0x06, 0, 0, ALLOW), (0x06, 0, 0, KILL)]
program = b''.join(struct.pack('HBBI', *c) for c in code)
buffer = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(code), ctypes.addressof(buffer)))
need(COUNT // 4)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(SYS_seccomp, 1, TSYNC, filter) == 0, ctypes.get_errno()
read_all()
read_all()
""")
        self.settings["CUBESHIM_PREFETCH_DEPTH"] = "2"
        for engine in ("uring", "threads"):
            with self.subTest(engine):
                self.settings["CUBESHIM_IO_ENGINE"] = engine
                self.check_gated(script, misses=None, hits=None)


if __name__ == "__main__":
    unittest.main()
