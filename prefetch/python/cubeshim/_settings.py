"""Reads names and directories from the environment by the library's rules: for a value that the
library would refuse, it uses the default. Each variable is read when it is needed."""
import os
import string

NAME = frozenset(string.ascii_letters + string.digits + "._-")


def name():
    given = os.environ.get("CUBESHIM_NAME", "")
    return given if 0 < len(given) <= 64 and NAME.issuperset(given) else "default"


def directory(variable):
    """Returns None if the variable is not set or its value is not usable."""
    given = os.environ.get(variable, "")
    return given if given.startswith("/") and ".." not in given.split("/") else None


def ram_directory():
    return directory("CUBESHIM_RAM_DIR") or "/dev/shm"
