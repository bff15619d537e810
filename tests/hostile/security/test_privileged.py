"""Programs with more rights than the user who starts them. The library must not affect such a
process."""
import os
import shutil
import subprocess
import unittest

from support import CONTENT, NOBODY, USER, Case, as_root, as_user

# Uses /etc/ld.so.preload, which applies to every program, in a separate mount namespace.
IN_OWN_ETC = """
set -e
mount -t tmpfs cubeshim-test "$1"
cp -a /etc "$1/etc"
echo "$2" > "$1/etc/ld.so.preload"
mount --bind "$1/etc" /etc
shift 2
exec "$@"
"""


@as_root
class WithMoreRights(Case):
    def setUp(self):
        super().setUp()
        self.program = shutil.copy("/bin/cat", self.job.path("program"))
        os.chmod(self.program, 0o755)
        self.mount_point = self.job.path("etc")
        os.mkdir(self.mount_point)

    def run_program(self):
        before = [
            "unshare", "-m", "--propagation=private", "sh", "-c", IN_OWN_ETC, "sh",
            self.mount_point, self.job.library, *as_user(USER)
        ]
        return self.job.run([self.program, self.job.file], before, LD_PRELOAD=None)

    def expect_nothing(self):
        done = self.run_program()
        self.assertEqual((done.returncode, done.stdout.encode()), (0, CONTENT), done.stderr)
        self.assertEqual(done.stderr, b"")
        self.assertFalse(os.path.exists(self.job.report), "it wrote what its caller named")
        self.assertEqual(os.listdir(self.job.ram_dir), [])

    def test_plain_program_is_served(self):
        """Otherwise, the tests below would prove nothing."""
        done = self.run_program()
        self.assertEqual((done.returncode, done.stdout.encode()), (0, CONTENT), done.stderr)
        self.assertEqual(self.job.totals()["misses"], 1)

    def test_a_setuid_program_is_left_alone(self):
        os.chown(self.program, NOBODY, NOBODY)
        os.chmod(self.program, 0o4755)
        self.expect_nothing()

    def test_a_setgid_program_is_left_alone(self):
        os.chown(self.program, NOBODY, NOBODY)
        os.chmod(self.program, 0o2755)
        self.expect_nothing()

    def test_a_program_with_file_capabilities_is_left_alone(self):
        subprocess.run(["setcap", "cap_dac_read_search+ep", self.program], check=True)
        self.expect_nothing()

    def test_pythonpath_of_a_setuid_python_stays(self):
        self.program = shutil.copy("/usr/bin/printenv", self.job.path("python3"))
        self.job.file = "PYTHONPATH"
        site = os.path.join(os.path.dirname(self.job.library), "site")
        os.makedirs(site)
        open(os.path.join(site, "sitecustomize.py"), "w").close()
        os.chmod(self.program, 0o755)
        self.assertEqual(self.run_program().stdout, f"{os.path.realpath(site)}\n")
        os.chown(self.program, NOBODY, NOBODY)
        os.chmod(self.program, 0o4755)
        self.assertEqual(self.run_program().stdout, "")

    def test_settings_of_the_caller_do_not_reach_a_setuid_program_by_ld_preload(self):
        os.chmod(self.program, 0o4755)
        done = self.job.run([self.program, self.job.file], as_user(USER))
        self.assertEqual((done.returncode, done.stdout.encode()), (0, CONTENT), done.stderr)
        self.assertFalse(os.path.exists(self.job.report))


class Process(Case):
    def test_the_region_is_in_no_core_dump(self):
        done = self.job.python(f"""
import os
open(F, 'rb').read()
inode, mapped, found = str(os.stat({self.job.region()!r}).st_ino), '', []
for line in open('/proc/self/smaps'):
  words = line.split()
  if '-' in words[0] and ':' not in words[0]: mapped = words[4]
  if words[0] == 'VmFlags:' and mapped == inode: found.append('dd' in words)
print(len(found), all(found))
""")
        count, every = done.stdout.split()
        self.assertGreaterEqual(int(count), 3, done.stderr)
        self.assertEqual(every, "True")

    def test_its_rights_and_signals_stay_the_same(self):
        script = (
            "import ctypes, os\nopen(F).read()\nlibc = ctypes.CDLL(None)\n"
            "keep = ('TracerPid', 'NoNewPrivs', 'Seccomp:', 'Cap', 'Uid', 'Gid', 'Groups', "
            "'Umask', 'SigBlk', 'SigIgn', 'SigCgt')\n"
            "print([line for line in open('/proc/self/status') if line.startswith(keep)], "
            "libc.prctl(3, 0, 0, 0, 0))"
        )
        self.assertEqual(
            self.job.python(script).stdout,
            self.job.python(script, LD_PRELOAD=None).stdout)


if __name__ == "__main__":
    unittest.main()
