"""Fds of ours in a process of the program."""
import fcntl
import os

STANDARD = 3  # those below are the program's, also if it has none: C code writes to 1 and 2 whatever is there


def off_standard(fd):
    """The same file by a number that is none of stdin, stdout and stderr."""
    if fd >= STANDARD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STANDARD)
    finally:
        os.close(fd)
