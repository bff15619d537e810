"""Tells cubeshim which files the program will read next, so that they are there before it asks.

`import cubeshim` is all that a program with torch's (or PaddlePaddle's) DataLoader needs: the order
of its sampler is announced as it is drawn, unless CUBESHIM_ANNOUNCE is 0. Nothing is imported until
a DataLoader is; batches, their order and random generators stay the same. Other programs state
their order themselves: announce()."""
import os

from cubeshim import _hook

__all__ = ["announce"]


def announce(paths, epoch=0):
    """Announces paths, a sequence or an iterable, which will be read in about this order. Orders
    that earlier calls announced stay. Returns an object that gives the same paths when iterated
    over and tracks how far the program is. As a context manager, it withdraws the rest of the
    announcement at the end of the block. Never blocks, never fails."""
    from cubeshim._announce import Announcement
    return Announcement(paths, epoch)


if os.environ.get("CUBESHIM_ANNOUNCE") != "0":
    _hook.install()
