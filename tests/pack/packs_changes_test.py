"""CUBESHIM_PACKS: no call can change files in a pack. Also tests queries about names in a pack
whose answers differ from the kernel's. CUBESHIM_COMMAND and CUBESHIM_LIBRARY name the build's
files, HOOKS_DEF the list of calls."""
import os
import platform
import re
import subprocess
import sys
import unittest
from pathlib import Path

from pack_case import PackCase

HOOKS = os.environ["HOOKS_DEF"]

# The arguments of each call that changes a name or the file behind a name. F is a file of the pack,
# D its directory, N a new name there, O a file outside, d a directory fd of the pack, f the file's
# name relative to d, n a new name relative to d.
CHANGES = {
    "truncate": "F, 0", "truncate64": "F, 0", "rename": "F, N", "renameat": "d, f, d, n",
    "renameat2": "d, f, d, n, 0", "unlink": "F", "unlinkat": "d, f, 0", "remove": "F",
    "link": "F, N", "linkat": "d, f, d, n, 0", "utime": "F, None", "utimes": "F, None",
    "lutimes": "F, None", "futimesat": "d, f, None", "utimensat": "d, f, None, 0",
    "chmod": "F, 0o600", "lchmod": "F, 0o600", "fchmodat": "d, f, 0o600, 0", "chown": "F, -1, -1",
    "lchown": "F, -1, -1", "fchownat": "d, f, -1, -1, 0", "setxattr": "F, b'user.a', b'b', 1, 0",
    "lsetxattr": "F, b'user.a', b'b', 1, 0", "removexattr": "F, b'user.a'",
    "lremovexattr": "F, b'user.a'", "mkdir": "N, 0o700", "mkdirat": "d, n, 0o700", "rmdir": "D",
    "symlink": "b'x', N", "symlinkat": "b'x', d, n", "mknod": "N, 0o10600, 0",
    "mknodat": "d, n, 0o10600, 0", "__xmknod": "0, N, 0o10600, zero",
    "__xmknodat": "0, d, n, 0o10600, zero", "mkfifo": "N, 0o600", "mkfifoat": "d, n, 0o600",
    "mkdtemp": "T", "bind": "u.fileno(), A(N), len(A(N))", "mkstemp": "T", "mkstemp64": "T",
    "mkostemp": "T, 0", "mkostemp64": "T, 0", "mkstemps": "T, 0", "mkstemps64": "T, 0",
    "mkostemps": "T, 0, 0", "mkostemps64": "T, 0, 0",
}
# The rows of hooks.def that are not under "names that change" or "temporary files".
BY_FD = {
    "fchmod": "d, 0o700", "fchown": "d, -1, -1", "futimens": "d, None", "futimes": "d, None",
    "fsetxattr": "d, b'user.a', b'b', 1, 0", "fremovexattr": "d, b'user.a'", "creat": "N, 0o600",
    "creat64": "F, 0o600", "open": "F, os.O_RDWR", "openat": "d, n, os.O_CREAT | os.O_WRONLY, 0o600"
}
# The calls that are also tried on a served file.
BY_FILE = {
    name: "h" + BY_FD[name][1:]
    for name in ("fchmod", "fchown", "futimens", "futimes", "fsetxattr", "fremovexattr")
}
OUTSIDE = {
    "rename": "O, N", "link": "O, N", "renameat2": "AT, O, d, n, 0", "linkat": "AT, O, d, n, 0"
}
THERE = {
    "mkdir": "D, 0o700", "mkdirat": "d, b'.', 0o700", "symlink": "b'x', F",
    "symlinkat": "b'x', d, f", "mkfifo": "F, 0o600", "mknodat": "d, f, 0o10600, 0", "link": "F, F",
    "linkat": "d, f, d, f, 0", "open": "F, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600",
    "openat": "d, f, os.O_CREAT | os.O_EXCL, 0o600"
}
# The same calls, made by their numbers. S and s are places for the result.
SYSCALLS = {
    "stat": "4, F, S", "lstat": "6, F, S", "access": "21, F, 4", "readlink": "89, L, s, 99",
    "mkdir": "83, N, 0o700", "rmdir": "84, D", "symlink": "88, b'x', N",
    "mknod": "133, N, 0o10600, 0", "fstat of a directory": "5, d, S",
    "lseek of a directory": "8, d, 0, 0"
}
SYSCALLS_AT = {
    "newfstatat": (262, 79, "d, f, S, 0"), "statx": (332, 291, "d, f, 0, 0x7ff, S"),
    "faccessat": (269, 48, "d, f, 4"), "faccessat2": (439, 439, "d, f, 4, 0"),
    "readlinkat": (267, 78, "AT, L, s, 99"), "mkdirat": (258, 34, "d, n, 0o700"),
    "mknodat": (259, 33, "d, n, 0o10600, 0"), "symlinkat": (266, 36, "b'x', d, n")
}


