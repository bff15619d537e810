"""Jobs that become another user, move to another root or leave their namespaces while the sidecar
works."""
import unittest

from support import COUNT, NOBODY, Job, need_root, write_files

SLOW = ("--open-us=3000",)


class Identity(Job):
    lagfs = SLOW

    def setUp(self):
        super().setUp()
        need_root()
        self.dir.chmod(0o777)  # the job's new user writes the report
        self.settings["CUBESHIM_PREFETCH_DEPTH"] = "4"  # so that the sidecar is still working

    def check_midway(self, text, misses=None, **options):
        native = None
        for fetched in (COUNT // 4, COUNT):
            with self.subTest(fetched=fetched):
                command = self.script(f"need({fetched})\n{text}")
                native = native or self.run_one(command, shim=False)
                done = self.check_gated(command, misses=misses, native=native, hits=None, **options)
                self.remove_regions()
        return done

    def make_root(self):
        root = self.dir / "root"
        write_files(root / str(self.data)[1:], COUNT, salt=5)
        (root / str(self.dir)[1:]).mkdir(parents=True)  # for the report

    def test_another_user(self):
        self.check_midway(f"""
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
print(os.getresuid(), os.getresgid())
read_all()
""")

    def test_files_that_the_new_user_may_not_read(self):
        # root has fetched the file, or is fetching it. An open must return the same as the kernel.
        mounts = self.mount
        mounts.unmount()
        mounts.options = (*SLOW, "-o", "default_permissions,allow_other")
        mounts.start()
        for n in range(0, COUNT, 3):
            (self.source / f"f{n}").chmod(0o600)
        done = self.check_midway(
            f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
            "read_all()\n"
        )
        self.assertEqual(done.out.count(" 13\n"), COUNT // 3, str(done))

    def test_threads_with_another_user_each(self):
        # Some servers set only their own thread's user, by setfsuid.
        self.check_midway(f"""
import ctypes
libc = ctypes.CDLL(None)
libc.setfsuid({NOBODY})
read_all()
libc.setfsuid(0)
read_all()
""")

    def test_another_root(self):
        # There, the same path leads to other files. The job must never see a mix of both.
        self.make_root()
        done = self.check_midway(f"""
read_all(['f1'])
os.chroot({str(self.dir / 'root')!r}); os.chdir('/')
read_all()
read_all()
""")
        lines = done.out.splitlines()
        self.assertNotEqual(lines[0], lines[2], "the other root's f1 is not the same")

    def test_another_root_of_a_child(self):
        # The child's root concerns neither the parent nor the sidecar, which continues in the
        # parent.
        self.make_root()
        self.check_midway(f"""
if os.fork() == 0:
    os.chroot({str(self.dir / 'root')!r}); os.chdir('/')
    read_all()
    os._exit(0)
os.wait()
read_all()
""")

    def test_namespaces(self):
        # The kernel refuses these calls if a process has more than one thread.
        for flags in ("0x10000000", "0x10000000 | 0x20000", "0x100", "0x20000", "0x20000000"):
            self.check_midway(f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare({flags}), ctypes.get_errno())
read_all()
""")

    def test_a_namespace_that_one_must_be_alone_to_enter(self):
        self.check_midway("""
import ctypes, subprocess
libc = ctypes.CDLL(None, use_errno=True)
child = subprocess.Popen(['unshare', '-U', 'sh', '-c', 'echo; read x'], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
child.stdout.readline()
fd = os.open(f'/proc/{child.pid}/ns/user', os.O_RDONLY)
print(libc.setns(fd, 0x10000000), ctypes.get_errno())
child.communicate(b'x')
read_all()
""")

    def test_capabilities_dropped(self):
        self.check_midway("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
print(libc.capset(header, data))
read_all()
""")

    def test_no_new_privileges_and_not_dumpable(self):
        self.check_midway("""
import ctypes
libc = ctypes.CDLL(None)
print(libc.prctl(38, 1, 0, 0, 0), libc.prctl(4, 0, 0, 0, 0))
read_all()
""")

    def test_the_root_is_right_for_others_too(self):
        # A leader that has moved to another root must not fetch files for processes that have not
        # moved.
        self.make_root()
        done = self.check_midway(f"""
import subprocess
child = subprocess.Popen([sys.executable, '-c', '''
import sys, zlib
sys.stdin.readline()
for n in range({COUNT}):
    with open(f"{self.data}/f{{n}}", "rb") as f: print(n, zlib.crc32(f.read()))
'''], stdin=subprocess.PIPE)
os.chroot({str(self.dir / 'root')!r}); os.chdir('/')
read_all()
child.communicate(b'go\\n')
print(child.returncode)
""")
        self.assertIn("0\n", done.out)


if __name__ == "__main__":
    unittest.main()
