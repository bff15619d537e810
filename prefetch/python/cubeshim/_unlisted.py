"""A thread that threading does not list. Programs join all threads that it lists, or wait until
only one is left, but ours ends with the process."""
import _thread


class UnlistedThread:
    """Implements the needed part of threading.Thread with daemon=True."""
    def __init__(self, target):
        self.target = target
        self.native_id = None
        self.work = _thread.allocate_lock()  # locked until the thread has ended
        self.work.acquire()

    def start(self):
        """Raises RuntimeError if there are no more threads, or if this interpreter (one of several
        of the process) may have no daemon threads."""
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
