"""Makes calls that reach the kernel, in a tree that another process changes at the same time, and
queries the same names after each call. The output must be the same with and without the library.

    kernel_answer_job.py make - ORIGIN                 what the next one needs
    kernel_answer_job.py calls TREE ORIGIN             each call once after each change, in a
                                                       directory of its own
    kernel_answer_job.py random TREE ORIGIN SEED STEPS

ORIGIN is the source of the mount at TREE. A process without the library makes changes in ORIGIN.
"""
import ctypes
import errno
import os
import random
import socket
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
SYS = {"openat": 56, "newfstatat": 79, "readlinkat": 78, "statx": 291, "openat2": 437}
if os.uname().machine == "x86_64":
    SYS = {"openat": 257, "newfstatat": 262, "readlinkat": 267, "statx": 332, "openat2": 437}
SYS["fspick"] = 433

# Commands for the process without the library, one per line: a word and its paths.
MUTATOR = """
import os, shutil, sys
def write(path, text="new"):
    with open(path, "w") as file:
        file.write(text)
def rm(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
def replace(path, make, *words):
    rm(path)
    make(path, *words)
def age(top):
    for path, _, _ in os.walk(top):
        os.utime(path, (1e9, 1e9))
commands = {"write": write, "mkdir": os.mkdir, "rm": rm, "mv": os.rename,
            "ln": lambda path, to: os.symlink(to, path), "age": age,
            "file": lambda path: replace(path, write), "dir": lambda path: replace(path, os.mkdir),
            "link": lambda path, to: replace(path, lambda p: os.symlink(to, p))}
for line in sys.stdin:
    word, *paths = line.rstrip("\\n").split("\\t")
    try:
        commands[word](*paths)
        print("done", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


def raw(name, *words):
    result = libc.syscall(SYS[name],
                          *[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def checked(function, *words):
    result = getattr(libc, function)(*words)
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result


def said(call):
    try:
        result = call()
        return "ok" if result is None else str(result)
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def opened(path, flags, **words):
    os.close(os.open(path, flags, **words))


class Tree:
    def __init__(self, tree, origin):
        self.tree, self.origin = tree, origin
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.mutator = subprocess.Popen([sys.executable, "-c", MUTATOR], env=clean,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def mutate(self, word, *paths):
        print(word, *paths, sep="\t", file=self.mutator.stdin, flush=True)
        return self.mutator.stdout.readline().strip()


def raw_stat(path):
    room = ctypes.create_string_buffer(512)
    raw("newfstatat", -100, path.encode(), room, 0)


def odd_statx(path):
    room = ctypes.create_string_buffer(512)
    raw("statx", -100, path.encode(), 0, 0x7ff | 0x2000, room)  # with STATX_DIOALIGN


def raw_readlink(path):
    raw("readlinkat", -100, path.encode(), ctypes.create_string_buffer(512), 512)


def watch(path):
    fd = checked("inotify_init1", 0)
    try:
        checked("inotify_add_watch", fd, path.encode(), 2)
    finally:
        os.close(fd)


def stream(path, mode):
    libc.fopen.restype = ctypes.c_void_p
    file = libc.fopen(path.encode(), mode.encode())
    if not file:
        raise OSError(ctypes.get_errno(), "fopen")
    libc.fclose(ctypes.c_void_p(file))


def relative(path, call):
    fd = os.open(os.path.dirname(os.path.dirname(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        call(fd, os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path)))
    finally:
        os.close(fd)


def in_root(fd, name):
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, 0x10)  # RESOLVE_IN_ROOT
    os.close(raw("openat2", fd, b"/" + name.encode(), how, 24))


def spawned(path, spawn=os.posix_spawn):
    os.waitpid(spawn(path, [path], {}), 0)


def executed(path):
    arguments = (ctypes.c_char_p * 2)(path.encode(), None)
    in_child(lambda: checked("execvp", path.encode(), arguments))


def in_child(call):
    """For a call that changes the process if it succeeds."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    error = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if error != 0:
        raise OSError(error, "in a child")


def there(path):
    here = os.getcwd()
    os.chdir(path)
    os.chdir(here)


