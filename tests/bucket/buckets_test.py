"""CUBESHIM_BUCKETS: programs under the library, whose files are in a bucket. The tests have their
own gateway, which uses directories as buckets. FAKE_GATEWAY and CUBESHIM_LIBRARY name the build's
files."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

GATEWAY, LIBRARY = os.environ["FAKE_GATEWAY"], os.environ["CUBESHIM_LIBRARY"]
MOST_JOBS = 20


class Buckets(unittest.TestCase):
    maxDiff = None


    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = Path(os.path.realpath(folder.name))
        self.data = self.work / "store/bucket/train"
        self.prefix, self.log = self.work / "mounted", self.work / "requests"
        (self.data / "a/b").mkdir(parents=True)
        (self.data / "none").mkdir()
        (self.data / "a/x").write_bytes(b"hello")
        (self.data / "a/b/y 1+%=&ü").write_bytes(os.urandom(5000))
        (self.data / "a/empty").touch()
        (self.data / "large").write_bytes(os.urandom(300_000))
        (self.data / "huge").write_bytes(os.urandom(3_000_000))

    @classmethod
    def next_number(cls):
        """Returns a new number each time, so that each program has its own region and gateway."""
        cls.count = getattr(cls, "count", 0) + 1
        return cls.count

    def run_python(self, code, **settings):
        environment = {
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": LIBRARY,
            "CUBESHIM_COMMAND": GATEWAY,
            "CUBESHIM_NAME": f"buckets-{os.getpid()}-{self.next_number()}",
            "CUBESHIM_RAM": "64M",
            "CUBESHIM_BUCKETS": f"{self.prefix}=s3://bucket/train/",
            "CUBESHIM_STATS_FORMAT": "json",
            "CUBESHIM_STATS": str(self.work / "stats"),
            "AWS_TEST_ROOT": str(self.work / "store"),
            "AWS_TEST_LOG": str(self.log),
            **settings
        }
        text = f"import errno, os, sys\nP, D = {str(self.prefix)!r}, {str(self.data)!r}\n" + code
        (self.work / "stats").unlink(missing_ok=True)
        return subprocess.run([sys.executable, "-c", text],
                              env=environment,
                              capture_output=True,
                              text=True,
                              timeout=300,
                              cwd=self.work)

    def check(self, code, **settings):
        done = self.run_python(code, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads((self.work / "stats").read_text())

    def requests(self, kind):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sorted(line.partition(" ")[2] for line in lines if line.startswith(kind + " "))

    def test_files_have_their_bytes_and_are_fetched_once(self):
        stats = self.check("""
for name in ("a/x", "a/empty", "a/b/y 1+%=&ü", "large", "huge"):
    for _ in range(2):
        with open(f"{P}/{name}", "rb") as file:
            assert file.read() == open(f"{D}/{name}", "rb").read(), name
        if os.fork() == 0:
            with open(f"{P}/{name}", "rb") as file:
                os._exit(file.read() != open(f"{D}/{name}", "rb").read())
        assert os.wait()[1] == 0, name
""",
                           CUBESHIM_PREFETCH="0")
        self.assertEqual(self.requests("GET"), ["a/b/y 1+%=&ü", "a/empty", "a/x", "huge", "large"])
        self.assertEqual(self.requests("LIST"), ["", "a", "a/b"])
        self.assertEqual(self.requests("COPY"), [])
        self.assertEqual((stats["misses"], stats["hits"]["ram"]), (5, 15))

    def test_stats_come_with_the_listing(self):
        self.check("""
for top, folders, names in os.walk(P):
    own = D + top[len(P):]
    assert sorted(folders) == sorted(n for n in os.listdir(own) if os.path.isdir(f"{own}/{n}")), top
    assert sorted(names) == sorted(n for n in os.listdir(own) if os.path.isfile(f"{own}/{n}")), top
    for name in names:
        mine, its = os.stat(f"{top}/{name}"), os.stat(f"{own}/{name}")
        wanted = (its.st_size, int(its.st_mtime), int(its.st_mtime))
        assert (mine.st_size, int(mine.st_mtime), int(mine.st_ctime)) == wanted
        assert (mine.st_mode, mine.st_uid, mine.st_nlink) == (0o100444, os.geteuid(), 1)
        with open(f"{top}/{name}", "rb") as file:
            fd = os.fstat(file.fileno())
            for k in ("ino", "dev", "size", "mtime_ns", "ctime_ns", "mode"):
                assert getattr(fd, "st_" + k) == getattr(mine, "st_" + k), name
    assert os.stat(top).st_mode == 0o040555
    for entry in os.scandir(top): assert entry.inode() == os.stat(entry.path).st_ino, entry
