"""Logs trouble only if CUBESHIM_LOG=debug, and each line once."""
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
            # Bypasses the stream, which has a lock: Python aborts if it ends while a daemon thread
            # holds that lock.
            os.write(fd, line.encode(errors="replace"))
    except Exception:
        pass