# Calls whose answer shows whether a name exists. Memory never answers these calls.
USES = {
    "chmod": lambda p: os.chmod(p, 0o700), "utime": lambda p: os.utime(p, (5e8, 5e8)),
    "chown": lambda p: os.chown(p, -1, os.getgid()),
    "lchown": lambda p: os.lchown(p, -1, os.getgid()), "truncate": lambda p: os.truncate(p, 2),
    "r+": lambda p: open(p, "r+").close(),
    "append without create": lambda p: opened(p, os.O_WRONLY | os.O_APPEND),
    "O_PATH": lambda p: opened(p, os.O_PATH),
    "O_NOATIME": lambda p: opened(p, os.O_RDONLY | os.O_NOATIME),
    "O_DIRECTORY": lambda p: opened(p, os.O_RDONLY | os.O_DIRECTORY),
    "access W_OK": lambda p: checked("access", p.encode(), os.W_OK),
    "getxattr": lambda p: os.getxattr(p, "user.none"),
    "listxattr": lambda p: str(len(os.listxattr(p))),
    "setxattr": lambda p: os.setxattr(p, "user.some", b"1"),
    "removexattr": lambda p: os.removexattr(p, "user.none"),
    "statfs": lambda p: str(os.statvfs(p).f_namemax), "chdir": there, "inotify": watch,
    "pathconf": lambda p: str(checked("pathconf", p.encode(), 3)),  # _PC_NAME_MAX
    "sendto": lambda p: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", p),
    "sendmsg": lambda p: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, p),
    "openat2 in a root": lambda p: relative(p, in_root),
    "connect": lambda p: socket.socket(socket.AF_UNIX).connect(p),
    "remount": lambda p: checked("mount", None, p.encode(), None, ctypes.c_ulong(32), None),
    "fspick": lambda p: os.close(raw("fspick", -100, p.encode(), 0)),
    "chroot": lambda p: in_child(lambda: os.chroot(p)),
    "fopen r+": lambda p: stream(p, "r+"), "stat by number": raw_stat, "odd statx": odd_statx,
    "openat2 by number": lambda p: os.close(
        raw("openat2", -100, p.encode(), (ctypes.c_uint64 * 3)(os.O_PATH, 0, 0), 24)),
    "openat by number": lambda p: os.close(raw("openat", -100, p.encode(), os.O_RDWR)),
    "readlink by number": raw_readlink, "unlink": os.unlink, "rmdir": os.rmdir,
    "rename from": lambda p: os.rename(p, p + "-moved"),
    "link from": lambda p: os.link(p, p + "-linked"), "posix_spawn": spawned,
    "posix_spawnp": lambda p: spawned(p, os.posix_spawnp), "execvp": executed,
    "execv": lambda p: in_child(lambda: os.execv(p, [p])),
    "chmod in a child": lambda p: in_child(lambda: os.chmod(p, 0o700)),
    "getxattr in a child": lambda p: in_child(lambda: os.getxattr(p, "user.none")),
    "chmod below an fd": lambda p: relative(p, lambda fd, name: os.chmod(name, 0o700, dir_fd=fd)),
    "unlink below an fd": lambda p: relative(p, lambda fd, name: os.unlink(name, dir_fd=fd)),
    "r+ below an fd": lambda p: relative(p, lambda fd, name: opened(name, os.O_RDWR, dir_fd=fd)),
}
# Calls that create a name.
MAKES = {
    "mkdir": os.mkdir, "mknod": os.mknod, "mkfifo": os.mkfifo,
    "symlink": lambda p: os.symlink("f", p),
    "link": lambda p: os.link(os.path.dirname(p) + "/f", p),
    "O_EXCL": lambda p: opened(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
    "w": lambda p: open(p, "w").close(), "a": lambda p: open(p, "a").close(),
    "x": lambda p: open(p, "x").close(), "fopen w": lambda p: stream(p, "w"),
    "rename to": lambda p: os.rename(os.path.dirname(p) + "/f", p),
    "rename without replacing": lambda p: checked("renameat2", -100,
                                                  (os.path.dirname(p) + "/f").encode(), -100,
                                                  p.encode(), 1),
    "bind": lambda p: socket.socket(socket.AF_UNIX).bind(p),
    "mkdir below an fd": lambda p: relative(p, lambda fd, name: os.mkdir(name, dir_fd=fd)),
}
# Another process makes one of these changes before the call, so that the call's answer contradicts
# memory.
BEFORE = {
    "a file is made": ("q", lambda t, p: t.mutate("write", p)),
    "a directory is made": ("q", lambda t, p: t.mutate("mkdir", p)),
    "a link is made": ("q", lambda t, p: t.mutate("ln", p, "f")),
    "the file is removed": ("f", lambda t, p: t.mutate("rm", p)),
    "the directory is removed": ("s", lambda t, p: t.mutate("rm", p)),
    "the file becomes a directory": ("f", lambda t, p: t.mutate("dir", p)),
    "the directory becomes a file": ("s", lambda t, p: t.mutate("file", p)),
    "the link leads elsewhere": ("l", lambda t, p: t.mutate("link", p, "other")),
    "the link becomes a file": ("l", lambda t, p: t.mutate("file", p)),
    "the file becomes a link": ("f", lambda t, p: t.mutate("link", p, "other")),
    "the directory above is removed": ("s/g", lambda t, p: t.mutate("rm", os.path.dirname(p))),
    "the directory above is moved": ("s/g", lambda t, p: t.mutate("mv", os.path.dirname(p),
                                                                  os.path.dirname(p) + "-moved")),
    "the directory above becomes a file": ("s/g",
                                           lambda t, p: t.mutate("file", os.path.dirname(p))),
    "nothing": ("f", lambda t, p: None), "nothing to nothing": ("q", lambda t, p: None),
}
# Calls whose answer also shows the kind of file that has the name.
TELL_KIND = {
    "r+", "append without create", "O_DIRECTORY", "chdir", "fopen r+", "stat by number",
    "odd statx", "openat by number", "unlink", "r+ below an fd", "unlink below an fd"
}


def make(place):
    os.makedirs(f"{place}/s")
    for path in (f"{place}/f", f"{place}/other", f"{place}/s/g"):
        with open(path, "w") as file:
            file.write("old " + os.path.basename(path))
        os.utime(path, (1e9, 1e9))
    os.symlink("f", f"{place}/l")


def learn(place, name):
    """Fills memory with the existing names."""
    for path in (place, f"{place}/s"):
        os.listdir(path)
    for path in (f"{place}/f", f"{place}/other", f"{place}/s/g", f"{place}/l", f"{place}/{name}"):
        said(lambda: open(path).read())
        said(lambda: os.stat(path))
        os.path.lexists(path)


def every_case():
    return [(before, word) for before in BEFORE for word in [*USES, *MAKES]]


def make_all(origin):
    for i in range(len(every_case())):
        make(f"{origin}/{i}")
    Tree("", origin).mutate("age", origin)


def calls(tree, origin):
    t = Tree(tree, origin)
    for i, (before, word) in enumerate(every_case()):
        name, mutate = BEFORE[before]
        learn(f"{tree}/{i}", name)
        mutate(t, f"{origin}/{i}/{name}")
        path = f"{tree}/{i}/{name}"
        answer = said(lambda: {**USES, **MAKES}[word](path))
        above = os.path.dirname(path)
        print(f"{before}, then {word}: {answer}:", os.path.lexists(path), os.path.exists(path),
              os.access(path, os.F_OK), said(lambda: os.path.basename(path) in os.listdir(above)),
              said(lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))),
              os.path.isdir(path) if word in TELL_KIND or word in MAKES and answer == "ok" else "-",
              flush=True)