assert os.listdir(P + "/none") == [] and os.path.isdir(P + "/a/../none")
assert os.path.realpath(P + "/a/../a/x") == P + "/a/x"
""",
                   CUBESHIM_PREFETCH="0")
        self.assertEqual(self.requests("LIST"), ["", "a", "a/b", "none"])

    def test_bad_pointers_are_efault_as_natively(self):
        self.check("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def error_of(call, *words):
    result = getattr(libc, call)(*words)
    return ctypes.get_errno() if result == -1 else 0
AT, NOWHERE = -100, [ctypes.c_void_p(at) for at in (None, 8, 4095, 0xdead000000000000)]
def errors_of(path, bad):
    name, text = str(path).encode(), ctypes.c_char_p(str(path).encode())
    yield [error_of(call, text, bad) for call in ("stat", "lstat", "stat64", "statfs")]
    yield error_of("fstatat", AT, text, bad, 0)
    yield error_of("statx", AT, text, 0, 0x7ff, bad)
    yield error_of("syscall", ctypes.c_long(262), AT, text, bad, 0)
    yield error_of("readlink", text, bad, ctypes.c_size_t(10))
room = ctypes.create_string_buffer(4096)
for bad in NOWHERE:
    for below in ("a", "a/x", "none", "a/b", "missing", "a/x/y"):
        assert list(errors_of(f"{P}/{below}", bad)) == list(errors_of(f"{D}/{below}", bad)), below
    for call in ("stat", "lstat", "statfs"): assert error_of(call, bad, room) == errno.EFAULT, call
    fd, directory = os.open(f"{P}/a/x", os.O_RDONLY), os.open(f"{P}/a", os.O_RDONLY)
    for one in (fd, directory):
        for call in ("fstat", "fstatfs"): assert error_of(call, one, bad) == errno.EFAULT, call
    assert error_of("fstatat", directory, b"x", bad, 0) == errno.EFAULT
    assert error_of("fstatat", directory, b"none", bad, 0) == errno.ENOENT
    for call in ("read", "pread", "getdents64"):
        one = directory if call == "getdents64" else fd
        assert error_of(call, one, bad, ctypes.c_size_t(100), 0) == errno.EFAULT, call
    os.close(fd)
    os.close(directory)
""")

    def test_missing_paths_are_absent_without_a_second_request(self):
        self.check("""
def error_of(call, *arguments):
    try: call(*arguments)
    except OSError as error: return error.errno
for _ in range(3):
    for call in (open, os.stat, os.listdir):
        assert error_of(call, P + "/a/none") == errno.ENOENT, call
        assert error_of(call, P + "/a/no/such/path") == errno.ENOENT, call
        assert error_of(call, P + "/a/x/below") == errno.ENOTDIR, call
        assert error_of(call, P + "/" + "n" * 256) == errno.ENAMETOOLONG, call
assert error_of(os.listdir, P + "/a/x") == errno.ENOTDIR
assert error_of(open, P + "/a") == errno.EISDIR
""",
                   CUBESHIM_PREFETCH="0")
        self.assertEqual(self.requests("GET"), [])
        lists = self.requests("LIST")
        self.assertEqual(len(lists), len(set(lists)), lists)
        self.assertLessEqual(set(lists), {"", "a", "a/no/such"})

    def test_every_call_below_an_object_fails_with_enotdir(self):
        for consistency in ("immutable", "open"):
            self.check("""
for _ in range(2):
    for call in (os.stat, open, os.listdir):
        try: call(P + "/a/x/below")
        except OSError as error: assert error.errno == errno.ENOTDIR, error
        else: raise AssertionError("it is there")
""", CUBESHIM_PREFETCH="0", CUBESHIM_CONSISTENCY=consistency)

    def test_nothing_in_it_can_be_changed(self):
        self.check("""
def error_of(call, *arguments):
    try: call(*arguments)
    except OSError as error: return error.errno
for call in (lambda: open(P + "/a/x", "w"), lambda: open(P + "/new", "w"),
             lambda: os.unlink(P + "/a/x"), lambda: os.rename(P + "/a/x", P + "/z"),
             lambda: os.chmod(P + "/a/x", 0o600), lambda: os.truncate(P + "/a/x", 0),
             lambda: os.utime(P + "/a/x"), lambda: os.rmdir(P + "/none"),
             lambda: os.symlink("x", P + "/link")):
    assert error_of(call) == errno.EROFS, call
assert error_of(os.mkdir, P + "/a") == errno.EEXIST
assert error_of(os.readlink, P + "/a/x") == errno.EINVAL
assert os.access(P + "/a/x", os.R_OK)
assert not os.access(P + "/a/x", os.W_OK) and not os.access(P + "/a/x", os.X_OK)
""",
                   CUBESHIM_PREFETCH="0")

    def test_files_that_are_not_for_the_cache_are_copies_by_the_gateway(self):
        self.check("""
import mmap
with open(P + "/huge", "rb") as file:
    data = open(D + "/huge", "rb").read()
    assert file.read(10) == data[:10]
    assert os.pread(file.fileno(), 100, 2_000_000) == data[2_000_000:2_000_100]
    assert mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:] == data
    stat = os.fstat(file.fileno())
    assert (stat.st_size, stat.st_mode) == (3_000_000, 0o100444)
    assert int(stat.st_mtime) == int(os.stat(D + "/huge").st_mtime)
    for change in (lambda: os.ftruncate(file.fileno(), 0), lambda: os.write(file.fileno(), b"x")):
        try: change()
        except OSError: pass
        else: raise AssertionError("a copy can be changed")
a, b = os.open(P + "/huge", os.O_RDONLY), os.open(P + "/huge", os.O_RDONLY)
assert os.read(a, 10) == os.read(b, 10) == data[:10], "each has an offset of its own"
""",
                   CUBESHIM_PREFETCH="0",
                   CUBESHIM_MAX_FILE="1M",
                   CUBESHIM_BLOCK="0")
        self.assertEqual(self.requests("COPY"), ["huge"] * 3)
        self.assertEqual(self.requests("GET"), [])

    def ranges(self):
        """Returns the ranges of `huge` that were fetched, as begin and end."""
        words = [line.split(" ") for line in self.requests("RANGE")]
        return sorted((int(at), int(at) + int(size)) for _, at, size in words)

    def assert_each_byte_came_once(self, size):
        end = 0
        for begin, until in self.ranges():
            self.assertEqual(begin, end)
            end = until
        self.assertEqual(end, size)

    def test_a_large_object_comes_in_blocks(self):
        (self.data / "huge").write_bytes(os.urandom(9_000_001))
        stats = self.check("""
import io, mmap
data = open(D + "/huge", "rb").read()
with open(P + "/huge", "rb", buffering=0) as file:
    fd = file.fileno()
    assert os.fstat(fd).st_size == 9_000_001 and os.fstat(fd).st_ino == os.stat(P + "/huge").st_ino
    assert os.pread(fd, 100, 8_500_000) == data[8_500_000:8_500_100]
    log = open(os.environ["AWS_TEST_LOG"])
    assert sum(int(l.split()[-1]) for l in log if l.startswith("RANGE")) <= 600_000
    assert file.read(10) == data[:10] and file.tell() == 10
    other = os.dup(fd)
    assert os.read(other, 10) == data[10:20] and os.lseek(fd, 0, os.SEEK_CUR) == 20
    assert file.seek(-7, os.SEEK_END) == 8_999_994
    assert file.read() == data[-7:] and file.read(1) == b""
    parts = [bytearray(3), bytearray(1_000_000)]
    assert os.preadv(fd, parts, 2_999_999) == 1_000_003
    assert b"".join(parts) == data[2_999_999:4_000_002]
    os.lseek(fd, 5, os.SEEK_SET)
    assert os.readv(fd, parts) == 1_000_003 and b"".join(parts) == data[5:1_000_008]
with open(P + "/huge", "rb") as file:
    got = b""
    while part := file.read(100_000): got += part
    assert got == data
assert open(P + "/huge", "rb").read() == data
""",
                   CUBESHIM_PREFETCH="0",
                   CUBESHIM_MAX_FILE="1M")
        self.assertEqual(self.requests("GET") + self.requests("COPY"), [])
        self.assert_each_byte_came_once(9_000_001)
        self.assertGreater(stats["blocks"]["read"], 18_000_000)

    def test_processes_fetch_each_block_of_a_large_object_once(self):
        (self.data / "huge").write_bytes(os.urandom(9_000_001))
        self.check("""
data = open(D + "/huge", "rb").read()
for i in range(6):
    if os.fork() == 0:
        with open(P + "/huge", "rb") as file:
            file.seek(i * 1_500_000)
            is_right = file.read() == data[i * 1_500_000:] and file.seek(0) == 0
            os._exit(not (is_right and file.read() == data))
for _ in range(6): assert os.wait()[1] == 0
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M")
        self.assert_each_byte_came_once(9_000_001)

    def test_a_mapping_of_a_large_object_has_its_bytes(self):
        (self.data / "huge").write_bytes(os.urandom(9_000_001))
        self.check("""
import mmap
data = open(D + "/huge", "rb").read()
for _ in range(2):
    with open(P + "/huge", "rb") as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole: assert whole[:] == data
        with mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ, offset=4_194_304 - 4096) as part:
            assert part[:] == data[4_190_208:4_198_400]
        with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as own:
            own[:5] = b"other"
            assert own[5:] == data[5:]
        assert file.read(5) == data[:5]
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M")
        self.assertEqual(self.requests("COPY"), [])
        self.assert_each_byte_came_once(9_000_001)

    def test_a_large_object_that_the_kernel_needs_is_copied(self):
        self.check("""
import subprocess
data = open(D + "/huge", "rb").read()
with open(P + "/huge", "rb", buffering=0) as file:
    assert file.read(1000) == data[:1000]
    pipe = os.pipe()
    assert os.sendfile(pipe[1], file.fileno(), 5, 100) == 100
    assert os.read(pipe[0], 100) == data[5:105]
    assert os.read(file.fileno(), 10) == data[1000:1010], "the offset stays"
with open(P + "/huge", "rb", buffering=0) as file:
    file.seek(2_000_000)
    assert subprocess.run(["cat"], stdin=file, capture_output=True).stdout == data[2_000_000:]
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M")
        self.assertEqual(self.requests("COPY"), ["huge"] * 2)

    def test_programs_and_libraries_in_it_run(self):
        (self.data / "tool").write_bytes(Path("/bin/echo").read_bytes())
        (self.data / "script").write_text(f"#!{sys.executable} -S\nimport sys\nprint(sys.argv)")
        (self.data / "text").write_text("no program")
        library, = Path("/usr/lib").glob("*/libz.so.1")
        (self.data / "a/libown.so").write_bytes(library.read_bytes())
        for block in ("1M", "0"):
            self.check("""
import ctypes, subprocess
def run(*words, **options): return subprocess.run(words, capture_output=True, text=True, **options)
def spawned(spawn, *words):
    pipe = os.pipe()
    child = spawn(words[0], list(words), os.environ,
                  file_actions=[(os.POSIX_SPAWN_DUP2, pipe[1], 1)])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return os.read(pipe[0], 1000).decode()
for _ in range(2):
    assert run(P + "/tool", "a", "b").stdout == "a b\\n"
    assert run(P + "/script", "a", "b c").stdout == f"{[P + '/script', 'a', 'b c']}\\n"
    both = run("/bin/sh", "-c", P + "/tool x; cd /; exec " + P + "/script y")
    assert both.stdout == f"x\\n{[P + '/script', 'y']}\\n"
    assert spawned(os.posix_spawn, P + "/tool", "a") == "a\\n"
    assert spawned(os.posix_spawnp, P + "/tool", "a") == "a\\n"
    assert spawned(os.posix_spawn, P + "/script", "a") == f"{[P + '/script', 'a']}\\n"
    for path, error in (("/no", errno.ENOENT), ("/a", errno.EACCES), ("/text", errno.ENOEXEC)):
        try: run(P + path)
        except OSError as found: assert found.errno == error, (path, found)
        else: raise AssertionError(path)
    one, two = ctypes.CDLL(P + "/a/libown.so"), ctypes.CDLL(P + "/a/../a/libown.so")
    assert one._handle == two._handle
    assert one.crc32(0, b"123456789", 9) == ctypes.c_int(0xcbf43926).value
    try: ctypes.CDLL(P + "/a/none.so")
    except OSError as error: assert P + "/a/none.so" in str(error), error
    else: raise AssertionError("it was loaded")
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="64K", CUBESHIM_BLOCK=block)

    def test_library_is_loaded_again_though_the_fd_of_its_copy_was_reused(self):
        library, = Path("/usr/lib").glob("*/libz.so.1")
        (self.data / "libown.so").write_bytes(library.read_bytes())
        self.check("""
import _ctypes, ctypes
_ctypes.dlclose(ctypes.CDLL(P + "/libown.so")._handle)
copies = [int(n) for n in os.listdir("/proc/self/fd")
          if int(n) > 9 and os.path.exists(f"/proc/self/fd/{n}")]
copies = [n for n in copies if os.readlink(f"/proc/self/fd/{n}").startswith("/memfd:")]
assert copies
for n in copies: os.dup2(os.memfd_create("other"), n)
assert ctypes.CDLL(P + "/libown.so").crc32(0, b"123456789", 9) == ctypes.c_int(0xcbf43926).value
""", CUBESHIM_PREFETCH="0")

    def test_direct_reads_are_answered(self):
        self.check("""
import fcntl, mmap
for name in ("large", "huge"):
    data = open(f"{D}/{name}", "rb").read()
    fd = os.open(f"{P}/{name}", os.O_RDONLY | os.O_DIRECT | os.O_NOATIME)
    flags = os.O_DIRECT | os.O_NOATIME
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & flags == flags
    room = mmap.mmap(-1, 1 << 16)
    assert os.preadv(fd, [room], 8192) == 1 << 16 and room[:] == data[8192:8192 + (1 << 16)]
    assert os.preadv(fd, [room], len(data) // 4096 * 4096) == len(data) % 4096
    os.set_inheritable(fd, True)
    assert os.lseek(fd, 4096, os.SEEK_SET) == 4096
    import subprocess
    assert subprocess.run(["cat"], stdin=fd, capture_output=True).stdout == data[4096:]
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M")

    def test_bytes_of_two_versions_of_a_large_object_are_never_mixed(self):
        old, new = b"o" * 9_000_001, b"n" * 9_000_001
        (self.data / "huge").write_bytes(old)
        for call in ("os.pread(fd, 100, 6_000_000)", "os.sendfile(pipe[1], fd, 0, 100)"):
            (self.data / "huge").write_bytes(old)
            done = self.run_python(f"""
pipe = os.pipe()
fd = os.open(P + "/huge", os.O_RDONLY)
assert os.read(fd, 100) == b"o" * 100
open(D + "/huge", "wb").write(b"n" * 9_000_001)
for _ in range(2):
    try: got = {call}
    except OSError as error: assert error.errno in (errno.EIO, errno.EBADF), error
    else: raise AssertionError("it was read")
assert os.pread(fd, 100, 0) == b"o" * 100, "what has come stays"
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual((self.data / "huge").read_bytes(), new)

    def test_a_large_object_without_room_in_memory_is_copied(self):
        self.check("""
data = open(D + "/huge", "rb").read()
with open(P + "/huge", "rb", buffering=0) as file:
    assert file.read(1000) == data[:1000] and file.read() == data[1000:]
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M", AWS_TEST_FAULT="no_room")
        self.assertEqual(self.requests("COPY"), ["huge"])

    def test_parent_and_child_share_an_offset_though_the_store_gives_no_copy(self):
        done = self.run_python("""
import mmap
data = open(D + "/huge", "rb").read()
fd = os.open(P + "/huge", os.O_RDONLY)
other = os.dup(fd)
assert os.read(fd, 1000) == data[:1000]
def in_child(body):
    if os.fork() == 0:
        try: body()
        except BaseException as trouble: print(trouble, file=sys.stderr, flush=True)
        else: os._exit(0)
        os._exit(1)
    assert os.wait()[1] == 0
def child():
    parts = [bytearray(10), bytearray(90)]
    assert os.read(fd, 1000) == data[1000:2000]
    assert os.readv(other, parts) == 100 and b"".join(parts) == data[2000:2100]
    assert os.pread(fd, 10, 5) == data[5:15] and os.fstat(fd).st_size == len(data)
    in_child(lambda: os.read(os.dup(other), 900))
    assert os.read(fd, 1000) == data[3000:4000]
    assert mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:] == data
    try: os.write(fd, b"x")
    except OSError as error: assert error.errno == errno.EBADF, error
    else: raise AssertionError("it can be written")
in_child(child)
assert os.read(other, 1000) == data[4000:5000]
in_child(lambda: os.lseek(fd, -50, os.SEEK_END))
assert os.lseek(other, 0, os.SEEK_CUR) == len(data) - 50 and os.read(fd, 100) == data[-50:]
assert os.read(fd, 100) == b"" and os.lseek(fd, 0, os.SEEK_CUR) == len(data)
os.close(fd)
assert os.lseek(other, 7, os.SEEK_SET) == 7 and os.read(other, 3) == data[7:10]
""", CUBESHIM_PREFETCH="0", CUBESHIM_MAX_FILE="1M", AWS_TEST_FAULT="no_copies")
        self.assertEqual((done.returncode, done.stderr),
                         (0, "cubeshim: error: s3://bucket/train: Input/output error\n"))

    def test_a_region_without_room_costs_no_file(self):
        self.check("""
for _ in range(2):
    for name in ("a/x", "large"):
        with open(f"{P}/{name}", "rb") as file:
            assert file.read() == open(f"{D}/{name}", "rb").read(), name
""",
                   CUBESHIM_PREFETCH="0",
                   AWS_TEST_FAULT="no_room")

    def test_served_files_are_materialized_by_their_bytes(self):
        self.check("""
import subprocess, mmap
with open(P + "/large", "rb", buffering=0) as file:
    data = open(D + "/large", "rb").read()
    assert file.read(1000) == data[:1000]
    assert mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:] == data
    assert subprocess.run(["cat"], stdin=file, capture_output=True).stdout == data[1000:]