class Changes(PackCase):
    def write_data(self):
        (self.data / "a/b").mkdir(parents=True)
        (self.data / "a/x").write_text("hello")
        os.symlink("a/b", self.data / "to b")

    def run_python(self, code, expected_stderr=""):
        environment = self.environment_of("packs-changes", CUBESHIM_STATS="off")
        text = ("import ctypes, errno, os, socket\n"
                f"P, D = {str(self.prefix)!r}, {str(self.data)!r}\n"
                "C = ctypes.CDLL(None, use_errno=True)\n") + code
        done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True,
                              text=True, timeout=120, cwd=self.work)
        self.assertEqual((done.returncode, done.stderr), (0, expected_stderr))

    def test_every_call_of_the_table_is_there(self):
        text = Path(HOOKS).read_text()
        sections = "\n".join(
            text.split(heading + "\n")[1].split("\n\n")[0]
            for heading in ("names that change", "temporary files")) + (
                "\nCUBE_HOOK(int, bind, ")
        names = re.findall(r"^CUBE_(?:RAW_)?HOOK\([^,]+, (\w+),", sections, re.M)
        self.assertEqual(sorted(names), sorted(CHANGES))

    def check_errors(self, table, error):
        self.run_python(f"""
F, N, O = (P + "/a/x").encode(), (P + "/a/new").encode(), (D + "/a/x").encode()
D, f, n, AT = (P + "/a").encode(), b"x", b"new", -100
d, h = os.open(P + "/a", os.O_RDONLY), os.open(F, os.O_RDONLY)
zero, wrong = ctypes.byref(ctypes.c_uint64(0)), []
T = ctypes.create_string_buffer((P + "/a/tXXXXXX").encode())
u = socket.socket(socket.AF_UNIX)
A = lambda path: socket.AF_UNIX.to_bytes(2, "little") + path + bytes(1)
for name, arguments in {table!r}.items():
    ctypes.set_errno(0)
    call = getattr(C, name)
    call.restype = ctypes.c_long if name == "mkdtemp" else ctypes.c_int
    result = call(*eval("(" + arguments + ",)"))
    is_odd = result not in (-1, 0) or name != "mkdtemp" and result == 0
    if is_odd or ctypes.get_errno() != errno.{error}:
        wrong.append((name, result, ctypes.get_errno()))
assert not wrong, wrong
assert sorted(os.listdir(P + "/a")) == ["b", "x"]
assert open(P + "/a/x").read() == open(O).read() == "hello"
""")

    def test_nothing_in_a_pack_can_be_changed(self):
        self.check_errors(CHANGES, "EROFS")
        self.check_errors(BY_FD, "EROFS")
        self.check_errors(BY_FILE, "EROFS")

    def test_nothing_comes_in_from_outside(self):
        self.check_errors(OUTSIDE, "EROFS")

    def test_existing_names_are_not_made_again(self):
        self.check_errors(THERE, "EEXIST")

    def test_calls_by_their_numbers(self):
        is_x86 = platform.machine() == "x86_64"
        table = {
            name: f"{x86 if is_x86 else other}, {arguments}"
            for name, (x86, other, arguments) in SYSCALLS_AT.items()
        } | (SYSCALLS if is_x86 else {})
        # In the second round, the directory exists for the kernel, which could create files in it.
        for _ in range(2):
            self.run_python(f"""
F, D, L = (P + "/a/x").encode(), (P + "/a").encode(), (P + "/to b").encode()
N, f, n, AT = (P + "/a/new").encode(), b"x", b"new", -100
d, wrong = os.open(P + "/a", os.O_RDONLY), []
S, s = ctypes.create_string_buffer(512), ctypes.create_string_buffer(99)
for name, arguments in {table!r}.items():
    ctypes.set_errno(0)
    result, error = C.syscall(*eval(arguments)), ctypes.get_errno()
    changes = any(word in name for word in ("mk", "rmdir", "symlink"))
    expected = 3 if "readlink" in name else 0
    if (result, error) != (-1, errno.EROFS) if changes else result != expected:
        wrong.append((name, result, error))
assert not wrong, wrong
""")
            (self.prefix / "a").mkdir(parents=True, exist_ok=True)
        self.assertEqual(list((self.prefix / "a").iterdir()), [])

    def test_access_and_file_system(self):
        self.run_python("""
for path in (P, P + "/a/x", os.open(P, os.O_RDONLY), os.open(P + "/a/x", os.O_RDONLY)):
    v = os.statvfs(path)
    if isinstance(path, str) or path == 3:
        assert v.f_flag & os.ST_RDONLY and v.f_files == 5 and v.f_bavail == 0, (path, v)
    if isinstance(path, str): assert os.access(path, os.R_OK) and not os.access(path, os.W_OK)
    ctypes.set_errno(0)
    if isinstance(path, str):
        assert C.access(path.encode(), 2) == -1 and ctypes.get_errno() == errno.EROFS
    buffer = ctypes.create_string_buffer(256)
    if isinstance(path, str):
        assert C.statfs(path.encode(), buffer) == 0
        assert buffer.raw[:4] == (0x65735546).to_bytes(4, "little")
""")

    def test_there_are_no_extended_attributes(self):
        self.run_python("""
for follow in (True, False):
    for path in (P, P + "/a/x", P + "/to b"):
        assert os.listxattr(path, follow_symlinks=follow) == []
        try: os.getxattr(path, "user.a", follow_symlinks=follow)
        except OSError as e: assert e.errno == errno.ENOTSUP, e
        else: assert False
try: os.listxattr(P + "/none")
except OSError as e: assert e.errno == errno.ENOENT
""")

    def test_libcs_realpath(self):
        self.run_python("""
C.realpath.restype = C.canonicalize_file_name.restype = ctypes.c_char_p
to = ctypes.create_string_buffer(4096)
for path, real in (("/to b/../x", "/a/x"), ("/a/./x", "/a/x"), ("", ""), ("/", ""),
                   ("/to b/", "/a/b"), ("/a/x/", errno.ENOTDIR), ("/a/x/y", errno.ENOTDIR),
                   ("/none", errno.ENOENT)):
    expected = (P + real).encode() if isinstance(real, str) else None
    for call in (lambda one: C.realpath(one, to), C.canonicalize_file_name):
        assert call((P + path).encode()) == expected and (expected
                                                          or ctypes.get_errno() == real), path
""")

    def test_a_directory_of_a_pack_cannot_be_the_working_directory(self):
        line = (f"cubeshim: warn: {self.prefix}/a: a directory that the kernel does not have "
                "cannot be the working directory\n")
        self.run_python(
            """
for call, argument, error in ((os.chdir, P + "/a", errno.ENOENT),
                              (os.chdir, P + "/a/b", errno.ENOENT),
                              (os.fchdir, os.open(P + "/a", os.O_RDONLY), errno.ENOENT),
                              (os.chdir, P + "/none", errno.ENOENT)):
    try: call(argument)
    except OSError as e: assert e.errno == error
    else: assert False
assert os.getcwd() == os.path.dirname(P)
""", line)

    def test_a_directory_that_the_kernel_has_too_can_be_the_working_directory(self):
        (self.prefix / "a").mkdir(parents=True)
        self.run_python("""
for enter in (lambda: os.chdir(P + "/a"), lambda: os.fchdir(os.open(P + "/a", os.O_RDONLY))):
    os.chdir("/")
    enter()
    assert os.getcwd() == P + "/a" and open("x").read() == "hello"
    assert sorted(os.listdir()) == ["b", "x"] and os.path.isdir("../to b")
    try: open("new", "w")
    except OSError as e: assert e.errno == errno.EROFS
    else: assert False
""")


if __name__ == "__main__":
    unittest.main()
