"""CUBESHIM_PACKS: programs list the directories of a pack. The plain tree and the packed tree give
the same answers. CUBESHIM_COMMAND and CUBESHIM_LIBRARY name the build's files."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from bench.harness.mount import SlowMount  # noqa: E402

COMMAND, LIBRARY, LAGFS = (
    os.environ[name] for name in ("CUBESHIM_COMMAND", "CUBESHIM_LIBRARY", "CUBESHIM_LAGFS"))

# libc's functions for directories, by ctypes; the structures are those of a 64-bit Linux.
LIBC = """
import ctypes, errno, os
C = ctypes.CDLL(None, use_errno=True)
class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("length", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]
C.opendir.restype = C.fdopendir.restype = ctypes.c_void_p
for call in (C.readdir, C.readdir64):
    call.restype, call.argtypes = ctypes.POINTER(Dirent), [ctypes.c_void_p]
for call in (C.closedir, C.dirfd, C.rewinddir): call.argtypes = [ctypes.c_void_p]
C.telldir.restype, C.telldir.argtypes = ctypes.c_long, [ctypes.c_void_p]
C.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
def row(entry): return (entry.name, entry.type, entry.ino)
def rows(directory, read=C.readdir):
    found = []
    while entry := read(directory): found.append(row(entry.contents))
    return found
"""

CLASSES = 2000
WALK = """
import os
print(sum(len(os.listdir(one.path)) for one in os.scandir(os.environ["P"]) if one.is_dir()))
"""


@unittest.skipUnless(LAGFS and os.access("/dev/fuse", os.W_OK), "lagfs or /dev/fuse is missing")
class ReadsOfAWalk(unittest.TestCase):
    """A pack of many classes on a mount that counts its READs."""
    @classmethod
    def setUpClass(cls):
        cls.work = Path(os.path.realpath(cls.enterClassContext(tempfile.TemporaryDirectory())))
        (cls.work / "source").mkdir()
        for number in range(CLASSES):
            one = cls.work / "tree" / f"class_{number:04}"
            one.mkdir(parents=True)
            (one / "image.jpg").touch()
        subprocess.run([COMMAND, "pack", "-q", cls.work / "tree", cls.work / "source/set.cube"],
                       check=True, stdout=subprocess.DEVNULL)

    def reads(self, direct):
        prefix = self.work / "packed"
        with SlowMount(Path(LAGFS), self.work / "source", self.work, 0, direct) as mount:
            env = {
                "PATH": os.environ["PATH"], "P": str(prefix), "LD_PRELOAD": LIBRARY,
                "CUBESHIM_NAME": f"packs-walk-{os.getpid()}", "CUBESHIM_RAM": "64M",
                "CUBESHIM_PACKS": f"{prefix}={mount.path}/set.cube", "CUBESHIM_STATS": "off"
            }
            done = subprocess.run(["/usr/bin/python3", "-c", WALK], env=env, check=True,
                                  capture_output=True, timeout=120)
            self.assertEqual((int(done.stdout), done.stderr), (CLASSES, b""))
            return mount.counters()["read"]["count"]

    def test_one_read_brings_many_listings_where_the_mount_keeps_pages(self):
        self.assertLess(self.reads(direct=False), CLASSES / 20)

    def test_a_listing_takes_one_read_where_it_does_not(self):
        # The record of the parent directory, for "..", is not read for each directory.
        self.assertLess(self.reads(direct=True), CLASSES * 1.2)


class Listings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = Path(os.path.realpath(folder.name))
        cls.data, cls.pack = cls.work / "plain/set", cls.work / "set.cube"
        cls.prefix = cls.work / "packed/set"
        for name in ("a", "b/c/d/e/f/g", "empty", "with space"):
            (cls.data / name).mkdir(parents=True)
        for i in range(300):
            (cls.data / "a" / f"{i:03}.jpg").write_bytes(b"x" * i)
        (cls.data / "b/c/d/e/f/g/deep").write_text("deep")
        (cls.data / "a" / ("n" * 255)).write_text("long")
        (cls.data / os.fsdecode(b"not \xff text")).write_text("odd")
        os.symlink("../a", cls.data / "b/to a")
        os.symlink("001.jpg", cls.data / "a/link")
        os.symlink("nowhere", cls.data / "b/broken")
        cls.prefix.parent.mkdir()
        subprocess.run([COMMAND, "pack", "-q", cls.data, cls.pack], check=True,
                       stdout=subprocess.DEVNULL)

    def run_at(self, command, root, is_packed, **settings):
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.work), "LC_ALL": "C", "P": str(root),
            "O": str(self.data)
        }
        if is_packed:
            environment |= {
                "LD_PRELOAD": LIBRARY, "CUBESHIM_NAME": f"packs-listing-{os.getpid()}",
                "CUBESHIM_RAM": "64M", "CUBESHIM_PACKS": f"{self.prefix}={self.pack}",
                "CUBESHIM_STATS": "off", **settings
            }
        done = subprocess.run(command, env=environment, cwd=root.parent, capture_output=True,
                              timeout=120)
        return done.returncode, sorted(done.stdout.splitlines()), done.stderr.replace(
            bytes(root), b"P")

    def check_same(self, *command):
        plain = self.run_at(command, self.data, False)
        self.assertEqual((plain[0], plain[2]), (0, b""))
        self.assertTrue(plain[1])
        self.assertEqual(self.run_at(command, self.prefix, True), plain)

    def check_same_python(self, code):
        self.check_same(sys.executable, "-c",
                        "import glob, os, pathlib, stat, sys\nP = os.environ['P']\n" + code)

    def check_packed(self, code, **settings):
        self.assertEqual(
            self.run_at([
                sys.executable, "-c",
                "P, O = (__import__('os').environ[n] for n in 'PO')\n" + LIBC + code
            ], self.prefix, True, **settings), (0, [], b""))

    def test_an_exception_of_the_filter_passes_through_scandir(self):
        self.check_same(os.environ["PRELOAD_HELPER"], "throw", "set/a")

    def test_python_lists_and_walks(self):
        self.check_same_python("""