""",
                   CUBESHIM_PREFETCH="0")
        self.assertEqual(self.requests("GET"), ["large"])

    def test_a_list_is_prefetched(self):
        (self.work / "list").write_text(f"{self.prefix}/large\n{self.prefix}/a\n")
        stats = self.check("""
import time
def read(name):
    with open(f"{P}/{name}", "rb") as file:
        assert file.read() == open(f"{D}/{name}", "rb").read(), name
read("a/x")
# The others are fetched ahead.
end = time.monotonic() + 120
while len([l for l in open(os.environ["AWS_TEST_LOG"]) if "(ahead)" in l]) < 2:
    assert time.monotonic() < end
for name in ("large", "a/empty", "a/b/y 1+%=&ü", "a/x"): read(name)
""",
                           CUBESHIM_PREFETCH_LIST=str(self.work / "list"))
        self.assertGreaterEqual(len([r for r in self.requests("GET") if "(ahead)" in r]), 2)
        self.assertEqual(self.requests("COPY"), [], "the gateway puts files into RAM itself")
        everything = self.requests("GET")
        names = [r.removesuffix(" (ahead)") for r in everything]
        self.assertEqual(len(names), len(set(names)), "each is fetched once")
        self.assertGreater(stats["prefetch"]["fetched"], 0)

    def test_processes_of_a_node_fetch_each_object_once(self):
        self.check("""
