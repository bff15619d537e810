"""Provides the files that the demo's rows read: a synthetic set, or a copy of some files of the
user's own mount.

Both are kept below the work directory and reused by the next run. The row "local disk" must read
exactly the files that the rows on the slow mount read; otherwise its figures and checksums would
mean nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.harness.errors import BenchError

SEED = 1


def synthetic(work: Path, count: int) -> tuple[Path, str]:
    """Returns the directory of a synthetic set of `count` files, and a description. The directory's
    parent has no other entries."""
    from bench.data.make_dataset import DatasetError, Recipe, make_dataset

    directory = work / "data" / f"synthetic-{count}"
    try:
        made = make_dataset(directory, Recipe(count, SEED, min(10, count)), os.cpu_count() or 1)
    except DatasetError as error:
        raise BenchError(str(error)) from None
    print(made.line(directory), flush=True)
    return directory, f"{made.files} JPEGs, mean {made.bytes / made.files / 1e3:.0f} KB"


def copied(origin: Path, work: Path, count: int) -> tuple[Path, str, int]:
    """Copies the first files of each class of `origin`, about `count` in all. Returns the copy, a
    description, and the number of files of each class."""
    classes = sorted(entry.name for entry in os.scandir(origin) if entry.is_dir())
    if not classes:
        raise BenchError(f"{origin} holds no class folders")
    per_class = max(1, count // len(classes))
    mark = hashlib.sha256(os.fsencode(origin)).hexdigest()[:12]
    target = work / "copies" / f"{mark}-{per_class}"
    files = total = 0
    for name in classes:
        for source in first_pictures(origin / name, per_class):
            total += _copy(source, target / source.relative_to(origin))
            files += 1
    print(f"{target}: copy of {files} files, {total} bytes", flush=True)
    return target, f"{files} files, mean {total / max(1, files) / 1e3:.0f} KB", per_class


def first_pictures(directory: Path, count: int) -> Iterator[Path]:
    """The first `count` pictures of a class, in the order in which ImageFolder lists them."""
    from torchvision.datasets.folder import IMG_EXTENSIONS

    for root, _, names in sorted(os.walk(directory, followlinks=True)):
        for name in sorted(names):
            if count == 0:
                return
            if name.lower().endswith(IMG_EXTENSIONS):
                count -= 1
                yield Path(root, name)


def _copy(source: Path, target: Path) -> int:
    """Copies one file unless it exists, and drops it from the page cache, so that the copy does not
    warm the cache for a row."""
    size = source.stat().st_size
    if not target.exists() or target.stat().st_size != size:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        with open(source, "rb") as reader, open(partial, "wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        partial.replace(target)
    return size
