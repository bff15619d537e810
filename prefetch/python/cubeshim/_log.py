"""What goes wrong is nobody's concern unless CUBESHIM_LOG=debug, and then once for each."""
import os
import sys

_told = set()


def trouble(text):
    if os.environ.get("CUBESHIM_LOG") != "debug" or text in _told or len(_told) > 20:
        return
    _told.add(text)
    try:
        sys.stderr.write("cubeshim: debug: announcements: %s\n" % text)
    except Exception:
        pass
