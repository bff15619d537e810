"""Runs the command `cubeshim` for `python -m cubeshim ...`, if the command was installed together
with this package."""
import os
import sys


def find_command():
    here = os.path.dirname(os.path.abspath(__file__))
    # The package is in a wheel, or where `make install` puts it:
    # PREFIX/share/cubeshim/python/cubeshim.
    for prefix in (os.path.join(here, "prefix"), os.path.join(here, *[os.pardir] * 4)):
        command = os.path.normpath(os.path.join(prefix, "bin", "cubeshim"))
        if os.access(command, os.X_OK) and os.stat(command).st_uid in (0, os.geteuid(),
                                                                       os.stat(__file__).st_uid):
            return command
    return None


def main():
    command = find_command()
    if command is None:
        sys.stderr.write(
            "cubeshim: the command is not installed with this package: run `cubeshim` itself\n")
        return 2
    try:
        os.execv(command, ["cubeshim"] + sys.argv[1:])
    except OSError as error:
        sys.stderr.write("cubeshim: cannot run %s: %s\n" % (command, error.strerror))
        return 126


if __name__ == "__main__":
    sys.exit(main())
