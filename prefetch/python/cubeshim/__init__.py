"""Tells cubeshim which files the program will read next, so that they are cached before it opens
them.

`import cubeshim` is all that a program with torch's (or PaddlePaddle's) DataLoader needs: the order
is announced as the sampler draws it, unless CUBESHIM_ANNOUNCE is 0. Nothing is imported until a
DataLoader is imported; batches, their order and random generators stay the same. Other programs
state their order themselves: announce()."""
import os

from cubeshim import _hook

__all__ = ["announce"]
# Equals the library's version, which a test checks.
__version__ = "0.1.0"


def announce(paths, epoch=0):
    """Announces files in the order in which the program will read them.

    paths: a sequence or an iterable of paths, each a str, bytes or os.PathLike; one str or bytes is
    one path. Relative paths start at the working directory. An iterable is read to its end
    immediately. epoch: a whole number from 0 that grows with each pass over the data.

    Returns an object with the length of `paths` that yields the same paths, and so tracks how far
    the program is. As a context manager, or by close(), it withdraws the rest of the announcement.
    Orders that earlier calls announced stay.

    Never blocks. Raises only what iterating over `paths` raises: if cubeshim itself fails, the
    files are fetched as they are opened."""
    from cubeshim._announce import Announcement
    return Announcement(paths, epoch)


if os.environ.get("CUBESHIM_ANNOUNCE") != "0":
    _hook.install()
