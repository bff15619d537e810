"""A thread that the module threading does not list. Some programs join all listed threads, or wait
until only one is left, but our thread ends only with the process."""
import _thread


class UnlistedThread:
    """Implements the needed part of threading.Thread with daemon=True."""
    def __init__(self, target):
        self.target = target
        self.native_id = None
        self.work = _thread.allocate_lock()  # locked until the thread has ended
        self.work.acquire()

    def start(self):
        """Raises RuntimeError if no thread can be created, or if this interpreter allows no daemon
        threads (which is possible if the process has several interpreters)."""
        if hasattr(
                _thread,
                "daemon_threads_allowed") and not _thread.daemon_threads_allowed():  # Python 3.12
            raise RuntimeError("no daemon threads here")
        _thread.start_new_thread(self.run, ())

    def run(self):
        if hasattr(_thread, "get_native_id"):  # Python 3.8
            self.native_id = _thread.get_native_id()
        try:
            self.target()
        finally:
            self.work.release()

    def is_alive(self):
        return self.work.locked()

    def join(self, timeout=-1):
        if self.work.acquire(timeout=timeout):
            self.work.release()
