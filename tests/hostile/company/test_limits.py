"""Limits of the process and of its control group."""
import os
import pathlib
import signal
import subprocess
import unittest

from support import BUILD, Job, need_root, program

STEPS = ("read:DIR", "read:DIR", "threads:DIR:4:65536", "fork:DIR", "vfork:DIR", "held",
         "signal:DIR:8192", "send:DIR")
FEW_STEPS = ("read:DIR", "read:DIR", "fork:DIR", "vfork:DIR", "held", "send:DIR")
MB = 1 << 20


class Limits(Job):
    def test_number_of_fds(self):
        self.check_job(*STEPS, preexec_fn=self.limited(NOFILE=64))
        self.check_job("read:DIR", "read:DIR", "fork:DIR", preexec_fn=self.limited(NOFILE=8))

    def test_all_fds_in_use(self):
        script = self.python("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
check_all()
fds = []
try:
    while True: fds.append(os.open(f'{D}/f{len(fds) % 20}', os.O_RDONLY))
except OSError as e: print(len(fds), e.errno)
for i, fd in enumerate(fds):
    got = b''
    while part := os.read(fd, 1 << 20): got += part
    assert got == CONTENT[i % 20]
if os.fork() == 0:
    for i, fd in enumerate(fds): assert os.pread(fd, 1 << 20, 0) == CONTENT[i % 20]
    os._exit(0)
print(os.wait()[1])
for fd in fds: os.close(fd)
check_all()
""")
        self.check(script)

    def test_files_that_others_move_while_all_fds_are_in_use(self):
        with_library = self.THERE.replace("env={}, ", "")
        self.check(self.python(with_library + """
import resource, threading
check_all()
files = {i: os.open(f'{D}/f{i}', os.O_RDONLY) for i in (4, 5)}
end = threading.Event()
threading.Thread(target=end.wait, daemon=True).start()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as e: print(e.errno)
there(f'mv {D}/f4 {D}/f5 {D}/..')
for i, fd in files.items():
    assert os.fstat(fd).st_size == len(CONTENT[i])
    assert os.read(fd, 10) == CONTENT[i][:10] and os.lseek(fd, 0, os.SEEK_CUR) == 10
    assert os.pread(fd, 1 << 20, 10) == CONTENT[i][10:]
for fd in held: os.close(fd)
for i, fd in files.items(): assert os.read(fd, 1 << 20) == CONTENT[i][10:]
end.set()
there(f'mv {D}/../f4 {D}/../f5 {D}')
"""))

    def test_address_space(self):
        # Below the limit, the region does not fit: one line, and plain reads. Above it, the region
        # fits.
        self.check_job(
            *FEW_STEPS, preexec_fn=self.limited(AS=48 * MB), hits=False,
            says="without a cache: cannot make a region in /dev/shm: mmap: Cannot allocate memory")
        self.check_job(*FEW_STEPS, preexec_fn=self.limited(AS=200 * MB))

    def test_data_segment(self):
        # The loader would end the program if the table of open files were part of the library's
        # data. Only the part of the table that open files use counts.
        self.check_job(*STEPS, preexec_fn=self.limited(DATA=64 * MB))
        self.check_job(*FEW_STEPS, preexec_fn=self.limited(DATA=16 * MB))

    def test_locked_memory_and_processes_and_core(self):
        self.check_job(*STEPS, preexec_fn=self.limited(MEMLOCK=0, CORE=0))
        # No thread is allowed. This limit does not apply to root.
        self.check_job("read:DIR", "read:DIR", "threads:DIR:4:65536",
                       preexec_fn=self.limited(NPROC=1))

    def test_all_memory_locked(self):
        # The region and the table of open files do not count towards the memory that the program
        # locks.
        self.settings["CUBESHIM_RAM"] = "256M"
        lock = ["/usr/bin/setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"
               ] if os.geteuid() == 0 else []
        for flags in (1, 2, 3, 7):
            for launcher in ([], lock):
                with self.subTest(flags=flags, launcher=launcher):
                    self.check_job("half:DIR", f"lockall:{flags}", "read:DIR", "hold:DIR", "held",
                                   "fork:DIR", launcher=launcher,
                                   preexec_fn=self.limited(MEMLOCK=8 * MB))
                    self.check_job(f"lockall:{flags}", "read:DIR", "read:DIR", launcher=launcher,
                                   preexec_fn=self.limited(MEMLOCK=8 * MB))
        # Locking all memory exceeds this limit even without the library.
        self.check_job("read:DIR", "lockall:1", "read:DIR", launcher=lock,
                       preexec_fn=self.limited(MEMLOCK=65536))

    def test_file_size(self):
        # A fallocate or a write beyond the limit causes SIGXFSZ, so the library must not try.
        for limit in (8192, MB, 31 * MB):
            with self.subTest(limit):
                self.check_job(*FEW_STEPS, hits=False, preexec_fn=self.limited(FSIZE=limit),
                               says="no room for a cache: the limit of file sizes")
        self.check_job(*STEPS, preexec_fn=self.limited(FSIZE=64 * MB))

    def test_file_size_once_attached(self):
        self.check_job("half:DIR", f"limit:fsize:{MB}", "read:DIR", "hold:DIR", "held", "fork:DIR",
                       "send:DIR")

    def test_limits_lowered_below_open_files(self):
        self.settings["CUBESHIM_STATS"] = "off"  # no report could be written
        for limit in ("RLIMIT_NOFILE, (10, 20)", "RLIMIT_FSIZE, (1000, 1000)"):
            self.check(self.python(f"""
import fcntl, resource
check_all()
fds = [os.open(f'{{D}}/f{{n}}', os.O_RDONLY) for n in range(20)]
for fd in fds: os.read(fd, 3)
resource.setrlimit(resource.{limit})
child = os.fork()
if child == 0: os._exit(sum(os.read(fd, 9) != CONTENT[n][3:12] for n, fd in enumerate(fds)))
print(os.waitpid(child, 0)[1], [os.read(fd, 9) == CONTENT[n][12:21] for n, fd in enumerate(fds)])
for fd in fds: fcntl.flock(fd, fcntl.LOCK_SH)
"""), hits=None)

    def test_copy_without_room_is_read_by_children(self):
        self.settings["CUBESHIM_STATS"] = "off"
        (self.dir / "far").mkdir()
        self.settings["CUBESHIM_DISK_DIR"] = str(self.dir)  # makes a ring
        self.check(self.python(self.THERE + """
import mmap, resource
check_all()
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
fd = os.open(D + '/f5', os.O_RDONLY)
os.read(fd, 3)
there(f'mv {D}/f5 {sys.argv[2]}')
child = os.fork()
if child == 0:
    check(6)
    try:
        mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:9]
    except OSError:
        mapped = CONTENT[5][:9]  # there is no room for a copy to map, either
    os._exit(os.read(fd, 9) != CONTENT[5][3:12] or os.fstat(fd).st_size != len(CONTENT[5]) or
             mapped != CONTENT[5][:9])
