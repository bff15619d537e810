"""A process changes paths in a way that changes other paths, too, or from a place where paths have
another meaning: another root, or a child of posix_spawn. Each job must print the same with and
without the library. CUBESHIM_LIBRARY, CUBESHIM_LAGFS, and STOPPED_CALL name the build's files."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402
from tests.preload.large_job import environment  # noqa: E402

LAGFS = os.environ["CUBESHIM_LAGFS"]
NAMESPACE = ["unshare", "--mount", "--propagation", "private"]

# there() runs a command of the shell, with Python code as $1, in a process that starts before a
# file is open. during() does the same, but calls meanwhile() after the process has called rename or
# pivot_root, but before the kernel executes the call (stopped_call_library.cc).
JOB = """
import os, shlex, subprocess, sys
D = sys.argv[1]
shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def there(code, command='python3 -c "$1"'):
  shell.stdin.write(f"set -- {shlex.quote(code)}\\n{command}\\necho done\\n")
  shell.stdin.flush()
  assert shell.stdout.readline() == "done\\n"
def during(code, meanwhile, settings=""):
  stop = os.environ["STOP"]
  there(code, f'LD_PRELOAD="$LD_PRELOAD $STOPPED_CALL" STOP_CALL={stop} {settings} '
              'python3 -c "$1" & writer=$!')
  os.close(os.open(stop + ".begun", os.O_RDONLY))
  meanwhile()
  os.close(os.open(stop + ".go", os.O_WRONLY))
  there("", "wait $writer")
move_root = f'''
import ctypes, os
os.chdir("{D}/root")
assert ctypes.CDLL(None).syscall(ctypes.c_long(155), b".", b"mnt") == 0
'''
def look(*paths):
  for path in paths:
    try:
      with open(D + path) as file:
        print(path, file.read(), os.stat(D + path).st_size)
    except OSError as error:
      print(path, error.errno)
"""


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class OtherPlaces(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="cubeshim-places-")))
        self.source = self.scratch / "source"
        self.source.mkdir()
        self.mount = self.enterContext(
            SlowMount(Path(LAGFS), self.source, self.scratch, 0, keeps_names=False))

    def write_files(self):
        for folder in self.source.iterdir():
            shutil.rmtree(folder)
        for name in ("data/d", "data/e", "root", "other/d"):
            (self.source / name).mkdir(parents=True)
        for name in ("data/f", "data/d/f", "data/e/g", "other/f", "other/d/f"):
            (self.source / name).write_text(name)
            os.utime(self.source / name, (1e9, 1e9))
        (self.source / "data/link").symlink_to("f")

    def run_job(self, job: str, shim: bool, **settings: str) -> str:
        self.write_files()
        settings = {"CUBESHIM_STATS": "off"} | settings
        stop = self.scratch / "stop"
        for fifo in (f"{stop}.begun", f"{stop}.go"):
            if not os.path.exists(fifo):
                os.mkfifo(fifo)
        env = environment(str(self.mount.path), **settings) if shim else dict(os.environ)
        env["STOP"] = str(stop)
        done = subprocess.run([*NAMESPACE, "/usr/bin/python3", "-c", JOB + job,
                               str(self.mount.path)], env=env, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def check(self, job: str) -> str:
        native = self.run_job(job, shim=False)
        self.assertEqual(self.run_job(job, shim=True), native)
        return native

    LOOK = 'look("/data/f", "/data/d/f", "/data/e/g")\n'

    def test_a_directory_that_a_chrooted_process_renames(self):
        # With /proc, the process finds a path of the directory, but one that only it can use. The
        # mount of /proc is made without the library, which would otherwise drop the whole cache.
        said = self.check(
            self.LOOK + """
there('''
import os
os.chroot("@/data")
os.chdir("/")
os.rename("d", "moved")
''', 'mkdir "@/data/proc"; LD_PRELOAD= mount --bind /proc "@/data/proc"; python3 -c "$1"')
there("", 'LD_PRELOAD= umount "@/data/proc"')
""".replace("@", str(self.mount.path)) + self.LOOK)
        self.assertEqual(said.count("/data/d/f data/d/f"), 1)

    def test_a_mount_that_is_moved(self):
        said = self.check('there("", f"mount --bind {D}/other {D}/data")\n' + self.LOOK + """
there("", f"mount --move {D}/data {D}/root")
""" + self.LOOK)
        self.assertIn("other/f", said)
        self.assertIn("data/f data/f", said)

    def test_a_mount_that_propagates(self):
        said = self.check('there("", f"mount --bind {D}/data {D}/data; mount --make-shared '
                          '{D}/data; mount --bind {D}/data {D}/root")\n' + self.LOOK + """