for top, folders, files in os.walk(P, followlinks=True):
    print(ascii(top[len(P):]), sorted(map(ascii, folders)), sorted(map(ascii, files)))
for top, folders, files, fd in os.fwalk(P):
    print(ascii(top[len(P):]), sorted(map(ascii, folders)), sorted(map(ascii, files)),
          os.fstat(fd)[:2] + os.fstat(fd)[3:7])
for top, _, _ in os.walk(P):
    for e in os.scandir(top):
        print(ascii(e.name), e.inode(), e.is_dir(), e.is_file(), e.is_symlink(),
              e.is_dir(follow_symlinks=False),
              e.stat(follow_symlinks=False)[:2] + e.stat(follow_symlinks=False)[3:7])
print(sorted(map(ascii, os.listdir(P + "/a"))), sorted(map(ascii, os.listdir(os.fsencode(P)))))
for found in (sorted(glob.glob("**", root_dir=P, recursive=True)) +
              sorted(str(p.relative_to(P)) for p in pathlib.Path(P).rglob("*.jpg"))):
    print(ascii(found))
""")

    def test_python_works_below_an_open_directory(self):
        self.check_same_python("""
fd = os.open(P + "/b", os.O_RDONLY)
print(sorted(os.listdir(fd)), sorted(os.listdir(fd)), os.fstat(fd)[:2] == os.stat(P + "/b")[:2],
      stat.S_ISDIR(os.fstat(fd).st_mode))
print(os.stat("c", dir_fd=fd).st_ino, os.stat("to a/007.jpg", dir_fd=fd).st_size,
      os.readlink("broken", dir_fd=fd), os.access("c", os.R_OK, dir_fd=fd))
print(os.stat("..", dir_fd=fd).st_ino, os.stat("../a/008.jpg", dir_fd=fd).st_size,
      os.stat(P + "/b/to a/../empty").st_ino)
for copy in (os.dup(fd), os.dup2(fd, 99), os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd),
             os.open("..", os.O_RDONLY, dir_fd=os.open("c", os.O_PATH, dir_fd=fd))):
    print(sorted(os.listdir(copy)), os.fstat(copy).st_ino, os.get_inheritable(copy)); os.close(copy)
with open(os.open("../a/009.jpg", os.O_RDONLY, dir_fd=fd)) as file: print(file.read())
def error(call, *a, **k):
    try: call(*a, **k)
    except OSError as e: return e.errno
