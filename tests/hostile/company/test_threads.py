"""Another library hooks functions for all threads. In the library's own threads, these hooks may be
called only with the host's fd table."""
import pathlib
import sys
import unittest

from support import BUILD, Job, program

sys.path.append(str(pathlib.Path(__file__).parents[2] / "preload"))
from cluster_servers import Memcached  # noqa: E402

# The job reads metadata, then files by a list, two of them in blocks. It also has mappings, a fork,
# and a thread in addition to the library's.
JOB = """
import mmap, threading, time
def large(n): return bytes((i * 13 + n) & 255 for i in range(65536)) * 48
for name in sorted(os.listdir(D)): os.stat(f'{D}/{name}')
for epoch in range(3):
    check_all()
    # By now, the library's threads exist.
    while 'CUBESHIM_PREFIXES' in os.environ and len(os.listdir('/proc/self/task')) < 3:
        time.sleep(0.01)
    for n in range(2):
        with open(f'{D}/large{n}', 'rb') as f:
            assert f.read() == large(n)
            assert mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[-9:] == large(n)[-9:]
    for n in range(40):
        with open(f'{D}/sub/s{n}', 'rb') as f: assert f.read() == b'%d' % n * 3000
t = threading.Thread(target=check_all)
t.start()
t.join()
pid = os.fork()
if pid == 0:
    check_all()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print('read')
"""


class Hooks(Job):
    def setUp(self):
        super().setUp()
        for n in range(2):
            (self.data / f"large{n}").write_bytes(
                bytes((i * 13 + n) & 255 for i in range(65536)) * 48)
        (self.data / "sub").mkdir()
        for n in range(40):
            (self.data / "sub" / f"s{n}").write_bytes(b"%d" % n * 3000)
        names = [
            *(f"sub/s{n}" for n in range(40)), *(f"f{n}" for n in range(20)), "large0", "large1"
        ]
        (self.dir / "list").write_text("".join(f"{self.data}/{name}\n" for name in names))
        (self.dir / "disk").mkdir()
        self.settings |= {
            "CUBESHIM_PREFETCH_LIST": str(self.dir / "list"),
            "CUBESHIM_DISK_DIR": str(self.dir / "disk"), "CUBESHIM_MAX_FILE": "1M",
            "CUBESHIM_RAM": "64M", "CUBESHIM_BLOCK": "256K"
        }

    def check_hooks(self):
        hooks = program("libcompany_thread_hooks.so")
        for preload in ([*self.preload, hooks], [hooks, *self.preload]):
            for run in ("first", "next"):
                with self.subTest(preload=preload, run=run):
                    self.check(self.python(JOB), preload=preload)

    def test_nothing_hooked_is_called_in_a_thread_with_another_fd_table(self):
        for engine in ("threads", "uring"):
            self.settings["CUBESHIM_IO_ENGINE"] = engine
            self.check_hooks()

    def test_thread_local_storage_larger_than_a_stack(self):
        self.check(self.python(JOB), preload=[*self.preload, program("libcompany_large_tls.so")])

    def test_nothing_hooked_is_called_in_the_thread_of_the_cluster(self):
        with Memcached() as server:
            self.settings["CUBESHIM_CLUSTER"] = f"memcached://127.0.0.1:{server.port}"
            self.check_hooks()


if __name__ == "__main__":
    unittest.main()
