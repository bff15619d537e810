"""Runs with other preloaded libraries: allocators, libeatmydata, libfaketime. They come before or
after this library in LD_PRELOAD."""
import itertools
import os
import pathlib
import sys
import unittest

from support import LIBRARY, Job, program

LIBS = pathlib.Path("/usr/lib/x86_64-linux-gnu")
JEMALLOC, MIMALLOC = LIBS / "libjemalloc.so.2", LIBS / "libmimalloc.so.2"
TCMALLOC = LIBS / "libtcmalloc_minimal.so.4"
EATMYDATA, FAKETIME = LIBS / "libeatmydata.so", LIBS / "faketime" / "libfaketimeMT.so.1"
THREADS_AND_FORKS = """
import threading
def reader():
    for _ in range(5): check_all()
threads = [threading.Thread(target=reader) for _ in range(4)]
for t in threads: t.start()
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        check_all()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
for t in threads: t.join()
print('read')
"""
LOADER = """
import torch.utils.data as data
class Files(data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, n):
        check(n)
        return n, len(CONTENT[n])
for epoch in range(2):
    for n, size in data.DataLoader(Files(), batch_size=5, num_workers=2):
        print(n.tolist(), size.tolist())
"""


def need(*libraries):
    for library in libraries:
        if not library.exists():
            raise unittest.SkipTest(f"{library} is not installed")


class Allocators(Job):
    def orders(self, *others):
        need(*others)
        others = [str(o) for o in others]
        return [[LIBRARY, *others], [*others, LIBRARY]]

    def all_jobs(self, *others):
        for preload in self.orders(*others):
            with self.subTest(preload=preload):
                self.check_job("read:DIR", "read:DIR", "threads:DIR:8:65536", "fork:DIR",
                               "vfork:DIR", "held", "send:DIR", preload=preload)
                self.check(self.python(THREADS_AND_FORKS), preload=preload)

    def test_jemalloc(self):
        self.all_jobs(JEMALLOC)

    def test_mimalloc(self):
        self.all_jobs(MIMALLOC)

    def test_tcmalloc(self):
        self.all_jobs(TCMALLOC)

    def test_eatmydata(self):
        self.all_jobs(EATMYDATA)

    def test_several(self):
        self.all_jobs(JEMALLOC, EATMYDATA)
        self.all_jobs(EATMYDATA, MIMALLOC)

    def tried(self, run):
        """torch forks its workers even while a thread holds an allocator's lock. So a worker can
        hang even without the library. Only a hang in each run is the library's fault."""
        for is_last in (False, False, True):
            try:
                return run()
            except AssertionError as error:
                if is_last or " the library it hangs: " not in str(error):
                    raise
                print("once more:", str(error).splitlines()[0], file=sys.stderr)

    def test_torch_loader(self):
        for allocator in (JEMALLOC, MIMALLOC):
            need(allocator)
            native = self.tried(
                lambda: self.run_one(self.python(LOADER), shim=False, preload=[str(allocator)]))
            for preload in self.orders(allocator):
                with self.subTest(preload=preload):
                    self.tried(
                        lambda: self.check(self.python(LOADER), preload=preload, native=native))


class ByNumber(Job):
    """Functions that only call syscall(), preloaded before the library, after it, and in the
    program."""
    def preloads(self):
        other = program("libcompany_by_number.so")
        return [[LIBRARY, other], [other, LIBRARY]]

    def test_a_library(self):
        for preload in self.preloads():
            with self.subTest(preload=preload):
                self.check_job("read:DIR", "read:DIR", "threads:DIR:4:65536", "fork:DIR",
                               "vfork:DIR", "held", "send:DIR", preload=preload)

    def test_the_program_itself(self):
        self.check([
            program("company_by_number_inside"),
            *self.steps("read:DIR", "read:DIR", "fork:DIR", "vfork:DIR", "held", "send:DIR")
        ])

    def test_changes_are_seen(self):
        for preload in self.preloads():
            with self.subTest(preload=preload):
                self.check(
                    self.python("""
import socket
for i in range(3):
    check_all()
    path, other = f'{D}/f1', f'{D}/new'
    for change in (lambda: os.truncate(path, 3), lambda: os.chmod(path, 0o600),
                   lambda: os.unlink(path)):
        change()
        try: print(os.stat(path).st_size, oct(os.stat(path).st_mode), len(open(path, 'rb').read()))
        except OSError as error: print(error)
    with open(other, 'wb') as file: file.write(CONTENT[1])
    os.rename(other, path)
    print(open(path, 'rb').read() == CONTENT[1])
    fd = os.open(f'{D}/f5', os.O_RDONLY)
    print(os.read(fd, 10) == CONTENT[5][:10], os.read(os.dup(fd), 10) == CONTENT[5][10:20],
          os.lseek(fd, 0, os.SEEK_CUR))
    one, two = socket.socketpair()
    socket.send_fds(one, [b'x'], [fd])
    print(os.read(socket.recv_fds(two, 1, 1)[1][0], 10) == CONTENT[5][20:30])
"""), preload=preload)


