"""Stops the announcing thread forever at a line of the package, together with all locks that it
holds.

The end of the interpreter can stop a daemon thread like this at any point. This is a separate
module, because otherwise the thread's frames would keep the program's globals alive, and their
destruction is tested."""
import _thread
import os
import sys
import threading

import cubeshim

PACKAGE = os.path.dirname(cubeshim.__file__)
places = []  # lines of the package that the thread has reached: file, function, number
stopped = threading.Event()
_start = _thread.start_new_thread
_for_ever = _thread.allocate_lock()
_for_ever.acquire()


def _stop(is_there):
    """Stops the first thread that is started after this call and reaches such a place."""
    def trace(frame, event, _):
        directory, name = os.path.split(frame.f_code.co_filename)
        if directory != PACKAGE:
            return None
        if event == "line":
            place = name, frame.f_code.co_name, frame.f_lineno
            if place not in places:
                places.append(place)
            if is_there(place):
                stopped.set()
                _for_ever.acquire()
        return trace

    _thread.start_new_thread = lambda run, arguments: _start(
        lambda: (sys.settrace(trace), run(*arguments)), ())


def stop_at(place):
    _stop(lambda at: at == place)


def stop_in(function, count):
    """Stops at the `count`th executed line of the function."""
    lines = 0

    def is_there(place):
        nonlocal lines
        lines += place[1] == function
        return lines == count

    _stop(is_there)
