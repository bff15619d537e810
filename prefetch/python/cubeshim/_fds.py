"""Keeps our fds out of the standard ones (0, 1, 2) of the program."""
import fcntl
import os

# Lower fds belong to the program, even if it has none open: C code writes to 1 and 2 even if they
# are other files.
STANDARD = 3


def off_standard(fd):
    """Returns the same file under an fd that is none of stdin, stdout and stderr."""
    if fd >= STANDARD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STANDARD)
    finally:
        os.close(fd)
