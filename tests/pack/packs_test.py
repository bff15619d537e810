"""CUBESHIM_PACKS: programs under the shim, whose files are in a pack. CUBESHIM_COMMAND and
CUBESHIM_LIBRARY name the build's files."""
import json
import os
import subprocess
import sys
import unittest

from pack_case import COMMAND, PackCase, make_pack


class Packs(PackCase):
    def write_data(self):
        (self.data / "a").mkdir(parents=True)
        (self.data / "b").mkdir()
        (self.data / "a/x").write_bytes(b"hello")
        (self.data / "a/empty").touch()
        (self.data / "b/large").write_bytes(os.urandom(300_000))
        (self.data / "b/huge").write_bytes(os.urandom(3_000_000))
        os.symlink("../a/x", self.data / "b/link")
        os.symlink("../a", self.data / "b/to a")
        os.symlink("../../outside", self.data / "b/out")
        os.symlink("loop", self.data / "loop")
        os.chmod(self.data / "a/x", 0o640)

    def run_python(self, code, packs=None, **settings):
        if packs:
            settings["CUBESHIM_PACKS"] = packs
        environment = self.environment_of("packs", **settings)
        text = f"import errno, os, sys\nP, D = {str(self.prefix)!r}, {str(self.data)!r}\n" + code
        return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True,
                              text=True, timeout=120, cwd=self.work)

    def check(self, code, **settings):
        done = self.run_python(code, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads((self.work / "stats").read_text())

    def test_files_have_their_bytes_where_no_directory_is(self):
        stats = self.check(
            """
for name in ("a/x", "a/empty", "b/large", "b/huge", "b/link", "b/to a/x"):
    for _ in range(2):
        with open(f"{P}/{name}", "rb") as file:
            assert file.read() == open(f"{D}/{name}", "rb").read(), name
""", CUBESHIM_PREFETCH="0")
        self.assertEqual((stats["misses"], stats["hits"]["ram"]), (6, 6))
        self.assertEqual(
            (stats["origin"]["reads"], stats["origin"]["opens"], stats["origin"]["stats"]),
            (6, 0, 0))

    def test_stats_are_those_of_the_origin(self):
        self.check("""
def fields(path, follow):
    s = os.stat(path, follow_symlinks=follow)
    return s.st_mode, s.st_size, s.st_mtime_ns, s.st_uid, s.st_ino, s.st_nlink
for name in ("", "/", "/a", "/a/", "/a/x", "/b/link", "/b/to a", "/b/to a/x", "/b/huge"):
    for follow in (True, False):
        assert fields(P + name, follow) == fields(D + name, follow), (name, follow)
fd = os.open(P + "/a/x", os.O_RDONLY)
assert os.fstat(fd) == os.stat(P + "/a/x") == os.stat(P + "/b/link")
assert os.readlink(P + "/b/link") == "../a/x" and os.path.realpath(P + "/b/to a/x") == P + "/a/x"
assert os.access(P + "/a/x", os.R_OK) and not os.access(P + "/a/x", os.W_OK)
assert not os.access(P + "/a/x", os.X_OK) and os.access(P + "/a", os.X_OK)
""")

    def test_nothing_in_it_can_be_changed(self):
        self.check("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.access(f"{P}/a/x".encode(), os.W_OK) == -1 and ctypes.get_errno() == errno.EROFS
assert libc.mkdir(f"{P}/a".encode(), 0o755) == -1 and ctypes.get_errno() == errno.EEXIST
calls = [(open, P + "/a/x", "w"), (open, P + "/new", "a"), (open, P + "/a/x", "r+"),
         (os.unlink, P + "/a/x"), (os.rename, P + "/a/x", P + "/y"),
         (os.rename, D + "/a/x", P + "/y"), (os.rename, P + "/a/x", D + "/y"), (os.mkdir, P + "/d"),
         (os.rmdir, P + "/a"), (os.chmod, P + "/a/x", 0),
         (os.utime, P + "/a/x"), (os.symlink, "x", P + "/s"), (os.link, D + "/a/x", P + "/s"),
         (os.truncate, P + "/a/x", 0)]
for call, *arguments in calls:
    try: call(*arguments)
    except OSError as error: assert error.errno == errno.EROFS, (call, arguments, error)
    else: assert False, (call, arguments)
assert open(P + "/a/x").read() == "hello"
""")

    def test_paths_that_a_pack_lacks_are_the_kernels(self):
        self.prefix.mkdir()
        (self.prefix / "beside").write_text("kernel")
        (self.prefix / "a").mkdir()
        (self.prefix / "a/x").write_text("hidden")
        self.check("""
assert open(P + "/beside").read() == "kernel" and open(P + "/a/x").read() == "hello"
for path, error in (("/none", errno.ENOENT), ("/a/none", errno.ENOENT), ("/b/out", errno.ENOENT),
                    ("/loop", errno.ELOOP)):
    try: open(P + path)
    except OSError as e: assert e.errno == error, (path, e)
    else: assert False, path
""")

    def test_files_that_are_not_for_the_cache_are_copies(self):
        stats = self.check(
            """
for name in ("a/x", "b/large", "b/huge"):
    with open(f"{P}/{name}", "rb") as file:
        assert file.read() == open(f"{D}/{name}", "rb").read(), name
        assert os.fstat(file.fileno()).st_size == os.stat(f"{D}/{name}").st_size
""", CUBESHIM_MAX_FILE="100K")
        self.assertEqual((stats["misses"], stats["bypassed"]["size"]), (1, 2))

    def test_program_may_close_fds_of_the_library(self):
        self.check("""
assert open(P + "/a/x").read() == "hello"
os.closerange(3, 1 << 16)
# The fds belong to other files now.
for _ in range(900): os.open(D + "/a/x", os.O_RDONLY)
assert open(P + "/b/large", "rb").read() == open(D + "/b/large", "rb").read()
""")

    def test_served_files_materialize_by_their_bytes(self):
        self.check("""
import fcntl
for name in ("a/x", "b/large"):
    file = open(f"{P}/{name}", "rb")
    file.read(2)
    fcntl.flock(file.fileno(), fcntl.LOCK_SH)
    file.seek(1)
    assert file.read() == open(f"{D}/{name}", "rb").read()[1:]
pid = os.fork()
if pid == 0: os._exit(open(P + "/b/huge", "rb").read() != open(D + "/b/huge", "rb").read())
assert os.waitpid(pid, 0)[1] == 0
""")

    def test_copies_look_like_the_file(self):
        self.check("""
import fcntl
def look(root, name, flags):
    fd = os.open(f"{root}/{name}", flags)
    fcntl.flock(fd, fcntl.LOCK_SH)
    s = os.fstat(fd)
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    return s.st_mode, s.st_size, s.st_mtime_ns, s.st_uid, flags, os.get_inheritable(fd)
for name in ("a/x", "b/large", "b/huge"):
    for flags in (0, os.O_APPEND, os.O_NONBLOCK, os.O_SYNC | os.O_APPEND):
        assert look(P, name, flags) == look(D, name, flags), (name, flags)
""")

    def test_directories_are_open_as_those_of_the_kernel(self):
        self.check("""
import fcntl
for flags in (os.O_RDONLY, os.O_DIRECTORY, os.O_APPEND, os.O_NONBLOCK, os.O_PATH,
              os.O_PATH | os.O_DIRECTORY):
    d, own = os.open(P + "/a", flags), os.open(D + "/a", flags)
    assert fcntl.fcntl(d, fcntl.F_GETFL) == fcntl.fcntl(own, fcntl.F_GETFL), flags
    seen = []
    for call, *arguments in ((os.lseek, 0, 0), (os.utime,), (os.listdir,)):
        for fd in (own, d):
            try:
                found = call(fd, *arguments)
                seen.append(sorted(found or []) if call is os.listdir else found)
            except OSError as error: seen.append(error.errno)
        if call is not os.utime or (flags & os.O_PATH) != 0:
            assert seen[-1] == seen[-2], (flags, call, seen)
d = os.open(P + "/a", os.O_RDONLY)
assert os.dup2(d, d) == d and sorted(os.listdir(d)) == ["empty", "x"]
assert os.fstat(d).st_ino == os.stat(D + "/a").st_ino
""")

    def test_at_the_limit_of_fds(self):
        for mode in ("virtual", "real"):
            self.check(
                """
import resource
for name in ("a/x", "b/large"): os.close(os.open(f"{P}/{name}", os.O_RDONLY))
io = os.open("/proc/self/io", os.O_RDONLY)
def bytes_read(): return int(os.pread(io, 4096, 0).split()[1])
first = os.open(D, os.O_RDONLY)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (first + 2, limits[1]))
for name in ("a/x", "b/large", "b/huge"):
    fd = os.open(f"{P}/{name}", os.O_RDONLY)
    assert fd == first + 1, fd
    os.close(fd)
os.open(P + "/a/x", os.O_RDONLY)
before = bytes_read()
for name, flags in (("b/large", 0), ("a/x", 0), ("a/x/", 0), ("a/x/y", 0), ("loop", 0),
                    ("loop", os.O_NOFOLLOW), ("a/x", os.O_RDWR), ("a", os.O_DIRECTORY),
                    ("a/x", os.O_DIRECTORY), ("none", 0)):
    try: os.open(f"{P}/{name}", flags)
    except OSError as error: assert error.errno == errno.EMFILE, (name, flags, error)
    else: assert False
    # A cached file is not read again.
    if name == "b/large": assert bytes_read() < before + 100_000
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
""", CUBESHIM_MODE=mode)
            (self.work / "stats").unlink()

    def test_jobs_that_do_not_see_the_pack_see_their_own_files(self):
        self.prefix.mkdir()
        (self.prefix / "a").mkdir()
        (self.prefix / "a/x").write_text("of the directory")
        self.check("assert open(P + '/a/x').read() == 'hello'", CUBESHIM_RAM_KEEP="1")
        self.addCleanup(subprocess.run, [COMMAND, "clear", "--name", f"packs-{os.getpid()}"],
                        stdout=subprocess.DEVNULL)
        # Each job is still running when the other job checks.
        done = self.run_python(
            f"""
import subprocess
assert open(P + "/a/x").read() == "hello"
environment = {{**os.environ, "CUBESHIM_PACKS": "", "CUBESHIM_PREFIXES": P, "CUBESHIM_JOB": ""}}
for _ in range(2):
    assert subprocess.check_output(["cat", P + "/a/x"], env=environment) == b"of the directory"
assert open(P + "/a/x").read() == "hello"
""", CUBESHIM_STATS="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_pack_under_two_prefixes_is_two(self):
        (self.data / "a/a").mkdir()
        (self.data / "a/a/x").write_bytes(b"other")
        self.pack.unlink()
        make_pack(self.data, self.pack)
        self.check(f"""
import subprocess
assert open(P + "/a/a/x").read() == "other"
other = dict(os.environ, CUBESHIM_PACKS=P + "/a=" + {str(self.pack)!r})
assert subprocess.run(["cat", P + "/a/a/x"], env=other, capture_output=True).stdout == b"hello"
""")

    def test_packs_of_the_same_sizes_are_distinguished(self):
        (self.data / "a/x").write_bytes(b"jello")
        other = self.work / "other.cube"
        make_pack(self.data, other)
        # The other job is already running when this job fetches.
        done = self.run_python(
            f"""
import subprocess
code = ("import sys; open(sys.argv[1] + '/b/large', 'rb').close(); print(flush=True); "
        "sys.stdin.readline(); print(open(sys.argv[1] + '/a/x').read())")
environment = {{**os.environ, "CUBESHIM_PACKS": P + "={other}", "CUBESHIM_JOB": ""}}
with subprocess.Popen([sys.executable, "-c", code, P], env=environment, stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, text=True) as job:
    job.stdout.readline()
    assert open(P + "/a/x").read() == "hello"
    assert job.communicate("\\n")[0] == "jello\\n"
assert open(P + "/a/x").read() == "hello"
""", CUBESHIM_STATS="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_programs_of_the_shell_see_it(self):
        done = self.run_python(
            """
import subprocess
environment = {**os.environ, "P": P}
def shell(line): return subprocess.check_output(["sh", "-c", line], cwd="/", env=environment)
assert shell("cat < $P/a/x") == b"hello" and shell("stat -c %s $P/a/x") == b"5\\n"
assert shell("test -d $P/a/ && ! test -e $P/a/x/") == b""
os.makedirs(P + "/a", exist_ok=True)
assert shell("mkdir -p $P && exec < $P/b/link && cat") == b"hello"
""", CUBESHIM_STATS="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_fds_that_cannot_be_served_are_copies(self):
        self.check("""
os.close(0)
assert os.open(P + "/a/x", os.O_RDONLY) == 0 and os.read(0, 9) == b"hello"
os.open(P + "/b/to a/x", os.O_RDONLY | os.O_NOFOLLOW)
try: os.open(P + "/b/link", os.O_RDONLY | os.O_NOFOLLOW)
except OSError as error: assert error.errno == errno.ELOOP, error
else: assert False
""")

    def test_opens_with_o_path(self):
        self.check("""
import stat
def name(root, path, *flags):
    try: fd = os.open(root + path, sum(flags, os.O_PATH))
    except OSError as error: return errno.errorcode[error.errno]
    s = os.fstat(fd)
    seen = [s.st_mode, s.st_size if not stat.S_ISDIR(s.st_mode) else 0,
            s.st_mtime_ns if not stat.S_ISDIR(s.st_mode) else 0, os.get_inheritable(fd)]
    try: os.read(fd, 1)
    except OSError as error: seen.append(error.errno)
    try: os.open("x", os.O_RDONLY, dir_fd=fd)
    except OSError as error: seen.append(error.errno)
    if stat.S_ISREG(s.st_mode): seen.append(open(f"/proc/self/fd/{fd}", "rb").read())
    if stat.S_ISLNK(s.st_mode): seen.append(os.readlink("", dir_fd=fd))
    os.close(fd)
    return seen
for path in ("/a/x", "/a/empty", "/b/large", "/b/huge", "/b/link", "/b/to a/x", "/loop", "/a/x/",
             "/a/x/y", "/b/link/", "/none"):
    for flags in ((), (os.O_NOFOLLOW,), (os.O_DIRECTORY,), (os.O_DIRECTORY, os.O_NOFOLLOW)):
        here, there = name(P, path, *flags), name(D, path, *flags)
        assert here == there, (path, flags, here, there)
d = os.open(P + "/b", os.O_RDONLY)
assert os.readlink("", dir_fd=os.open("link", os.O_PATH | os.O_NOFOLLOW, dir_fd=d)) == "../a/x"
left = [one for one in os.listdir("/dev/shm") if one.startswith(f"cubeshim-link-{os.getpid()}-")]
assert not left
""")

    def test_entries_that_a_process_of_this_pid_has_left_are_no_obstacle(self):
        self.check("""
taken = [f"/dev/shm/cubeshim-{kind}-{os.getpid()}-{n}" for kind in ("link", "empty")
         for n in range(3)]
for name in taken: os.symlink("nowhere", name)
try:
    assert os.readlink("", dir_fd=os.open(P + "/b/link", os.O_PATH | os.O_NOFOLLOW)) == "../a/x"
    assert sorted(os.listdir(os.open(P + "/a", os.O_RDONLY))) == ["empty", "x"]
    assert all(os.readlink(name) == "nowhere" for name in taken)
finally:
    for name in taken: os.unlink(name)
""")

    def test_without_memory_for_a_cache_files_are_copies(self):
        done = self.run_python("assert open(P + '/a/x').read() == 'hello'",
                               CUBESHIM_RAM_DIR=str(self.work / "none"), CUBESHIM_STATS="off")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_damaged_pack_gives_errors_and_never_other_bytes(self):
        whole = self.pack.read_bytes()
        at = whole.index(b"hello")
        self.pack.write_bytes(whole[:at] + b"J" + whole[at + 1:])
        done = self.run_python("""
try: open(P + "/a/x")
except OSError as error: assert error.errno == errno.EIO, error
else: assert False
assert open(P + "/b/large", "rb").read() == open(D + "/b/large", "rb").read()
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stderr,
            "cubeshim: warn: a pack of CUBESHIM_PACKS is damaged: cubeshim verify says where\n")

    def test_wrong_settings_are_one_line(self):
        (self.work / "garbage").write_bytes(b"x" * 9999)
        for packs, text in ((f"{self.prefix}={self.work}/none", "none: No such file or directory"),
                            (f"{self.prefix}={self.work}/garbage", "garbage is not a pack"),
                            (f"mounted={self.pack}",
                             "each PREFIX absolute"), (str(self.prefix), "it takes PREFIX=FILE")):
            done = self.run_python("", packs=packs, CUBESHIM_STRICT="1")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