names = ["a/x", "a/empty", "a/b/y 1+%=&ü", "large", "huge"]
for i in range(8):
    if os.fork() == 0:
        for name in names[i % 5:] + names[:i % 5]:
            with open(f"{P}/{name}", "rb") as file:
                if file.read() != open(f"{D}/{name}", "rb").read(): os._exit(1)
        os._exit(0)
for _ in range(8): assert os.wait()[1] == 0
""", CUBESHIM_PREFETCH="0")
        self.assertEqual(self.requests("GET") + self.requests("COPY"),
                         ["a/b/y 1+%=&ü", "a/empty", "a/x", "huge", "large"])

    def test_next_job_requests_only_listings_and_changed_objects(self):
        read = """
for name in ("a/x", "large"):
    with open(f"{P}/{name}", "rb") as file:
        assert file.read() == open(f"{D}/{name}", "rb").read(), name
"""
        keeps = {
            "memory": {"CUBESHIM_RAM_KEEP": "1"},
            "disk": {"CUBESHIM_DISK_DIR": str(self.work / "disk")}
        }
        (self.work / "disk").mkdir()
        for place, settings in keeps.items():
            with self.subTest(place):
                name = f"buckets-{os.getpid()}-{place}"
                # On a busy machine, the disk does not get all objects of a job as short as these.
                for job in range(2 if place == "memory" else MOST_JOBS):
                    self.log.unlink(missing_ok=True)
                    self.check(read, CUBESHIM_PREFETCH="0", CUBESHIM_NAME=name, **settings)
                    if job == 0:
                        self.assertEqual(self.requests("GET"), ["a/x", "large"])
                    elif not self.requests("GET"):
                        break
                self.assertEqual(self.requests("GET"), [])
                (self.data / "a/x").write_bytes(b"other")
                self.check(read, CUBESHIM_PREFETCH="0", CUBESHIM_NAME=name, **settings)
                self.assertEqual(self.requests("GET"), ["a/x"])
                for left in Path("/dev/shm").glob(f"cubeshim-{os.geteuid()}-{name}*"):
                    left.unlink()

    def test_the_next_job_prefetches_from_the_disk_and_only_the_rest_from_the_store(self):
        (self.work / "disk").mkdir()
        settings = {
            "CUBESHIM_NAME": f"buckets-{os.getpid()}-ahead",
            "CUBESHIM_DISK_DIR": str(self.work / "disk"),
            "CUBESHIM_PREFETCH_LIST": str(self.work / "list")
        }
        names = ["a/x", "a/empty", "a/b/y 1+%=&ü", "large", "a/last"]
        (self.data / "a/last").write_bytes(b"last")
        (self.work / "list").write_text("".join(f"{self.prefix}/{name}\n" for name in names))
        read = f"""
