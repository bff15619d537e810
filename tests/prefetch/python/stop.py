"""Stops the thread that announces at a line of the package, for ever and with all the locks that it
has there.

So does the end of the interpreter, wherever a daemon thread is. A module of its own: the frames of
the thread would keep the program's globals alive, whose end is to be seen. """
import _thread
import os
import sys
import threading

import cubeshim

PACKAGE = os.path.dirname(cubeshim.__file__)
places = []  # lines of the package that the thread has come to: file, function, number
stopped = threading.Event()
_start = _thread.start_new_thread
_for_ever = _thread.allocate_lock()
_for_ever.acquire()


def _stop(is_there):
    """The first thread that is started from now on and comes to such a place stops."""
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
    """At its line number `count`, as they are run."""
    lines = 0

    def is_there(place):
        nonlocal lines
        lines += place[1] == function
        return lines == count

    _stop(is_there)
