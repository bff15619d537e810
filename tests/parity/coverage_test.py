"""Checks that every call is tested. A parity test must call by name each symbol that shim/hooks.def
puts in front of libc's, and each call that a file layer must answer (ROWS, which begins with the
calls that are most likely in a training job). Exceptions are listed in EXEMPT with their reason.
Prints the table row by row; exit status 1 and a line for each missing call.

A call counts as made by name if its name precedes a bracket in the body of a test, if it is a whole
string (the tests look up such symbols), or, for the fortified forms, if the object of
fortify_test.cc needs it."""

import re
import subprocess
import sys
from pathlib import Path

# Braces as in the shell: `open{,64}` is open and open64.
ROWS = [
    ("open", "open{,64} openat{,64} __open{,64} __open{,64}_2 __openat{,64}_2 openat2 creat{,64}"),
    ("stat", "{,f,l}stat{,64} fstatat{,64} __{,f,l}xstat{,64} __fxstatat{,64} statx"),
    ("read",
     "read __read pread{,64} __pread64 readv preadv{,64} preadv2 preadv64v2 __read_chk "
     "__pread{,64}_chk"
    ), ("close", "close __close"), ("terminal questions", "isatty tcgetattr ioctl"),
    ("position", "lseek{,64} __lseek"),
    ("stdio", "fopen{,64} fdopen freopen{,64} fclose fcloseall fileno{,_unlocked} tmpfile{,64}"),
    ("wide characters",
     "fwide {f,}getwc{,_unlocked} ungetwc fputwc putwc fputws fgetws{,_unlocked} "
     "__fgetws{,_unlocked}_chk "
     "{,v,__isoc99_,__isoc99_v,__isoc23_,__isoc23_v}fwscanf"),
    ("memory", "mmap{,64} munmap mremap mprotect msync mlockall {posix_,}madvise"),
    ("libraries", "dlopen dlsym"),
    ("rings", "io_uring_setup io_uring_queue_init{,_params,_mem,_try_nosqarr}"),
    ("fcntl", "fcntl{,64} __fcntl"), ("dup", "dup {,__}dup2 dup3"),
    ("fork", "fork __fork _Fork vfork __vfork clone daemon forkpty"),
    ("ranges", "close_range closefrom"),
    ("exec",
     "posix_spawn{,p} pidfd_spawn{,p} system popen pclose wordexp wait waitpid wait3 wait4 waitid "
     "execve execv execvp execvpe execl execlp execle execveat fexecve _exit _Exit"
    ),
    ("names and directories",
     "access faccessat e{,uid}access opendir fdopendir readdir{,64}{,_r} closedir dirfd {seek,tell,"
     "rewind}dir scandir{,at}{,64} getdents64"),
    ("between fds", "sendfile{,64} copy_file_range splice tee vmsplice"),
    ("locks and advice", "flock lockf{,64} posix_fadvise{,64} readahead"),
    ("one fd",
     "fstatfs{,64} fstatvfs{,64} fgetxattr flistxattr fsetxattr fremovexattr fsync fdatasync "
     "syncfs sync_file_range "
     "fchdir {f,}pathconf statfs{,64} statvfs{,64} futimens futimes fchmod fchown ftruncate{,64} "
     "{posix_,}fallocate{,64}"
    ),
    ("writers and names",
     "write writev pwrite{,64} pwritev{,64} pwritev2 pwritev64v2 truncate{,64} rename{,at,at2} "
     "unlink{,at} "
     "remove link{,at} symlink{,at} mkdir{,at} mk{nod,fifo}{,at} __xmknod{,at} mkdtemp lchmod "
     "rmdir utime{,s} lutimes futimesat utimensat chmod fchmodat {,l}chown fchownat "
     "mk{,o}stemp{,64} mk{,o}stemps{,64} {,l}setxattr {,l}removexattr {,l}{get,list}xattr"),
    ("names of fds",
     "readlink{,at} __readlink{,at}_chk realpath __realpath_chk canonicalize_file_name chdir getcwd"
    ),
    ("waiting, passing on",
     "poll __poll_chk ppoll __ppoll_chk select pselect epoll_ctl sendmsg sendmmsg"),
    ("makers of fds",
     "socket socketpair accept{,4} pipe{,2} eventfd epoll_create{,1} memfd_create shm_open "
     "timerfd_create "
     "signalfd inotify_init{,1} pidfd_open pidfd_getfd recvmsg recvmmsg open_by_handle_at "
     "posix_openpt mq_open"
    ),
    ("kernel interfaces",
     "syscall io_submit aio_read{,64} aio_write{,64} aio_fsync{,64} lio_listio{,64}"),
    ("trees",
     "fts_open fts64_open {n,}ftw{,64} glob{,64} name_to_handle_at inotify_{add,rm}_watch "
     "fanotify_mark"
    ),
    ("identity",
     "set{,e,re,res}uid set{,e,re,res}gid setgroups initgroups setfs{u,g}id chroot unshare setns "
     "capset prctl mount umount{,2} move_mount open_tree mount_setattr fs{open,pick,config,mount}"),
    ("limits and threads", "setrlimit{,64} prlimit{,64} pthread_cancel"),
    ("terminals",
     "tcsetattr tc{get,set}pgrp tcgetsid tcflush tcflow tcdrain tcsendbreak ttyname{,_r} "
     "ptsname{,_r} grantpt unlockpt"
    ),
    ("sockets",
     "bind connect listen shutdown sockatmark {get,set}sockopt get{sock,peer}name send{,to} "
     "recv{,from}"
    ),
]