there("", f"mount --bind {D}/other/d {D}/root/d")
""" + self.LOOK)
        self.assertIn("/data/d/f other/d/f", said)

    def test_a_mount_that_forbids_links(self):
        said = self.check('there("", f"mount --bind {D}/data {D}/data")\n'
                          'look("/data/link")\n' + """
there('''
import ctypes, sys
no_links = (ctypes.c_uint64 * 4)(0x200000)
path = ctypes.c_char_p(b"@/data")
sys.exit(ctypes.CDLL(None).syscall(442, -100, path, 0, no_links, 32))
''')
look("/data/link")
""".replace("@", str(self.mount.path)))
        self.assertIn("/data/link 40", said)

    def test_a_root_that_another_process_moves(self):
        said = self.check("""
there("", f"mount --bind / {D}/root")
look("/data/f")
there(move_root)
look("/data/f")
""")
        self.assertIn("/data/f 2", said)

    def test_a_file_that_is_read_while_another_process_moves_the_root(self):
        said = self.check("""
there("", f"mount --bind / {D}/root")
look("/data/e/g")
during(move_root, lambda: look("/data/f"))
look("/data/f")
""")
        self.assertIn("/data/f data/f 6\n/data/f 2", said)

    def test_the_first_file_of_a_mount_that_is_read_while_another_process_renames(self):
        second = self.scratch / "second"
        second.mkdir()
        job = f"""
there("", "mount -t tmpfs second {second}; echo old >{second}/f; echo new >{second}/g")
look("/data/f")
def look_there():
  with open("{second}/f") as file: print(file.read())
during('import os; os.rename("{second}/g", "{second}/f")', look_there,
       "CUBESHIM_PREFIXES=/elsewhere")
look_there()
"""
        native = self.run_job(job, shim=False)
        self.assertIn("old\n\nnew\n", native)
        self.assertEqual(self.run_job(job, shim=True,
                                      CUBESHIM_PREFIXES=f"{self.mount.path}:{second}"), native)

    def test_a_file_that_a_spawned_program_opens_by_an_fd(self):
        link = self.scratch / "link"
        link.symlink_to("/dev/fd/9")
        for path in ("/dev/fd/9", "/dev/./fd//9", "/proc/self/fd/9", "/dev/stdin", str(link)):
            with self.subTest(path):
                said = self.check(f"""
look("/data/f")
fd = os.open(D + "/data/f", os.O_RDONLY)
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "echo NEW >&7"], {{}}, file_actions=[
  (os.POSIX_SPAWN_DUP2, fd, 9), (os.POSIX_SPAWN_DUP2, fd, 0),
  (os.POSIX_SPAWN_OPEN, 7, {path!r}, os.O_WRONLY | os.O_TRUNC, 0)]), 0)
os.close(fd)
look("/data/f")
""")
                self.assertIn("/data/f NEW\n 4", said)

    def test_a_link_to_the_mount_that_a_job_with_other_prefixes_replaces(self):
        # No file of the link's device is cached.
        way = self.scratch / "way"
        job = f"""
way = {str(way)!r}
if os.path.lexists(way): os.unlink(way)
os.symlink(D + "/data", way)
def look_there():
  with open(way + "/f") as file: print(file.read())
look_there()
there('os.symlink("@/other", "@w.new"); os.rename("@w.new", "@w")',
      'CUBESHIM_PREFIXES=/elsewhere python3 -c "import os; $1"')
look_there()
""".replace("@w", str(way)).replace("@", str(self.mount.path))
        native = self.run_job(job, shim=False)
        self.assertEqual(native, "data/f\nother/f\n")
        self.assertEqual(self.run_job(job, shim=True, CUBESHIM_PREFIXES=str(way)), native)

    def test_a_failed_chroot_keeps_the_cache(self):
        report = self.scratch / "report.json"
        self.run_job("""
look("/data/f")
try: os.chroot("/missing")
except OSError: pass
look("/data/f", "/data/e/g", "/data/e/g")
""", shim=True, CUBESHIM_STATS=str(report), CUBESHIM_STATS_FORMAT="json")
        self.assertEqual(json.loads(report.read_text().splitlines()[-1])["hits"]["ram"], 2)

    def test_a_removed_directory_drops_no_file(self):
        # A directory or link that is renamed drops all files that were opened through a link.
        report = self.scratch / "report.json"
        self.run_job('look("/data/link")\nthere("", f"mkdir {D}/root/d; rmdir {D}/root/d")\n'
                     'look("/data/link")\n', shim=True, CUBESHIM_STATS=str(report),
                     CUBESHIM_STATS_FORMAT="json", CUBESHIM_METADATA="0")
        self.assertEqual(json.loads(report.read_text().splitlines()[-1])["hits"]["ram"], 1)


if __name__ == "__main__":
    unittest.main()