def shuffled(tree, origin, seed, steps):
    """Makes each call that reaches the kernel, and then prints memory's answer about the name."""
    dice, t = random.Random(seed), Tree(tree, origin)
    names = ["a", "b", "c", "d"]
    # An open of a FIFO waits for another process.
    everything = {word: call for word, call in {**USES, **MAKES}.items() if word != "mkfifo"}

    def any_path():
        return "/".join(dice.choice(names) for _ in range(dice.choice([1, 2, 2, 3])))

    for step in range(steps):
        t.mutate("age", origin)
        path = any_path()
        for _ in range(dice.randrange(3)):
            t.mutate(dice.choice(["write", "mkdir", "rm", "file", "dir"]), f"{origin}/{any_path()}")
        if dice.random() < 0.5:
            said(lambda: [os.listdir(top) for top, _, _ in os.walk(tree)])
            said(lambda: open(f"{tree}/{any_path()}").read())
        word = dice.choice(list(everything))
        answer = said(lambda: everything[word](f"{tree}/{path}"))
        # ENOENT of a call with two names can concern the other name.
        if answer == "ENOENT" and word in ("link", "rename to", "rename without replacing"):
            continue
        there, listed = os.path.lexists(f"{tree}/{path}"), said(
            lambda: os.path.basename(path) in os.listdir(os.path.dirname(f"{tree}/{path}")))
        # A missing name does not show that its directory is missing.
        print(step, word, path, answer, there, listed == "True", flush=True)


if __name__ == "__main__":
    what, tree, origin, *rest = sys.argv[1:]
    if what == "calls":
        calls(tree, origin)
    elif what == "make":
        make_all(origin)
    elif what == "random":
        shuffled(tree, origin, int(rest[0]), int(rest[1]))