class FakedClocks(Job):
    """libfaketime: the ages of records follow the kernel's clock, not the clock that the program
    sees."""

    FAKES = ({"FAKETIME": "-1y"}, {"FAKETIME": "+1y"}, {"FAKETIME": "@1999-12-31 23:59:58"},
             {"FAKETIME": "+0 x100"}, {"FAKETIME": "-5d x0.1"
                                      }, {"FAKETIME": "@2040-01-01 00:00:00 i2.0"})

    def setUp(self):
        super().setUp()
        need(FAKETIME)

    def orders(self):
        return [[LIBRARY, str(FAKETIME)], [str(FAKETIME), LIBRARY]]

    def test_jobs_read_right_bytes_under_any_clock(self):
        for fake, preload in itertools.product(self.FAKES, self.orders()):
            with self.subTest(fake=fake, preload=preload):
                self.env.update(fake)
                self.check_job("read:DIR", "read:DIR", "threads:DIR:8:65536", "fork:DIR",
                               "vfork:DIR", "held", preload=preload)

    def test_python_and_loader(self):
        for preload in self.orders():
            self.env.update({"FAKETIME": "+1y x10"})
            self.check(self.python(THREADS_AND_FORKS), preload=preload)
            self.check(self.python(LOADER), preload=preload)

    def test_file_times_are_those_that_the_program_would_see(self):
        self.env["FAKETIME"] = "-1y"
        script = self.python("""
check_all()
for n in range(20):
    path = f'{D}/f{n}'
    with open(path) as f: print(os.stat(path).st_mtime, os.fstat(f.fileno()).st_mtime)
""")
        self.check(script, preload=[str(FAKETIME), LIBRARY])

    # A process reads all files, a file changes without the cache's knowledge, and the process reads
    # again after its faked clock has jumped. (libfaketime reads FAKETIME_TIMESTAMP_FILE at each
    # use.)
    JUMP = """
import subprocess, time
stamp = os.environ['FAKETIME_TIMESTAMP_FILE']
def set_clock(text):
    with open(stamp, 'w') as f: f.write(text)
def seen():
    with open(D + '/f2', 'rb') as f: return f.read()[:1]
check_all()
first = seen()
# A program without the library changes the file, so the change is not reported.
env = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}
change = 'cd ' + D + '; printf changed > g; touch -d @1500000000 g; mv g f2'
subprocess.run(['/bin/sh', '-c', change], env=env, check=True)
for jump in ('+1h', '-1h', '+10y', '-10y'):
    set_clock(jump)
    print(jump, seen() == first)
"""

    def test_ttl_goes_by_the_real_clock(self):
        stamp = self.dir / "clock"
        self.env.update({"FAKETIME_TIMESTAMP_FILE": str(stamp), "FAKETIME_NO_CACHE": "1"})
        for preload in self.orders():
            for ttl, still_old in ((100_000, True), (0, False)):
                with self.subTest(preload=preload, ttl=ttl):
                    stamp.write_text("+0")
                    (self.data / "f2").write_bytes(bytes((i * 31 + 14) & 255 for i in range(100)))
                    os.utime(self.data / "f2", (1_600_000_000, 1_600_000_000))
                    self.settings["CUBESHIM_CONSISTENCY"] = f"ttl:{ttl}" if ttl else "open"
                    done = self.run_one(self.python(self.JUMP), shim=True, preload=preload)
                    self.assertEqual(done.status, 0, str(done))
                    self.assertEqual(
                        done.out.split(),
                        [w for j in ("+1h", "-1h", "+10y", "-10y") for w in (j, str(still_old))])


if __name__ == "__main__":
    unittest.main()
