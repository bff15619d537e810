"""Programs that have, drop or refuse privileges."""
import os
import shutil
import subprocess
import unittest

from support import LIBRARY, Job, need_root, need_tool, program

NOBODY = 65534


class Privileges(Job):
    def setUp(self):
        super().setUp()
        need_root()
        self.dir.chmod(0o777)  # the job's new user writes the report

    def as_nobody(self, *command):
        return [
            need_tool("setpriv"), "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", *command
        ]

    def local_copy(self, name, mode):
        # /tmp of a test machine can be nosuid, and other users may not enter the build tree.
        path = self.dir / name
        shutil.copy(program("company_job"), path)
        path.chmod(mode)
        return path

    def test_set_user_id_program_is_left_alone(self):
        # The loader does not preload the library into a program that gains rights. The reads are
        # plain, and the loader prints at most one line.
        copy = self.local_copy("setuid_job", 0o4755)
        library = self.dir / "lib.so"
        shutil.copy(LIBRARY, library)
        command = self.as_nobody("/usr/bin/env", f"LD_PRELOAD={library}", copy,
                                 *self.steps("read:DIR", "read:DIR", "fork:DIR"))
        plain = self.run_one([copy, *self.steps("read:DIR", "read:DIR", "fork:DIR")], shim=False)
        done = self.run_one(command, shim=True, preload=[])
        self.assertEqual((done.status, done.out, done.ours), (0, plain.out, []), str(done))
        self.assertEqual((done.hits, self.regions()), (0, []))

    def test_file_capabilities(self):
        copy = self.local_copy("capable_job", 0o755)
        if subprocess.run([need_tool("setcap"), "cap_net_raw+ep", copy],
                          capture_output=True).returncode != 0:
            self.skipTest("no file capabilities here")
        library = self.dir / "lib.so"
        shutil.copy(LIBRARY, library)
        command = self.as_nobody("/usr/bin/env", f"LD_PRELOAD={library}", copy,
                                 *self.steps("read:DIR", "read:DIR"))
        plain = self.run_one([copy, *self.steps("read:DIR", "read:DIR")], shim=False)
        done = self.run_one(command, shim=True, preload=[])
        self.assertEqual((done.status, done.out, done.ours, done.hits), (0, plain.out, [], 0),
                         str(done))

    def test_another_user_has_a_separate_cache(self):
        shutil.copy(LIBRARY, self.dir / "lib.so")
        shutil.copy(program("company_job"), self.dir / "job")
        held = self.steps("read:DIR", "read:DIR")
        command = self.as_nobody("/usr/bin/env", f"LD_PRELOAD={self.dir}/lib.so", self.dir / "job",
                                 *held)
        plain = self.run_one([self.dir / "job", *held], shim=False)
        # A kept region of root under the same name does not concern this user.
        self.settings["CUBESHIM_RAM_KEEP"] = "1"
        self.check_job("read:DIR", "read:DIR")
        regions = self.regions()
        self.assertEqual(len(regions), 1)
        self.settings["CUBESHIM_RAM_KEEP"] = "0"
        done = self.run_one(command, shim=True, preload=[])
        self.assertEqual((done.status, done.out, done.ours), (0, plain.out, []), str(done))
        self.assertEqual(done.report["misses"], 20, str(done))
        self.assertEqual(self.regions(), regions)

    def test_files_that_only_root_may_read(self):
        # The file is read and cached as root. After root's rights are dropped, an open returns the
        # same as the kernel's.
        (self.data / "f3").chmod(0o600)
        script = self.python("""
check_all(); check_all()
held = open(D + '/f3', 'rb', buffering=0)
assert held.read(10) == CONTENT[3][:10]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for n in range(20):
    try:
        check(n)
        print(n, 'read')
    except PermissionError as e: print(n, e.errno)
print(held.read() == CONTENT[3][10:], os.access(D + '/f3', os.R_OK))
""")
        done = self.check(script)
        self.assertIn("3 13\n", done.out)
        self.assertEqual(done.out.count("read"), 19)

    def test_a_file_opened_before_is_the_file_itself_afterwards(self):
        self.settings["CUBESHIM_STATS"] = "off"  # no report could be written afterwards
        (self.data / "f3").chmod(0o600)
        self.data.chmod(0o700)
        for drop in ("os.setuid(65534)", "os.seteuid(65534)", "os.setresuid(65534, 65534, 0)",
                     "libc.setfsuid(65534)", "os.chroot('/usr')"):
            self.check(self.python(f"""
import ctypes, fcntl
libc = ctypes.CDLL(None)
check_all()
fd, other = os.open(D + '/f3', os.O_RDONLY), os.open(D + '/f3', os.O_RDONLY)
os.listdir(D)
libc.opendir.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.opendir(D.encode()))
libc.readdir(stream)
inode, directory = os.fstat(fd).st_ino, os.stat(D).st_ino
os.read(fd, 10)
{drop}
fcntl.flock(fd, fcntl.LOCK_EX)
try:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print('excluded')
child = os.fork()
if child == 0: os._exit(os.read(fd, 5) != CONTENT[3][10:15])
print(os.waitpid(child, 0)[1], os.fstat(fd).st_ino == inode, os.read(fd, 5) == CONTENT[3][15:20])
print(os.fstat(libc.dirfd(stream)).st_ino == directory)
"""), hits=None)

    def test_copy_is_not_locked_or_changed_instead_of_a_file_now_refused(self):
        self.settings["CUBESHIM_STATS"] = "off"
        for n in range(20):
            os.chown(self.data / f"f{n}", 65534, 65534)
        done = self.run_one(self.python(self.THERE + """
import errno, fcntl
check_all()
fd = os.open(D + '/f3', os.O_RDONLY)
os.read(fd, 10)
there(f'chmod 0 {D}/f3')
for call in (lambda: fcntl.flock(fd, fcntl.LOCK_EX), lambda: fcntl.lockf(fd, fcntl.LOCK_SH),
             lambda: os.fchmod(fd, 0o640), lambda: fcntl.flock(fd, fcntl.LOCK_UN),
             lambda: fcntl.lockf(fd, fcntl.LOCK_UN)):
    try:
        print(call())
    except OSError as error:
        print(errno.errorcode[error.errno])
print(os.read(fd, 5) == CONTENT[3][10:15])
"""), shim=True, user=65534, group=65534, extra_groups=[])
        self.assertEqual((done.out, done.theirs),
                         ("ENOLCK\nENOLCK\nEACCES\nNone\nNone\nTrue\n", ""), str(done))

    def test_dropping_midway(self):
        self.check_job("read:DIR", "read:DIR", "hold:DIR", f"user:{NOBODY}", "read:DIR", "fork:DIR",
                       "vfork:DIR", "held")

    def test_su_and_setpriv_run_by_a_job(self):
        shutil.copy(LIBRARY, self.dir / "lib.so")
        shutil.copy(program("company_job"), self.dir / "job")
        job = f"{self.dir}/job {' '.join(self.steps('read:DIR', 'read:DIR'))}"
        script = (f"{job}; setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {job}; su -s "
                  f"/bin/sh nobody -c '{job}'; {job}")
        plain = self.run_one(["/bin/sh", "-c", script], shim=False)
        done = self.run_one(["/bin/sh", "-c", script], shim=True,
                            preload=[str(self.dir / "lib.so")])
        self.assertEqual((done.status, done.out, done.ours), (0, plain.out, []), str(done))
        self.assertEqual(done.out.count("20 files"), 8)
        self.assertGreaterEqual(done.hits, 60 - 20, str(done))
        self.assertEqual(self.regions(), [])

    def test_not_dumpable(self):
        # /proc/self then belongs to root, which makes a difference for other users.
        shutil.copy(LIBRARY, self.dir / "lib.so")
        shutil.copy(program("company_job"), self.dir / "job")
        for steps in (("dumpable:0", "read:DIR", "read:DIR", "fork:DIR", "vfork:DIR", "held",
                       "send:DIR"), ("read:DIR", "dumpable:0", "read:DIR", "fork:DIR", "vfork:DIR",
                                     "held", "send:DIR")):
            with self.subTest(steps=steps):
                plain = self.run_one(self.as_nobody(self.dir / "job", *self.steps(*steps)),
                                     shim=False)
                command = [
                    "/usr/bin/env", f"LD_PRELOAD={self.dir}/lib.so", self.dir / "job",
                    *self.steps(*steps)
                ]
                done = self.run_one(self.as_nobody(*command), shim=True, preload=[])
                self.assertEqual((done.status, done.out, done.theirs), (0, plain.out, plain.err),
                                 str(done))
                self.assertEqual(done.ours, [], str(done))
                self.assertGreater(done.hits, 0, str(done))

    def test_no_new_privileges(self):
        self.check_job("nnp", "read:DIR", "read:DIR", "fork:DIR", "vfork:DIR", "held", "send:DIR")

    def test_capabilities_dropped_midway(self):
        # Most programs call capset without a wrapper of libc; here it is called through ctypes.
        script = self.python("""
import ctypes
check_all(); check_all()
os.chmod(D + '/f3', 0)
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
assert libc.capset(header, data) == 0
try:
    check(3)
    print('read')
except PermissionError as e: print(e.errno)
""")
        plain = self.run_one(script, shim=False)
        (self.data / "f3").chmod(0o600)
        done = self.run_one(script, shim=True)
        self.assertEqual((done.status, done.out, done.ours), (plain.status, plain.out, []),
                         str(done))
        self.assertGreater(done.hits, 0, str(done))


if __name__ == "__main__":
    unittest.main()