import time
os.stat(P + "/a")
end = time.monotonic() + 120
LOG = os.environ["AWS_TEST_LOG"]
while "a/last (ahead)" not in (open(LOG).read() if os.path.exists(LOG) else ""):
    assert time.monotonic() < end
for name in {names}:
    with open(f"{{P}}/{{name}}", "rb") as file:
        assert file.read() == open(f"{{D}}/{{name}}", "rb").read(), name
"""
        self.check(read, **settings)
        # The gateway is the last process that uses the memory of this job.
        end = time.monotonic() + 120
        while list(Path("/dev/shm").glob(f"cubeshim-{os.geteuid()}-{settings['CUBESHIM_NAME']}*")):
            self.assertLess(time.monotonic(), end)
        self.log.unlink()
        # The disk does not have these files yet. When the file that is listed last is there, the
        # other files have been handled, too.
        for name in ("a/x", "a/last"):
            (self.data / name).write_bytes(b"another " + name.encode())
        self.check(read, **settings)
        fetched = self.requests("GET") + self.requests("COPY")
        self.assertEqual(fetched, ["a/last (ahead)", "a/x (ahead)"])

    def test_change_is_seen_as_the_consistency_promises(self):
        for consistency, is_seen in (("immutable", False), ("ttl:100", False), ("ttl:0", True),
                                     ("open", True)):
            with self.subTest(consistency):
                (self.data / "a/x").write_bytes(b"hello")
                self.check(f"""
