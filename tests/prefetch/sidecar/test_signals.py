"""Signals belong to the job. The library's threads never receive a signal, even when they are
busy."""
import signal
import unittest

from support import Job

SLOW = ("--open-us=3000",)


class Signals(Job):
    lagfs = SLOW

    def check_by_each_engine(self, text):
        for engine in ("uring", "threads"):
            with self.subTest(engine=engine):
                self.settings |= {"CUBESHIM_IO_ENGINE": engine, "CUBESHIM_PREFETCH_DEPTH": "8"}
                self.check_gated(self.script(text), misses=None)
                self.remove_regions()

    def test_blocked_in_all_library_threads(self):
        # Checks the signal masks that the kernel reports while the threads fetch. They block all
        # signals except SIGKILL, SIGSTOP and the two that libc reserves for itself. (Kernel workers
        # of io_uring are listed as threads, too; they receive no signals.)
        self.check_by_each_engine("""
need(8)
seen = 0
for task in os.listdir('/proc/self/task'):
    if int(task) == os.getpid(): continue
    try:
        with open(f'/proc/self/task/{task}/status') as f:
            status = dict(line.rstrip().split(':', 1) for line in f)
    except OSError: continue
    if 'iou-' in status['Name']: continue
    seen += 1
    must = sum(1 << n - 1 for n in range(1, 65) if n not in (9, 19, 32, 33))
    assert int(status['SigBlk'], 16) & must == must, status
assert seen > 0 or not os.environ.get('CUBESHIM_PREFETCH_LIST')
read_all()
""")

    def test_waited_for(self):
        # All threads of the job block the signal, as users of sigwait must. If a thread of the
        # library did not block it, the signal would kill the job.
        self.check_by_each_engine("""
import signal
numbers = [signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD,
           signal.SIGRTMIN + 3]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
for round in range(100):
    if round == 10: need(8)
    for number in numbers:
        os.kill(os.getpid(), number)
        assert signal.sigwait(numbers) == number
read_all()
""")

    def test_handled_by_the_jobs_own_thread(self):
        # A C handler notes the thread in which it runs. The timer's signals are sent to the
        # process, not to a thread.
        self.check_by_each_engine("""
import ctypes, signal, threading
libc = ctypes.CDLL(None)
ran = []
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
@HANDLER
def handler(number): ran.append(threading.get_native_id())
libc.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
need(COUNT)
while len(ran) < 50: pass
signal.setitimer(signal.ITIMER_REAL, 0)
assert set(ran) == {os.getpid()}, ran
read_all()
""")

    def test_queued_ones_are_all_counted(self):
        self.check_by_each_engine("""
import signal
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGUSR1, handler)
need(8)
for _ in range(500): os.kill(os.getpid(), signal.SIGUSR1)
print(count)
read_all()
""")

    def test_a_fatal_signal_during_prefetch_ends_the_job(self):
        for number in ("SIGTERM", "SIGINT", "SIGSEGV", "SIGABRT"):
            with self.subTest(number):
                script = self.script(f"""
import signal
signal.signal(signal.{number}, signal.SIG_DFL)
need(8)
os.kill(os.getpid(), signal.{number})
""")
                # No process is left that could remove the socket.
                self.socket_may_stay = True
                self.check_gated(script, misses=None, hits=None, status=-getattr(signal, number))
                self.remove_regions()


if __name__ == "__main__":
    unittest.main()