print(os.waitpid(child, 0)[1], os.pread(fd, 9, 12) == CONTENT[5][12:21])
there(f'mv {sys.argv[2]} {D}/f5')
""") + [self.dir / "far" / "other"], hits=None, quiet=False) # a line says that the disk has no room

    def test_report_beyond_the_file_size(self):
        self.settings["CUBESHIM_STATS_FORMAT"] = "text"
        command = [program("company_job"), *self.steps("read:DIR", "limit:fsize:0")]
        done = self.run_one(command, shim=True, stdout=subprocess.DEVNULL)
        self.assertEqual(done.status, 0, "SIGXFSZ by a report")

    def test_stack(self):
        self.check_job(*STEPS, preexec_fn=self.limited(STACK=128 << 10))

    def test_smallest_thread_stacks(self):
        self.check_job("read:DIR", "read:DIR", "threads:DIR:8:16384")
        # In this job, a thread with a small stack makes the region, and such threads have misses.
        self.check_job("threads:DIR:8:16384", "read:DIR")

    def test_names_on_the_smallest_thread_stacks(self):
        # A rename, and each open in a pack, must fit on such a stack.
        (self.data / "up").symlink_to(".")
        steps = ("small:DIR:16384", "read:DIR", "small:DIR:16384")
        self.check_job(*steps, hits=None)
        self.check_job("read:DIR", "change:DIR:16384", "read:DIR", hits=None)
        self.check_job("change:DIR:16384", hits=None)
        with self.subTest("pack"):
            pack = self.dir / "data.cube"
            subprocess.run([BUILD / "cubeshim", "pack", self.data, pack], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            del self.settings["CUBESHIM_PREFIXES"]
            self.settings["CUBESHIM_PACKS"] = f"{self.data}={pack}"
            self.check_job(*steps, hits=None)
            self.check_job("threads:DIR:8:16384", hits=None)

    def test_signal_stack_of_the_least_size(self):
        # The stack has room for the kernel's frame and 8 KB. The library needs 5 KB; libc's own
        # open needs some 100 bytes.
        self.check_job("read:DIR", "signal:DIR:8192", "read:DIR")

    def test_thousands_of_threads(self):
        self.check_job("read:DIR", "threads:DIR:1000:65536")


class Groups(Job):
    """A control group with less memory than the region may have."""
    def setUp(self):
        super().setUp()
        need_root()
        self.group = self.make_group(64 * MB)
        for n in range(40):
            (self.data / f"large{n}").write_bytes(bytes([n]) * (4 * MB))
        self.settings["CUBESHIM_RAM"] = "256M"

    def make_group(self, limit):
        """Makes a group below this process's own, in whichever version of the memory controller
        exists."""
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            root, knob = (("/sys/fs/cgroup/memory",
                           "memory.limit_in_bytes") if "memory" in controllers.split(",") else
                          ("/sys/fs/cgroup", "memory.max") if controllers == "" else (None, None))
            if root is None:
                continue
            path = pathlib.Path(root + group) / self.name
            try:
                path.mkdir()
                self.addCleanup(path.rmdir)
                self.knob = knob
                self.set_limit(path, limit)
                return path
            except OSError:
                continue
        self.skipTest("no memory controller may be had here")

    def set_limit(self, group, limit):
        (group / self.knob).write_text(str(limit))

    def enter(self):
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    LARGE = """
for epoch in range(2):
    check_all()
    for n in range(40):
        with open(f'{D}/large{n}', 'rb') as f: data = f.read()
        assert len(data) == 4 << 20 and data.count(data[0]) == len(data) and data[0] == n
