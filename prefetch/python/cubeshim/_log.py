"""Logs trouble, only if CUBESHIM_LOG=debug, and each line only one time."""
import os
import sys

_told = set()


def trouble(text):
    if os.environ.get("CUBESHIM_LOG") != "debug" or text in _told or len(_told) > 20:
        return
    _told.add(text)
    line = "cubeshim: debug: announcements: %s\n" % text
    try:
        try:
            fd = sys.stderr.fileno()
        except Exception:
            sys.stderr.write(line)  # a notebook's stream
        else:
            # Bypasses the stream and its lock: Python aborts if it ends while a daemon thread holds
            # this lock.
            os.write(fd, line.encode(errors="replace"))
    except Exception:
        pass
