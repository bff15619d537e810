"""Prepares memory before a measurement: drops or loads pages of files, and makes free memory
immediately available."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from bench.data.sets import data_files


def forget_pages(*of: Path) -> None:
    """Drops the pages of these files and of the files in these directories. Other pages stay,
    because other users need the page cache, too."""
    for path in (file for data in of for file in ([data] if data.is_file() else data_files(data))):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm_pages(directory: Path) -> None:
    """Loads the pages of every file by reading it."""
    for root, _, names in os.walk(directory):
        for name in names:
            Path(root, name).read_bytes()


def have_memory(megabytes: int) -> None:
    """Allocates and frees memory, which the machine then keeps available for a second or two. A
    virtual machine can return free memory to its host, and then waits 2 ms for each new megabyte.
    The cache does not cause this cost."""
    with mmap.mmap(-1, megabytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1
