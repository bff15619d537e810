"""Keeps our own fds away from the program's standard fds (0, 1, 2)."""
import fcntl
import os

# Lower fds belong to the program even after it has closed them, because C code writes to fds 1 and
# 2 without checking which files they refer to.
STANDARD = 3


def off_standard(fd):
    """Returns an fd of the same file that is not 0, 1 or 2."""
    if fd >= STANDARD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STANDARD)
    finally:
        os.close(fd)