import time
def read():
    data = open(P + "/a/x", "rb").read()
    return data, os.stat(P + "/a/x").st_size, os.path.exists(P + "/a/new")
before = read()
assert before == (b"hello", 5, False), before
open(D + "/a/x", "wb").write(b"changed"); open(D + "/a/new", "w")
begin = time.monotonic()
while time.monotonic() < begin + 0.2: pass  # a part of the time to live
after = read()
os.unlink(D + "/a/new")
assert after == ((b"changed", 7, True) if {is_seen} else before), after
""", CUBESHIM_PREFETCH="0", CUBESHIM_CONSISTENCY=consistency)

    def test_other_origins_keep_their_paths(self):
        (self.work / "plain").mkdir()
        (self.work / "plain/file").write_text("plain")
        (self.work / "store/bucket/other").mkdir()
        (self.work / "store/bucket/other/z").write_text("inner")
        self.check(f"""
W = {str(self.work)!r}
for _ in range(2):
    assert open(W + "/plain/file").read() == "plain"
    assert open(P + "/a/x").read() == "hello" and open(P + "/inner/z").read() == "inner"
    assert os.listdir(W + "/plain") == ["file"] and os.listdir(P + "/inner") == ["z"]
""", CUBESHIM_PREFETCH="0", CUBESHIM_PREFIXES=str(self.work / "plain"),
                   CUBESHIM_BUCKETS=f"{self.prefix}=s3://bucket/train:"
                   f"{self.prefix}/inner=s3://bucket/other")

    def test_a_materialized_object_has_the_stat_of_its_path(self):
        self.check("""
