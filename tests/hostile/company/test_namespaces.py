"""Containers made by hand, with separate roots, mounts, pids and users, but one /dev/shm."""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
import unittest

from support import LIBRARY, FILES, Job, need_root, need_tool, program, write_files


class Namespaces(Job):
    def setUp(self):
        super().setUp()
        need_root()
        self.unshare = need_tool("unshare")
        if subprocess.run([self.unshare, "-m", "/bin/true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")

    def in_mounts(self, script, *steps):
        """Returns a command that runs the job in a new mount namespace, after `script` has run
        there (without the library)."""
        job = shlex.join(["env", "@PRELOAD@", program("company_job"), *self.steps(*steps)])
        return [
            self.unshare, "-m", "--propagation", "private", "/bin/sh", "-c",
            f"set -e; {script}; exec {job}"
        ]

    def check_in_mounts(self, script, *steps, **options):
        command = self.in_mounts(script, *steps)
        plain = self.run_one([c.replace("@PRELOAD@", "A=b") for c in command], shim=False)
        return self.check([c.replace("@PRELOAD@", f"LD_PRELOAD={LIBRARY}") for c in command],
                          native=plain, preload=[], **options)

    STEPS = ("read:DIR", "read:DIR", "fork:DIR", "vfork:DIR", "held", "send:DIR")

    def test_chroot_midway(self):
        # In the namespace, the same path leads to other files.
        write_files(self.dir / "root" / str(self.data)[1:], salt=5)
        done = self.check_job("read:DIR", "read:DIR", "hold:DIR", f"chroot:{self.dir}/root",
                              "read:DIR", "quiet:DIR", "held", hits=None)
        lines = done.out.splitlines()
        self.assertNotEqual(lines[:FILES], lines[2 * (FILES + 1):2 * (FILES + 1) + FILES])

    def test_pivot_root(self):
        new = self.dir / "new"
        new.mkdir()
        self.check_in_mounts(
            f"mount --rbind / {new}; cd {new}; pivot_root . mnt; umount -l /mnt; cd /", *self.STEPS)

    def test_no_proc(self):
        self.check_in_mounts("mount -t tmpfs none /proc", *self.STEPS, hits=False,
                             says="cannot make a region in /dev/shm: /proc")

    def test_proc_goes_later(self):
        # The job has a region. Processes that start without /proc cannot tell which processes are
        # alive. They either report this or share the region.
        script = self.python("""
import subprocess
check_all(); check_all()
print(subprocess.run(sys.argv[2:], capture_output=True, text=True).stdout)
check_all()
""")
        inner = [
            c.replace("@PRELOAD@", "A=b")
            for c in self.in_mounts("mount -t tmpfs none /proc", "read:DIR", "read:DIR")
        ]
        self.check([*script, *inner])

    def test_kinds_of_dev_shm(self):
        shm = "mount -t tmpfs -o {} none /dev/shm"
        for options, says in (("noexec,nosuid,nodev,size=64M", None), ("mode=0555", None),
                              ("size=4M",
                               "no room for a cache: /dev/shm has 4 MiB free and .* at least 8"),
                              ("ro",
                               "cannot make a region in /dev/shm: open: Read-only file system"),
                              ("nr_inodes=1",
                               "cannot make a region in /dev/shm: open: No space left")):
            with self.subTest(options):
                self.check_in_mounts(shm.format(options), *self.STEPS, hits=says is None, says=says)

    def test_dev_shm_that_is_full(self):
        self.check_in_mounts(
            "mount -t tmpfs -o size=64M none /dev/shm; dd if=/dev/zero of=/dev/shm/x bs=1M "
            "2>/dev/null || true",
            *self.STEPS, hits=False, says="no room for a cache: /dev/shm has 0 MiB free")

    def test_more_memory_asked_than_dev_shm_has(self):
        self.settings["CUBESHIM_RAM"] = "1G"
        self.check_in_mounts(
            "mount -t tmpfs -o size=64M none /dev/shm", *self.STEPS,
            says="CUBESHIM_RAM=.* is more than /dev/shm has room for: using 32 MiB")
        self.settings["CUBESHIM_RAM"] = "40%"
        self.check_in_mounts("mount -t tmpfs -o size=64M none /dev/shm", *self.STEPS)

    NEIGHBOUR = """
import mmap, time
FILES = int(sys.argv[2])
neighbour = os.open('/dev/shm/neighbour', os.O_RDWR | os.O_CREAT, 0o600)
taken = 0
def take(megabytes):
    # Like a batch of a data loader: a page without memory is a SIGBUS.
    global taken
    os.ftruncate(neighbour, taken + megabytes << 20)
    with mmap.mmap(neighbour, taken + megabytes << 20) as m:
        for page in range(taken << 20, taken + megabytes << 20, 4096): m[page] = 1
    taken += megabytes
def free(): return os.statvfs('/dev/shm').f_bavail * 4096 >> 20
def read_all():
    for n in range(FILES):
        with open(f'{D}/large{n}', 'rb') as f: data = f.read()
        assert len(data) == 1 << 20 and data.count(data[0]) == len(data) and data[0] == n
"""

    def check_neighbour(self, files, script, **options):
        for n in range(files):
            (self.data / f"large{n}").write_bytes(bytes([n]) * (1 << 20))
            os.utime(self.data / f"large{n}", (1_600_000_000, 1_600_000_000))
        job = shlex.join(
            str(word)
            for word in ["env", "@PRELOAD@", *self.python(self.NEIGHBOUR + script), files])
        command = [
            self.unshare, "-m", "--propagation", "private", "/bin/sh", "-c",
            f"set -e; mount -t tmpfs -o size=64M none /dev/shm; exec {job}"
        ]
        plain = self.run_one([c.replace("@PRELOAD@", "A=b") for c in command], shim=False)
        return self.check([c.replace("@PRELOAD@", f"LD_PRELOAD={LIBRARY}") for c in command],
                          native=plain, preload=[], **options)

    def test_most_of_a_small_dev_shm_is_left_to_others(self):
        self.settings["CUBESHIM_RAM"] = "25%"
        self.check_neighbour(40, "read_all(); read_all(); print(free() >= 55)")

    def test_room_that_is_asked_for_is_left_to_others(self):
        self.check_neighbour(40, "read_all(); read_all(); print(free() >= 32)")

    # Allocates memory like a data loader's batch. The region must give back this much memory at
    # once.
    ALLOCATED = """
import ctypes, errno, subprocess
libc = ctypes.CDLL(None, use_errno=True)
ALLOCATE = {
    "posix_fallocate": lambda at, n: libc.posix_fallocate(neighbour, at, n),
    "fallocate": lambda at, n: libc.fallocate(neighbour, 0, at, n) and ctypes.get_errno(),
    "syscall": lambda at, n: libc.syscall(NUMBER, neighbour, 0, at, n) and ctypes.get_errno(),
}
NUMBER = {"x86_64": 285, "aarch64": 47}[os.uname().machine]
for call in ("posix_fallocate", "fallocate", "syscall"): getattr(libc, call).argtypes = None
def allocated(call, at, n):
    ctypes.set_errno(0)
    error = ALLOCATE[call](ctypes.c_long(at << 20), ctypes.c_long(n << 20))
    return errno.errorcode.get(error, error), ctypes.get_errno()
"""

    def check_allocations(self, script):
        self.check_neighbour(40, self.ALLOCATED + script)

    def test_a_neighbour_that_allocates_all_of_dev_shm(self):
        self.check_allocations("""
for call in ALLOCATE:
    read_all()
    print(call, allocated(call, 0, 58), os.fstat(neighbour).st_blocks * 512 >> 20)
    read_all()
    os.ftruncate(neighbour, 0)
""")

    def test_a_neighbour_that_allocates_step_by_step(self):
        self.check_allocations("""
read_all()
print([allocated("posix_fallocate", at, 2) for at in range(0, 58, 2)])
os.ftruncate(neighbour, 0)
read_all()
print([allocated("fallocate", 0, n) for n in range(2, 58, 2)])
""")

    def test_a_neighbour_that_allocates_more_than_there_is(self):
        # The allocation fails, and the cache keeps its memory.
        self.check_allocations("""
read_all()
before = free()
print([allocated(call, 0, 80) for call in ALLOCATE])
print(free() == before)
read_all()
""")

    def test_a_neighbour_that_has_read_nothing(self):
        self.check_allocations("""
read_all()
child = "import os; os.posix_fallocate(%d, 0, 58 << 20)" % neighbour
print(subprocess.run([sys.executable, "-c", child], pass_fds=[neighbour]).returncode)
read_all()
""")

    def test_a_neighbour_that_takes_dev_shm_while_files_are_fetched(self):
        self.check_neighbour(
            40, """
read_all()
for batch in range(6):
    take(8)
    read_all()
print(taken)
""")

    def test_a_neighbour_that_takes_dev_shm_while_all_are_hits(self):
        self.check_neighbour(
            20, """
for epoch in range(4): read_all()
take(28)
# Opens only existing files, until a thread beside the job has given room back.
until = time.monotonic() + 120
while free() < 32 and time.monotonic() < until: open(f'{D}/large0', 'rb').close()
print(free() >= 32)
take(28)
read_all()
""")

    def test_no_dev_shm(self):
        self.settings["CUBESHIM_RAM_DIR"] = "/nowhere"
        self.check_job(
            *self.STEPS, hits=False,
            says="CUBESHIM_RAM_DIR=/nowhere: No such file or directory; it takes a directory")

    # ---- several containers

    def start_waiting(self, *launcher):
        """Starts a job that reads all files and waits; it is killed at the end of the test if it
        still waits."""
        env = {**self.env, **self.settings}
        child = subprocess.Popen([
            *launcher, "/usr/bin/env", f"LD_PRELOAD={LIBRARY}",
            program("company_job"), *self.steps("read:DIR", "hold:DIR", "wait", "held", "quiet:DIR")
        ], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        self.addCleanup(self.kill, child)
        for line in child.stdout:
            if line == "waiting\n":
                return child
        self.fail("the container ended early: " + child.stderr.read())

    def kill(self, child):
        if child.stdout.closed:
            return
        inside = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(child.pid, signal.SIGKILL)
        # The job inside must end because of the death of unshare, and not earlier because its input
        # ends.
        child.wait(timeout=self.timeout)
        # Waits for the end of unshare, and also for the end of the job inside, which has the pipes
        # open too.
        child.communicate(timeout=self.timeout)
        # All threads of the job must have ended, because one that is still ending holds the memory.
        deadline = time.monotonic() + self.timeout
        while any(self.lives(pid) for pid in inside):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    @staticmethod
    def lives(pid):
        try:
            threads = [
                pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text()
                for thread in os.listdir(f"/proc/{pid}/task")
            ]
        except OSError:
            return False
        return any(") Z " not in text for text in threads)

    def container(self):
        return [self.unshare, "-Urpfm", "--kill-child", "--mount-proc"]

    def check_in_container(self, *steps):
        job = [program("company_job"), *self.steps(*steps)]
        native = self.run_one([*self.container(), *job], shim=False)
        return self.check([*self.container(), "/usr/bin/env", f"LD_PRELOAD={LIBRARY}", *job],
                          native=native, preload=[])

    def test_unshare_under_the_library(self):
        # The first process of the job leaves its namespaces and waits. It must still write the
        # report.
        self.check(
            [self.unshare, "-Urmf",
             program("company_job"), *self.steps("read:DIR", "read:DIR")])
        self.assertEqual(self.regions(), [])
        # A child that cannot tell whether that process is alive writes its own report.
        self.check([*self.container(), program("company_job"), *self.steps("read:DIR", "read:DIR")])
        self.assertEqual(self.regions(), [])

    def end(self, child):
        out, err = child.communicate(timeout=self.timeout)
        self.assertEqual(child.returncode, 0, err)
        return out

    def test_pids_of_two_containers_are_not_mistaken(self):
        first = self.start_waiting(*self.container())
        regions = self.regions()
        self.assertEqual(len(regions), 1)
        # Two processes have the same pid in different namespaces. Neither may take the other for
        # itself or for dead.
        for _ in range(3):
            done = self.check_in_container("read:DIR", "read:DIR", "fork:DIR")
            self.assertEqual(done.report["misses"], 0, str(done))
            self.assertEqual(self.regions(), regions, "the first container's cache was taken away")
        self.assertIn("held", self.end(first))
        self.assertEqual(self.regions(), [])

    def test_a_container_that_is_killed_is_seen_by_the_others(self):
        first, second = self.start_waiting(*self.container()), self.start_waiting(*self.container())
        self.kill(first)
        # The last process finds no other live process, and removes the region.
        self.end(second)
        self.assertEqual(self.regions(), [])

    def test_all_killed_and_then_the_next_job(self):
        for child in [self.start_waiting(*self.container()) for _ in range(2)]:
            self.kill(child)
        self.assertEqual(len(self.regions()), 1)
        self.check_in_container("read:DIR", "read:DIR")
        self.assertEqual(self.regions(), [])

    def test_a_time_namespace_has_no_times_of_its_own_in_the_region(self):
        # A job inside marks the records that it has revalidated; a later job outside must
        # revalidate them itself.
        launcher = [self.unshare, "-T", "--boottime", "100000", "--monotonic", "-1000"]
        if subprocess.run([*launcher, "/bin/true"], capture_output=True).returncode != 0:
            self.skipTest("no time namespaces here")
        self.settings["CUBESHIM_RAM_KEEP"] = "1"
        steps = [program("company_job"), *self.steps("read:DIR", "read:DIR")]
        for salt, where in enumerate((launcher, [], launcher, launcher, []), start=1):
            with self.subTest(salt=salt, where=where):
                shutil.rmtree(self.data)
                write_files(self.data, salt=salt)
                native = self.run_one(steps, shim=False)
                self.check([*where, "/usr/bin/env", f"LD_PRELOAD={LIBRARY}", *steps], native=native,
                           preload=[], hits=None)

    def test_other_users_mapped_to_root(self):
        # Root in nobody's user namespace and root outside use the same name for the region, but are
        # different users.
        outside = self.start_waiting()
        nobody = [
            need_tool("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups",
            *self.container()
        ]
        os.chmod(self.dir, 0o777)
        job, library = self.dir / "job", self.dir / "lib.so"
        job.write_bytes(pathlib.Path(program("company_job")).read_bytes())
        library.write_bytes(pathlib.Path(LIBRARY).read_bytes())
        job.chmod(0o755)
        command = [*nobody, "/usr/bin/env"]
        tail = [job, *self.steps("read:DIR", "read:DIR")]
        plain = self.run_one([*command, *tail], shim=False)
        self.check([*command, f"LD_PRELOAD={library}", *tail], native=plain, preload=[], hits=False,
                   says="cannot open|is refused")
        self.end(outside)
        self.assertEqual(self.regions(), [])

    def test_two_views_under_one_path(self):
        # No process may get another view's bytes. The sizes are equal here, so only the bytes
        # differ.
        other = write_files(self.dir / "other", salt=9)
        first = self.start_waiting()
        self.check_in_mounts(f"mount --bind {other} {self.data}", "read:DIR", "read:DIR")
        self.end(first)

    def test_two_views_one_after_the_other(self):
        other = write_files(self.dir / "other", salt=9)
        self.settings["CUBESHIM_RAM_KEEP"] = "1"
        self.check_job("read:DIR", "read:DIR")
        self.check_in_mounts(f"mount --bind {other} {self.data}", "read:DIR", "read:DIR")
        self.check_job("read:DIR", "read:DIR")


if __name__ == "__main__":
    unittest.main()
