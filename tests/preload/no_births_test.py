"""The mount reports no birth times, and a new file can get the inode of a removed file. An open fd
must keep referring to its own file. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files."""
import itertools
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

LIBRARY, LAGFS = (os.environ[name] for name in ("CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))
NO_SUCH_INODE = 99
# A file that another process makes can take the inode of the removed file.
MOST_TRIES = 10

# there() runs Python code in another process with the library, which starts before the file is
# open.
HELPERS = """
import os, shutil, stat, subprocess, sys
D, ORIGIN = sys.argv[1:]
helper = subprocess.Popen([sys.executable, "-c", '''
import os, sys
for line in sys.stdin:
  exec(line)
  print("done", flush=True)
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def there(code):
  helper.stdin.write(code + "\\n")
  helper.stdin.flush()
  assert helper.stdout.readline() == "done\\n"
def make(path, byte, mode="w"):
  return (f"file = open({path!r}, {mode!r}); file.write({byte!r} * 20000); file.close(); "
          f"os.utime({path!r}, (1000, {1000 if byte == 'a' else 2000}))")
there(make(D + "/f", "a"))
fd = os.open(D + "/f", os.O_RDONLY)
assert os.read(fd, 4) == b"aaaa"
inode = os.fstat(fd).st_ino
# Starts a process without the library that runs the script at line_of_stranger().
def start_stranger(script):
  global stranger, fd
  os.close(fd)
  env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
  stranger = subprocess.Popen(["sh", "-c", f"read x; {script}; read x"], cwd=D, env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  fd = os.open(D + "/f", os.O_RDONLY)
  assert os.read(fd, 4) == b"aaaa"
def line_of_stranger():
  stranger.stdin.write("\\n")
  stranger.stdin.flush()
  return stranger.stdout.readline()
def end_if_inode_is_not_used_again(name):
  if os.stat(ORIGIN + "/" + name).st_ino != inode: os._exit(99)
"""


class Births(unittest.TestCase):
    keeps_names = False
    by_link = False

    def setUp(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-births-")))
        (scratch / "origin").mkdir()
        self.origin = scratch / "origin"
        self.mount = self.enterContext(
            SlowMount(Path(LAGFS), self.origin, scratch, 0, keeps_names=self.keeps_names))
        self.prefix = self.mount.path
        self.directories = itertools.count()
        if self.by_link:
            self.prefix = scratch / "link"
            self.prefix.symlink_to(self.mount.path)

    def check(self, code: str, **settings: str):
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        env = clean | {
            "CUBESHIM_PREFIXES": str(self.prefix), "CUBESHIM_NAME": f"births-{os.getpid()}",
            "CUBESHIM_RAM": "32M", "CUBESHIM_STATS": "off", "LD_PRELOAD": LIBRARY
        } | settings
        for _ in range(MOST_TRIES):
            # A new directory each time: the kernel would still remember names from the previous
            # try.
            name = str(next(self.directories))
            (self.origin / name).mkdir()
            done = subprocess.run(
                ["/usr/bin/python3", "-c", HELPERS + code, str(self.prefix / name),
                 str(self.origin / name)],
                env=env, capture_output=True, text=True, timeout=120)
            if done.returncode != NO_SUCH_INODE:
                return self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.skipTest("inodes are not used again here")


class NoBirths(Births):
    def test_file_removed_and_made_again_keeps_its_bytes(self):
        self.check("""
there(f"os.unlink({D!r} + '/f'); " + make(D + "/f", "b"))
end_if_inode_is_not_used_again("f")
assert os.pread(fd, 4, 0) == b"aaaa"
assert os.read(fd, 4) == b"aaaa"
assert os.read(os.open(D + "/f", os.O_RDONLY), 4) == b"bbbb"
""")

    def test_file_that_was_mapped_and_made_again_keeps_its_bytes(self):
        for change in ("removed", "in place", "in place and opened"):
            with self.subTest(change):
                self.check('''
import mmap
mapped = os.open(D + "/f", os.O_RDONLY)
assert mmap.mmap(mapped, 0, prot=mmap.PROT_READ)[:4] == b"aaaa"
''' + ('''
there(f"os.unlink({D!r} + '/f'); " + make(D + "/f", "b"))
end_if_inode_is_not_used_again("f")
wanted = b"aaaa"
''' if change == "removed" else '''
there(make(D + "/f", "b", "r+"))
wanted = b"bbbb"
''') + ('''
there(f"assert open({D!r} + '/f').read(4) == 'bbbb'")
''' if change == "in place and opened" else "") + '''
assert os.pread(fd, 4, 0) == wanted, os.pread(fd, 4, 0)
assert os.pread(mapped, 4, 0) == wanted, os.pread(mapped, 4, 0)
''')

    def test_file_removed_by_a_stranger_and_made_again_by_the_job_keeps_its_bytes(self):
        for change in "made again", "cut":
            with self.subTest(change):
                self.check(f'''
start_stranger("rm f; echo")
wanted = b"bbbb"
if {change!r} == "made again":
  wanted = b"aaaa"
  line_of_stranger()
there(make(D + "/f", "b"))
end_if_inode_is_not_used_again("f")
assert os.pread(fd, 4, 0) == wanted, os.pread(fd, 4, 0)
stranger.communicate("\\n\\n")
''')

    def test_file_replaced_by_a_stranger_keeps_its_bytes(self):
        self.check("""
start_stranger("rm f; printf b > f; stat -c %i f")
if int(line_of_stranger()) != inode: os._exit(99)
assert os.read(os.open(D + "/f", os.O_RDONLY), 4) == b"b"
assert os.pread(fd, 4, 0) == b"aaaa"
stranger.communicate("\\n")
""", CUBESHIM_CONSISTENCY="open")

    def test_file_of_another_name_is_not_taken_for_a_removed_one(self):
        self.check("""
there(f"os.unlink({D!r} + '/f'); " + make(D + "/g", "a").replace("'a'", "'c'"))
end_if_inode_is_not_used_again("g")
os.fsync(fd)
assert os.pread(fd, 4, 0) == b"aaaa"
os.fchmod(fd, 0o600)
assert stat.S_IMODE(os.stat(ORIGIN + "/g").st_mode) != 0o600
""")

    def test_file_written_in_place_shows_its_new_bytes(self):
        self.check("""
there(make(D + "/f", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb"
""")

    def test_file_written_in_place_after_another_change_shows_its_new_bytes(self):
        stranger = "subprocess.run(%r, env={'PATH': '/bin:/usr/bin'}, cwd=O); read()"
        for change in (
                "os.chmod(d, 0o700)",
                "os.rename(d, d + 2 * 'd'); os.rename(d + 2 * 'd', d)",
                "os.rename(f, d + '/g'); os.rename(d + '/g', f)",
                "os.link(f, d + '/g'); os.unlink(d + '/g')",
                "os.link(f, d + '/g'); open(d + '/h', 'w').close(); os.rename(d + '/h', d + '/g')",
                "os.link(f, d + '/g'); os.rename(d + '/g', f)",
                "assert not os.path.exists(f + '/below')",
                stranger % ["touch", "-d", "@500.5", "d/f"],
                stranger % ["sh", "-c", "echo more >>d/f"],
        ):
            with self.subTest(change):
                self.check(f"""
os.mkdir(D + "/d")
there(make(D + "/d/f", "a"))
fd = os.open(D + "/d/f", os.O_RDONLY)
assert os.read(fd, 4) == b"aaaa"
there(f"import subprocess; d, O = {{D!r}} + '/d', {{ORIGIN!r}}; f = d + '/f'")
there("read = lambda: open(f).read(4)")
there({change!r})
there(make(D + "/d/f", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
assert os.fstat(fd).st_nlink > 0
""", CUBESHIM_CONSISTENCY="open")

    def test_file_written_in_place_after_its_link_was_switched_shows_its_new_bytes(self):
        self.check("""
os.symlink("f", D + "/link")
fd = os.open(D + "/link", os.O_RDONLY)
assert os.read(fd, 4) == b"aaaa"
there(f"os.symlink('none', {D!r} + '/new'); os.rename({D!r} + '/new', {D!r} + '/link')")
there(make(D + "/f", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
""")

    def test_file_removed_by_a_stranger_and_found_absent_keeps_its_bytes(self):
        self.check("""
start_stranger("rm f; echo")
line_of_stranger()
there(f"assert not os.path.exists({D!r} + '/f'); " + make(D + "/f", "b"))
end_if_inode_is_not_used_again("f")
assert os.pread(fd, 4, 0) == b"aaaa", os.pread(fd, 4, 0)
stranger.communicate("\\n")
""", CUBESHIM_CONSISTENCY="open")

    def test_changed_file_removed_by_a_stranger_and_found_absent_keeps_its_bytes(self):
        change = {
            "written": """
there(make(D + "/f", "b", "r+"))
there(f"assert open({D!r} + '/f').read(4) == 'bbbb'")
""",
            "mapped": """
import mmap
mapped = os.open(D + "/f", os.O_RDONLY)
assert mmap.mmap(mapped, 0, prot=mmap.PROT_READ)[:4] == b"aaaa"
os.close(mapped)
""",
            "linked": """
os.close(fd)
there(f"os.link({D!r} + '/f', {D!r} + '/g')")
fd = os.open(D + "/f", os.O_RDONLY)
assert os.read(fd, 4) == b"aaaa"
assert os.fstat(fd).st_nlink == 2
"""
        }
        found = {
            "by an open": "open(f)",
            "by a stat": "os.stat(f)",
            "by a rename": "os.rename(f, f + 'new')"
        }
        for before, call in itertools.product(change, found):
            with self.subTest(before=before, found=call):
                self.check(f"""
there(f"import contextlib; f = {{D!r}} + '/f'")
start_stranger("rm -f f g; echo")
{change[before]}
line_of_stranger()
there({f"with contextlib.suppress(FileNotFoundError): {found[call]}"!r})
there(make(D + "/f", "c"))
end_if_inode_is_not_used_again("f")
assert os.pread(fd, 4, 0) != b"cccc"
stranger.communicate("\\n")
""", CUBESHIM_CONSISTENCY="open")

    def test_file_written_in_place_and_renamed_shows_its_new_bytes(self):
        for first in "written", "renamed":
            with self.subTest(first=first):
                self.check(f"""
rename = f"os.rename({{D!r}} + '/f', {{D!r}} + '/g')"
write = make(D + ("/f" if {first!r} == "written" else "/g"), "b", "r+")
there("; ".join([write, rename] if {first!r} == "written" else [rename, write]))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
os.unlink(D + "/g")
""")

    def test_file_written_by_its_reader_and_removed_shows_its_new_bytes(self):
        self.check("""
with open(D + "/f", "r+") as file:
  file.write("b" * 20000)
there(f"os.unlink({D!r} + '/f')")
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
""")

    def test_changed_file_removed_by_a_stranger_and_made_again_keeps_its_bytes(self):
        changes = {
            "os.chmod(f, 0o600)": ("f", "w"),
            "os.utime(f, (500, 500))": ("f", "w"),
            "open(f, 'a').write('more')": ("f", "w"),
            "os.rename(f, f + 'g')": ("fg", "x"),
            "os.link(f, f + 'g'); os.unlink(f + 'g')": ("f", "x"),
        }
        for change, (name, mode) in changes.items():
            with self.subTest(change):
                self.check(f"""
start_stranger("rm {name}; echo")
there(f"f = {{D!r}} + '/f'")
there({change!r})
line_of_stranger()
there(make(D + "/{name}", "b", {mode!r}))
end_if_inode_is_not_used_again({name!r})
there(f"os.truncate({{D!r}} + '/{name}', 10000)")
assert os.pread(fd, 4, 0) == b"aaaa", os.pread(fd, 4, 0)
os.unlink(D + "/{name}")
stranger.communicate("\\n")
""")

    def test_file_removed_by_a_stranger_and_made_again_by_other_calls_keeps_its_bytes(self):
        spawn = ("os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'bbbb'], os.environ, "
                 "file_actions=[(os.POSIX_SPAWN_OPEN, 1, f, os.O_WRONLY | os.O_CREAT | os.{}, "
                 "0o644)]), 0)")
        calls = {
            "mknod": "os.mknod(f, 0o100644); open(f, 'r+').write('bbbb')",
            "exclusive spawn": spawn.format("O_EXCL"), "spawn": spawn.format("O_TRUNC")
        }
        for (name, call), is_changed in itertools.product(calls.items(), (False, True)):
            with self.subTest(name, is_changed=is_changed):
                self.check(f"""
start_stranger("rm f; echo")
there(f"f = {{D!r}} + '/f'")
{"there('os.chmod(f, 0o600)')" if is_changed else ""}
line_of_stranger()
there({call!r})
end_if_inode_is_not_used_again("f")
assert os.pread(fd, 4, 0) == b"aaaa", os.pread(fd, 4, 0)
stranger.communicate("\\n")
""")

    def test_removed_file_is_not_taken_for_a_new_one_with_the_same_first_bytes(self):
        for name in "f", "g":
            with self.subTest(name):
                self.check(f"""
there(f"os.unlink({{D!r}} + '/f'); open({{D!r}} + '/{name}', 'x').write('a' * 30000)")
end_if_inode_is_not_used_again({name!r})
assert len(os.pread(fd, 40000, 0)) == os.fstat(fd).st_size == 20000
os.unlink(D + "/{name}")
""")

    def test_file_that_replaced_another_one_shows_its_new_bytes(self):
        self.check("""
there(make(D + "/g", "a"))
text = "import sys; open(sys.argv[1]).read(); print(flush=True); sys.stdin.read()"
other_view = subprocess.Popen(["unshare", "-m", sys.executable, "-c", text, D + "/g"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert other_view.stdout.readline() == "\\n"
start_stranger("echo other > new; mv new g; echo")
line_of_stranger()
replaced = os.open(D + "/g", os.O_RDONLY)
assert os.read(replaced, 4) == b"othe"
there(make(D + "/g", "b"))
assert os.pread(replaced, 4, 0) == b"bbbb", os.pread(replaced, 4, 0)
stranger.communicate("\\n")
other_view.communicate()
""")

    def test_older_versions_that_another_view_has_read_are_dropped(self):
        self.check("""
text = '''
import sys
for _ in sys.stdin: print(open(sys.argv[1]).read(), end="", flush=True)
'''
def reader(*before, **settings):
  return subprocess.Popen([*before, sys.executable, "-c", text, D + "/g"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=os.environ | settings)
def read_by(process):
  process.stdin.write("\\n")
  process.stdin.flush()
  return process.stdout.readline()
def replace(version):
  line_of_stranger()
  assert open(ORIGIN + "/g").read() == version
there(f"open({D!r} + '/g', 'w').write('first\\\\n')")
start_stranger("echo second > n; mv n g; echo; read x; echo third > n; mv n g; echo")
other_view, reopener = reader("unshare", "-m"), reader(CUBESHIM_CONSISTENCY="open")
assert read_by(other_view) == "first\\n"
replace("second\\n")
there(f"assert open({D!r} + '/g').read() == 'second\\\\n'")
replace("third\\n")
assert read_by(reopener) == "third\\n"
assert read_by(other_view) == "third\\n"
stranger.communicate("\\n")
other_view.communicate()
reopener.communicate()
""")

    def test_file_renamed_to_itself_shows_its_new_bytes(self):
        renames = "os.rename(f, f)", "os.link(f, f + 'g'); os.rename(f + 'g', f)"
        for rename in renames:
            with self.subTest(rename):
                self.check(f"""
there(f"f = {{D!r}} + '/f'")
there({rename!r})
there(make(D + "/f", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
""")

    def test_file_whose_former_name_is_used_again_shows_its_new_bytes(self):
        for move in "os.rename(f, f + 'g')", "os.link(f, f + 'g'); os.unlink(f)":
            with self.subTest(move):
                self.check(f"""
there(f"f = {{D!r}} + '/f'")
there({move!r})
there(make(D + "/f", "c"))
there(make(D + "/fg", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
os.unlink(D + "/fg")
""")

    def test_file_that_loses_one_of_two_names_shows_its_new_bytes(self):
        changes = "rm f", "echo other > new && mv new f"
        found = {
            "by an open": "open(f)",
            "by a stat": "os.stat(f)",
            "by a truncation": "os.truncate(f, 2)",
            "by an exclusive open": "open(f, 'x')"
        }
        for change, call in itertools.product(changes, found):
            with self.subTest(change, found=call):
                self.check(f"""
there(f"import contextlib; f = {{D!r}} + '/f'")
there(f"os.link(f, {{D!r}} + '/g')")
start_stranger({change!r} + "; echo")
there("assert open(f).read(4) == 'aaaa'")
os.close(fd)
fd = os.open(D + "/g", os.O_RDONLY)
assert os.read(fd, 4) == b"aaaa"
line_of_stranger()
there({f"with contextlib.suppress(FileNotFoundError, FileExistsError): {found[call]}"!r})
there(make(D + "/g", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
stranger.communicate("\\n")
os.unlink(D + "/g")
""", CUBESHIM_CONSISTENCY="open")

    def test_fifo_in_the_files_place_is_not_opened(self):
        self.check("""
there(f"os.unlink({D!r} + '/f'); os.mkfifo({D!r} + '/f')")
writer = subprocess.Popen(["sh", "-c", f"echo message > {ORIGIN}/f"], env={"PATH": "/bin:/usr/bin"})
while open(f"/proc/{writer.pid}/wchan").read() != "wait_for_partner":
  assert writer.poll() is None
os.fsync(fd)
assert writer.poll() is None
assert open(ORIGIN + "/f").read() == "message\\n"
assert writer.wait() == 0
""")


class LinkedPrefix(Births):
    by_link = True

    def test_file_removed_by_a_stranger_and_made_again_by_the_job_keeps_its_bytes(self):
        for change in "pass", "os.chmod(f, 0o600)":
            with self.subTest(change):
                self.check(f"""
start_stranger("rm f; echo")
there(f"f = {{D!r}} + '/f'")
there({change!r})
line_of_stranger()
there(make(D + "/f", "b"))
end_if_inode_is_not_used_again("f")
assert os.pread(fd, 4, 0) == b"aaaa", os.pread(fd, 4, 0)
stranger.communicate("\\n")
""")


class KeptAttributes(Births):
    keeps_names = True

    def test_file_whose_new_link_the_mount_does_not_show_yet_shows_its_new_bytes(self):
        self.check("""
there(f"os.stat({D!r} + '/f')")
start_stranger(f"ln {ORIGIN}/f {ORIGIN}/g; echo")
there(f"os.stat({D!r} + '/f')")
line_of_stranger()
there(f"os.unlink({D!r} + '/f')")
there(make(D + "/g", "b", "r+"))
assert os.pread(fd, 4, 0) == b"bbbb", os.pread(fd, 4, 0)
stranger.communicate("\\n")
""")

    def test_removed_file_keeps_its_bytes_though_the_mount_shows_another_name(self):
        self.check("""
there(f"os.link({D!r} + '/f', {D!r} + '/g')")
start_stranger(f"rm {ORIGIN}/g; echo")
there(f"os.stat({D!r} + '/f')")
line_of_stranger()
there("import contextlib")
there(f"with contextlib.suppress(FileNotFoundError): os.unlink({D!r} + '/g')")
there(f"os.unlink({D!r} + '/f'); " + make(D + "/f", "b"))
end_if_inode_is_not_used_again("f")
there(f"os.truncate({D!r} + '/f', 10000)")
assert os.pread(fd, 4, 0) == b"aaaa", os.pread(fd, 4, 0)
stranger.communicate("\\n")
""")


if __name__ == "__main__":
    unittest.main()