fd, pipe = os.open(P + "/a/x", os.O_RDONLY), os.pipe()
assert os.sendfile(pipe[1], fd, 0, 3) == 3
assert os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:")
names = [name for name in dir(os.stat_result) if name.startswith("st_")]
mine, its = os.fstat(fd), os.stat(P + "/a/x")
assert all(getattr(mine, name) == getattr(its, name) for name in names), (mine, its)
""", CUBESHIM_PREFETCH="0")

    def test_mode_real_gives_kernel_files(self):
        self.check("""
for _ in range(2):
    for name in ("a/x", "large"):
        fd = os.open(f"{P}/{name}", os.O_RDONLY)
        assert open(f"/proc/self/fd/{fd}", "rb").read() == open(f"{D}/{name}", "rb").read(), name
        os.close(fd)
""", CUBESHIM_PREFETCH="0", CUBESHIM_MODE="real")

    def test_death_of_the_gateway_costs_only_time(self):
        copies = {"CUBESHIM_MAX_FILE": "1M", "CUBESHIM_BLOCK": "0"}
        for fault, settings in (("die", {}), ("die_copy", copies), ("lost_copy", copies)):
            with self.subTest(fault):
                self.check("""
for name in ("a/x", "huge", "large"):
    with open(f"{P}/{name}", "rb") as file:
        assert file.read() == open(f"{D}/{name}", "rb").read(), name