print([error(os.stat, n, dir_fd=fd) for n in ("none", "c/none", "../none", "broken")],
      error(os.open, "none", os.O_RDONLY, dir_fd=fd), error(os.read, fd, 9),
      error(os.listdir, P + "/a/001.jpg"),
      error(os.open, P + "/a/001.jpg", os.O_RDONLY | os.O_DIRECTORY),
      error(os.open, P + "/b/to a", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW),
      error(os.open, P + "/a", os.O_WRONLY), error(os.readlink, "none", dir_fd=fd))
os.close(fd)
print(error(os.fstat, fd), error(os.listdir, P + "/none"))
""")

    def test_entries_by_number_into_a_small_room(self):
        self.check_same_python("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def get_entries(size):
    fd, room = os.open(P + "/b", os.O_RDONLY), ctypes.create_string_buffer(size)
    got = libc.getdents64(fd, room, ctypes.c_size_t(size))
    os.close(fd)
    return (got, room) if got > 0 else (got, ctypes.get_errno())
first = int.from_bytes(get_entries(4096)[1][16:18], sys.byteorder)
print(get_entries(first)[0] == first, get_entries(first - 1), get_entries(8))
""")

    def test_find_and_du(self):
        self.check_same("find", "set", "-printf", r"%y %p %i %s %l %n %m %U %T@ %b\n")
        self.check_same("find", "set/b", "-follow", "-type", "f", "-name", "0*")
        self.check_same("du", "-ab", "set")

    def test_ls(self):
        self.check_same("ls", "-lRi", "--time-style=full-iso", "set")
        self.check_same("ls", "-Rai", "set/b")

    def test_tar_and_cp_copy_all_of_it(self):
        self.check_same("sh", "-c", "tar -cf - set | tar -tvf - --full-time")
        for command in (
                f"cp -r $P {self.work}/copy", f"cp -a $P {self.work}/copy",
                f"mkdir {self.work}/copy && tar -cf - -C $P . | tar -xf - -C {self.work}/copy"):
            self.assertEqual(self.run_at(["sh", "-c", command], self.prefix, True), (0, [], b""))
            subprocess.run(["diff", "-r", "--no-dereference", self.data, self.work / "copy"],
                           check=True)
            subprocess.run(["rm", "-r", self.work / "copy"], check=True)

    def test_shells_expand_patterns(self):
        self.check_same("sh", "-c", "echo set/a/*7.jpg set/*/c/d/* set/none*")

    def test_streams_seek_as_libcs_do(self):
        self.check_packed("""
for read in (C.readdir, C.readdir64):
    d = C.opendir((P + "/a").encode())
    assert os.fstat(C.dirfd(d)).st_ino == os.stat(P + "/a").st_ino
    all = rows(d, read)
    every = sorted([b".", b"..", *os.listdir(os.fsencode(O + "/a"))])
    assert sorted(n for n, _, _ in all) == every and read(d).__bool__() is False
    C.rewinddir(d)
    places = []
    for entry in all: places.append(C.telldir(d)); assert row(read(d).contents) == entry
    for i in (250, 3, 0, len(all) - 1):
        C.seekdir(d, places[i]); assert row(read(d).contents) == all[i], i
    assert dict((n, i) for n, _, i in all)[b".."] == os.stat(P).st_ino
    assert C.closedir(d) == 0
entry, result = Dirent(), ctypes.POINTER(Dirent)()
for name in ("readdir_r", "readdir64_r"):
    d, again = C.opendir((P + "/a").encode()), []
    call = getattr(C, name); call.argtypes = [ctypes.c_void_p] * 3
    while call(d, ctypes.addressof(entry), ctypes.addressof(result)) == 0 and result:
        again.append(row(result.contents))
    assert again == all and ctypes.addressof(entry) != 0
    C.closedir(d)
""")

    def test_entries_by_the_kernels_call(self):
        self.check_packed("""
import struct
def entries(call):
    fd, found, sizes = os.open(P + "/a", os.O_RDONLY | os.O_DIRECTORY), [], []
    buffer = ctypes.create_string_buffer(700)
    while n := call(fd, buffer, len(buffer)):
        assert 0 < n <= 700, (n, ctypes.get_errno())
        at = 0
        while at < n:
            inode, offset, length, kind = struct.unpack_from("QqHB", buffer, at)
            found.append((buffer[at + 19:at + length].split(b"\\0")[0], kind, inode)); at += length
    assert call(fd, buffer, 9) == 0
    os.lseek(fd, 0, os.SEEK_SET)
    assert call(fd, buffer, 9) == -1 and ctypes.get_errno() == errno.EINVAL
    os.close(fd)
    return found
d = C.opendir((P + "/a").encode())
by_call, by_number = entries(C.getdents64), None
if os.uname().machine == "x86_64":
    by_number = entries(lambda fd, to, n: C.syscall(217, fd, to, n))
assert by_call == rows(d) and by_number in (None, by_call)
""")

    def test_libcs_lists(self):
        self.check_packed("""
kinds = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Dirent))
wanted = kinds(lambda e: e.contents.name.endswith(b"7.jpg"))
for name in ("scandir", "scandir64", "scandirat", "scandirat64"):
    list = ctypes.POINTER(ctypes.POINTER(Dirent))()
    start = [os.open(P, os.O_RDONLY), b"a"] if "at" in name else [(P + "/a").encode()]
    n = getattr(C, name)(*start, ctypes.byref(list), wanted, C.alphasort)
    sevens = sorted(e for e in os.listdir(os.fsencode(O + "/a")) if e.endswith(b"7.jpg"))
    assert [list[i].contents.name for i in range(n)] == sevens, n
    assert C.scandir((P + "/none").encode(), ctypes.byref(list), None, None) == -1
    assert ctypes.get_errno() == errno.ENOENT
class Glob(ctypes.Structure):
    _fields_ = [("n", ctypes.c_size_t), ("paths", ctypes.POINTER(ctypes.c_char_p)),
                ("rest", ctypes.c_byte * 200)]
for name in ("glob", "glob64"):
    found = Glob()
    assert getattr(C, name)((P + "/*/*7.jpg").encode(), 0, None, ctypes.byref(found)) == 0
    import glob as python
    globbed = [p.replace(O, P).encode() for p in sorted(python.glob(O + "/*/*7.jpg"))]
    assert [found.paths[i] for i in range(found.n)] == globbed and found.n == 30
    C.globfree(ctypes.byref(found))
""")

    def test_listings_show_the_pack_alone(self):
        (self.prefix / "a").mkdir(parents=True)
        self.addCleanup(subprocess.run, ["rm", "-r", self.prefix])
        (self.prefix / "a/of the kernel").touch()
        (self.prefix / "beside").mkdir()
        (self.prefix / "beside/x").touch()
        self.check_packed("""
assert sorted(os.listdir(P)) == sorted(os.listdir(O))
assert sorted(os.listdir(P + "/a")) == sorted(os.listdir(O + "/a"))
assert sorted(os.listdir(os.open(P + "/a", os.O_RDONLY))) == sorted(os.listdir(O + "/a"))
assert os.listdir(P + "/beside") == ["x"]
os.chdir(P)
assert sorted(os.listdir(".")) == sorted(os.listdir(O))
assert open("b/c/d/e/f/g/deep").read() == "deep" and os.stat("../set/a/007.jpg").st_size == 7
""")

    def test_children_and_threads_list_concurrently(self):
        self.check_packed("""
import threading
fd = os.open(P + "/b", os.O_RDONLY)
if os.fork() == 0: os._exit(sorted(os.listdir(fd)) != ["broken", "c", "to a"])
assert os.wait()[1] == 0
def walk():
    for _ in range(20): assert sum(len(f) for _, _, f in os.walk(P)) == 305
threads = [threading.Thread(target=walk) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert len(os.listdir("/proc/self/fd")) < 12
os.closerange(3, 100)
assert len(os.listdir(P + "/a")) == 302
""")

    def test_nothing_is_left_behind(self):
        before = set(os.listdir("/dev/shm"))
        self.check_packed("for i in range(9): os.listdir(P)\nos.open(P, os.O_RDONLY)")
        self.assertEqual({n for n in os.listdir("/dev/shm") if "empty" in n} - before, set())

    def test_with_kernel_files_over_the_cache(self):
        code = ("assert sorted(os.listdir(P)) == sorted(os.listdir(O)) and "
                "len(os.listdir(os.open(P + '/a', os.O_RDONLY))) == 302")
        self.check_packed(code, CUBESHIM_MODE="real")


if __name__ == "__main__":
    unittest.main()