"""

    def test_a_group_that_has_no_memory_to_spare(self):
        # 64 MB stay free even if the settings allow more, so no process is killed because of the
        # library's pages.
        done = self.check(self.python(self.LARGE), preexec_fn=self.enter, hits=False)
        self.assertEqual(done.report["bypassed"]["full"], done.report["opens"], str(done))

    def test_a_region_larger_than_the_group_may_have(self):
        self.set_limit(self.group, 160 * MB)
        done = self.check(self.python(self.LARGE), preexec_fn=self.enter)
        self.assertGreater(done.report["bypassed"]["full"], 0, str(done))
        self.assertLess(done.report["ram"]["used"], 100 * MB)

    def test_a_group_whose_programs_grow_after_the_region(self):
        # The region could be made, with a quarter of the free memory.
        limit = 240 * MB
        self.set_limit(self.group, limit)
        self.settings["CUBESHIM_RAM"] = "25%"
        script = self.python("""
import time
LIMIT, GROUP = int(sys.argv[2]), sys.argv[3]
for n in range(40):
    with open(f'{D}/large{n}', 'rb') as f: f.read()
def used():
    fields = dict(line.split() for line in open(GROUP + '/memory.stat'))
    return sum(int(fields[name]) for name in (
        ('anon', 'shmem', 'kernel') if 'anon' in fields else ('total_rss', 'total_shmem')))
PATH = f"/dev/shm/cubeshim-{os.geteuid()}-{os.environ.get('CUBESHIM_NAME')}"
def region(): return os.stat(PATH).st_blocks * 512 if os.path.exists(PATH) else 0
before = region()
open(f'{D}/large0', 'rb').close()
hog = []
while LIMIT - used() > 40 << 20: hog.append(bytearray(b'x' * (4 << 20)))
until = time.monotonic() + 60
# Opens only an existing record, until a thread beside the job has given memory back.
while before and region() > before - (8 << 20) and time.monotonic() < until:
    open(f'{D}/large0', 'rb').close()
print(before == 0 or region() <= before - (8 << 20))
""")
        self.check([*script, str(limit), str(self.group)], preexec_fn=self.enter)

    def test_a_reader_that_the_group_kills(self):
        script = self.python("""
import subprocess
check_all()
victim = os.fork()
if victim == 0:
    with open(sys.argv[2] + '/cgroup.procs', 'w') as f: f.write(str(os.getpid()))
    held = open(D + '/f7', 'rb', buffering=0)
    hog = []
    while True:
        check_all()
        hog.append(bytearray(b'x' * (4 << 20)))
print(os.waitpid(victim, 0)[1])
check_all()
with open(D + '/large3', 'rb') as f: assert f.read(5) == bytes([3]) * 5
""")
        done = self.check([*script, self.group])
        self.assertEqual(done.out, f"{int(signal.SIGKILL)}\n")
        self.assertEqual(self.regions(), [])


if __name__ == "__main__":
    unittest.main()