""",
                           CUBESHIM_PREFETCH="0",
                           AWS_TEST_FAULT=fault,
                           **settings)
                self.assertTrue(Path(f"{self.log}.struck").exists())
                os.unlink(f"{self.log}.struck")

    def test_error_of_the_store_is_reported_once_in_its_words(self):
        done = self.run_python("""
for _ in range(3):
    try: open(P + "/a/x")
    except OSError as error: assert error.errno == errno.EACCES, error
    else: raise AssertionError("it opened")
    try: os.stat(P + "/a/x")
    except OSError as error: assert error.errno == errno.EACCES, error
""",
                               CUBESHIM_PREFETCH="0",
                               AWS_TEST_FAULT="denied")
        self.assertEqual((done.returncode, done.stderr),
                         (0, "cubeshim: error: s3://bucket/train: the store says no\n"))

    def test_a_store_that_does_not_answer_ends_the_wait(self):
        done = self.run_python("""
for call in (open, os.stat, os.listdir) * 2:
    try: call(P + "/a")
    except OSError as error: assert error.errno == errno.ETIMEDOUT, error
    else: raise AssertionError("it answered")
""",
                               CUBESHIM_PREFETCH="0",
                               AWS_TEST_FAULT="silent",
                               CUBESHIM_S3_TIMEOUT="0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("no answer in time", done.stderr)
        self.assertLess(len(self.requests("LIST")), 6, "each call waits the whole time")

    def test_missing_command_gives_one_line_and_eio(self):
        done = self.run_python("""
for _ in range(2):
    try: open(P + "/a/x")
    except OSError as error: assert error.errno == errno.EIO, error
    else: raise AssertionError("it opened")
print(os.listdir(D + "/a/b"))
""",
                               CUBESHIM_PREFETCH="0",
                               CUBESHIM_COMMAND="/nowhere/cubeshim")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("/nowhere/cubeshim", done.stderr)

    def test_gateway_shares_nothing_with_the_program(self):
        self.check("""
import signal, threading
got = []
signal.signal(signal.SIGCHLD, lambda *_: got.append(1))
held = os.open("/dev/null", os.O_RDONLY); os.set_inheritable(held, True)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
open(P + "/a/x").read()
assert not got, "SIGCHLD"
WALL = 0x40000000  # children without a signal, too
try: os.waitpid(-1, os.WNOHANG | WALL)
except ChildProcessError: pass
else: raise AssertionError("a child")
def is_gateway(pid):
    try:
        command = open(f"/proc/{pid}/cmdline", "rb").read()
        return command.endswith(b"fake_gateway\\0gateway\\0") and \\
            os.environ["CUBESHIM_NAME"].encode() in open(f"/proc/{pid}/environ", "rb").read()
    except OSError: return False
pids = [p for p in os.listdir("/proc") if p.isdigit() and is_gateway(p)]
assert len(pids) == 1, pids
environment = open(f"/proc/{pids[0]}/environ", "rb").read().split(b"\\0")
assert not [e for e in environment if e.startswith((b"LD_PRELOAD", b"SECRET"))]
assert os.getsid(int(pids[0])) not in (os.getsid(0), int(pids[0]))
if os.cpu_count() > 1: assert len(os.sched_getaffinity(int(pids[0]))) > 1
assert os.readlink(f"/proc/{pids[0]}/cwd") == "/"
assert os.readlink(f"/proc/{pids[0]}/fd/2") == "/dev/null"
links = [os.readlink(f"/proc/{pids[0]}/fd/{n}") for n in os.listdir(f"/proc/{pids[0]}/fd")]
assert links.count("/dev/null") == 3, links
""",
                   CUBESHIM_PREFETCH="0",
                   SECRET="1")

    def test_a_wrong_setting_is_refused(self):
        for value in ("/data=s3://", "/data=http://x/y", "/=s3://bucket", "data=s3://bucket",
                      "/a=s3://x:/a=s3://y"):
            with self.subTest(value):
                done = self.run_python("pass", CUBESHIM_BUCKETS=value, CUBESHIM_STRICT="1")
                self.assertEqual(done.returncode, 2)
                self.assertIn("CUBESHIM_BUCKETS", done.stderr)


if __name__ == "__main__":
    unittest.main()
