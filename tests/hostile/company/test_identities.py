"""Names and numbers that do not identify what they seem to: a start time in ticks, a group that a
user namespace does not map, a link of procfs."""
import os
import pathlib
import unittest

from support import LIBRARY, Job, need_root, need_tool, write_files

USER, GROUPS = 65533, (54321, 54322)


class Identities(Job):
    def setUp(self):
        super().setUp()
        need_root()

    def test_children_in_a_time_namespace_see_that_the_first_process_lives(self):
        # The offset is not a multiple of a tick, so the start time of a process can be rounded to
        # another tick there.
        self.settings |= {"CUBESHIM_STATS": "stderr", "CUBESHIM_STATS_FORMAT": "text"}
        child = self.dir / "child.py"
        child.write_text(self.READ_ALL + """
import ctypes
CLONE_NEWTIME = 0x80
assert ctypes.CDLL(None).unshare(CLONE_NEWTIME) == 0
with open("/proc/self/timens_offsets", "w") as offsets: offsets.write("boottime 100 9999999")
os.environ["LD_PRELOAD"] = os.environ["LIBRARY"]
os.execv("/bin/sh", ["sh", "-c", f"cat {D}/f7 >/dev/null; true"])
""")
        script = self.python("""
import subprocess
env = dict(os.environ, LIBRARY=os.environ["LD_PRELOAD"])
del env["LD_PRELOAD"]
check(7)
for _ in range(3): subprocess.run([sys.executable, sys.argv[2], D], env=env, check=True)
check(7)
""")
        done = self.run_one([*script, child], shim=True)
        self.assertEqual(done.status, 0, str(done))
        served = [line for line in done.err.splitlines() if line.startswith("cubeshim: served")]
        self.assertEqual(len(served), 1, done.err)
        self.assertIn("served: 5 file opens", served[0])

    def test_groups_that_the_user_namespace_does_not_map_give_no_access(self):
        disk, file = self.dir / "disk", self.data / "f7"
        disk.mkdir()
        os.chown(disk, USER, USER)
        os.chown(file, 0, GROUPS[0])
        file.chmod(0o640)
        os.utime(file, (1e9, 1e9))
        self.settings["CUBESHIM_DISK_DIR"] = str(disk)
        library = self.dir / "lib.so"
        library.write_bytes(pathlib.Path(LIBRARY).read_bytes())
        library.chmod(0o755)

        def read(group):
            command = [
                need_tool("setpriv"), f"--reuid={USER}", f"--regid={USER}", f"--groups={group}",
                need_tool("unshare"), "-Ur", "/usr/bin/env", f"LD_PRELOAD={library}",
                "CUBESHIM_STATS=off", "/bin/cat", file
            ]
            return self.run_one(command, shim=True, preload=[])

        allowed = read(GROUPS[0])
        if "unshare" in allowed.err:
            self.skipTest("no user namespaces here")
        self.assertEqual(allowed.status, 0, str(allowed))
        refused = read(GROUPS[1])
        self.assertEqual((refused.status, refused.out), (1, ""))
        self.assertIn("Permission denied", refused.err)

    def test_link_of_procfs_leads_to_another_file_each_time(self):
        for name in "ab":
            write_files(self.dir / name, salt=ord(name))
        os.symlink("/proc/self/cwd/f7", self.data / "link")
        os.symlink("/proc/self/fd/9", self.data / "fd")
        script = self.python("""
def inode(path): return os.stat(path).st_ino
def content(path):
    with open(path, "rb") as file: return file.read()
for name in "abab":
    os.chdir(f"{D}/../{name}")
    assert content(f"{D}/link") == content("f7") != CONTENT[7], name
    assert inode(f"{D}/link") == inode("f7"), name
    file = os.open("f7", os.O_RDONLY)
    os.dup2(file, 9)
    os.close(file)
    assert content(f"{D}/fd") == content("f7"), name
check_all()
check_all()
""")
        self.check(script)


if __name__ == "__main__":
    unittest.main()
