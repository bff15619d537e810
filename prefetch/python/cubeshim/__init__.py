"""Tells cubeshim which files the program will read next, so that these files are cached before the
program opens them.

`import cubeshim` is all that a program with torch's (or PaddlePaddle's) DataLoader needs: the order
is announced as the sampler draws it, unless CUBESHIM_ANNOUNCE is 0. The package imports nothing
until the program imports a DataLoader. Batches, their order and random generators stay the same.
Other programs call announce() to state their order."""
import os

from cubeshim import _hook

__all__ = ["announce"]
# Equals the library's version; a test checks this.
__version__ = "0.1.0"


def announce(paths, epoch=0):
    """Announces files in the order in which the program will read them.

    paths: a sequence or an iterable of paths, each a str, bytes or os.PathLike; one str or bytes is
    one path. Relative paths start at the working directory. An iterable is read to its end
    immediately. epoch: a whole number from 0 that grows with each pass over the data.

    Returns an object that has the length of `paths` and yields the same paths; iterating over it
    tells cubeshim how far the program is. close(), or the end of a `with` block, withdraws the rest
    of the announcement. Announcements of earlier calls stay.

    Never blocks. Raises only what the iteration over `paths` raises. If cubeshim itself fails, each
    file is fetched when the program opens it."""
    from cubeshim._announce import Announcement
    return Announcement(paths, epoch)


if os.environ.get("CUBESHIM_ANNOUNCE") != "0":
    _hook.install()