# Maps a symbol to the reason why no parity test makes the call.
EXEMPT: dict[str, str] = {
    call: "of liburing, which a program need not have: tests/hostile/company/test_past_us.py"
    for call in ("io_uring_setup", "io_uring_queue_init", "io_uring_queue_init_params",
                 "io_uring_queue_init_mem", "io_uring_queue_init_try_nosqarr")
} | {
    call: "of glibc 2.39, which the tests need not have; as posix_spawn"
    for call in ("pidfd_spawn", "pidfd_spawnp")
}

HOOK = re.compile(r"^CUBE_(?:RAW_HOOK|HOOK|FD_CALL|FD_CHANGE|NEW_FD|RAW_NEW_FD)\([^,]+, (\w+),",
                  re.M)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
CALL = re.compile(r"(?<![\w.>])(?:::)?([A-Za-z_]\w*)\s*\(")


def expand(pattern: str) -> list[str]:
    brace = re.search(r"\{([^{}]*)\}", pattern)
    if not brace:
        return [pattern]
    before, after = pattern[:brace.start()], pattern[brace.end():]
    return [symbol for choice in brace[1].split(",") for symbol in expand(before + choice + after)]


def hooked(root: Path) -> set[str]:
    symbols = set(HOOK.findall((root / "shim/hooks.def").read_text()))
    assert len(symbols) > 150, "hooks.def does not read as expected"
    return symbols | {"vfork", "__vfork", "dlopen", "dlsym"}


def tested(root: Path) -> set[str]:
    made: set[str] = set()
    for source in (root / "tests/parity").glob("*_test.cc"):
        text = source.read_text()
        made |= {string for string in STRING.findall(text) if string.isidentifier()}
        made |= set(CALL.findall(STRING.sub('""', COMMENT.sub("", text))))
    return made


def fortified(objects: list[str]) -> set[str]:
    listing = "".join(
        subprocess.run(["nm", "-u", name], check=True, capture_output=True, text=True).stdout
        for name in objects)
    return {
        name for name in re.findall(r" U (\w+)", listing) if re.fullmatch(r"__\w+_(chk|2)", name)
    }


def problems(rows: dict[str, list[str]], hooks: set[str], made: set[str],
             exempt: dict[str, str]) -> list[str]:
    wanted = hooks | {symbol for symbols in rows.values() for symbol in symbols}
    found = [
        f"{symbol}: no parity test makes this call" for symbol in sorted(wanted - made -
                                                                         set(exempt))
    ]
    found += [
        f"{symbol}: of hooks.def, and in no row"
        for symbol in sorted(hooks - {s for row in rows.values() for s in row})
    ]
    found += [f"{symbol}: exempt, but tested" for symbol in sorted(set(exempt) & made)]
    return found + [
        f"{symbol}: exempt, but nobody asks for it" for symbol in sorted(set(exempt) - wanted)
    ]


def self_check() -> None:
    """Checks that the rules can fail."""
    assert expand("{,f}x{,64}") == ["x", "x64", "fx", "fx64"]
    rows = {"a": ["one", "two"]}
    assert problems(rows, {"one"}, {"one", "two"}, {}) == []
    assert len(problems(rows, {"one", "three"}, {"one"}, {"one": "", "four": ""})) == 5


def main(root: Path, objects: list[str]) -> int:
    self_check()
    rows = {
        name: [symbol
               for pattern in text.split()
               for symbol in expand(pattern)]
        for name, text in ROWS
    }
    hooks, made = hooked(root), tested(root) | fortified(objects)
    for name, symbols in rows.items():
        missing = [symbol for symbol in symbols if symbol not in made]
        print(f"{name:24} {len(symbols) - len(missing):3} of {len(symbols):3}  {' '.join(missing)}")
    found = problems(rows, hooks, made, EXEMPT)
    print("\n".join(found))
    everything = hooks | {symbol for symbols in rows.values() for symbol in symbols}
    print(
        f"parity coverage: {len(everything & made)} of {len(everything)} calls made by name, "
        f"{len(EXEMPT)} exempt"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
