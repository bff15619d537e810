"""Makes an image data set for measurements: real JPEGs in class folders, with the file sizes of
ImageNet.

    make_dataset.py DIR --count N --seed S [--classes C] [--jobs J]

The same count, seed and number of classes give the same bytes, so two machines measure the same
work. A small manifest, DIR/.dataset.json, describes the content; ImageFolder ignores it. A second
call with the same arguments does nothing, or completes an interrupted call. A directory with any
other content is refused."""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

# bench.data.synthetic_images needs cv2 and numpy. It is imported only inside functions, so that
# --help and an existing set do not need these modules.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the root

MANIFEST = ".dataset.json"
FORMAT = 1


class DatasetError(Exception):
    """An error that the user can correct. Its text is the line to print."""


@dataclass(frozen=True)
class Recipe:
    count: int
    seed: int
    classes: int
    format: int = FORMAT

    def path(self, index: int) -> str:
        return f"class_{index % self.classes:03d}/img_{index:06d}.jpg"


@dataclass(frozen=True)
class Dataset:
    files: int
    bytes: int
    histogram: dict[str, int]
    digest: str
    seconds: float
    made: bool

    def line(self, directory: Path) -> str:
        done = f"made in {self.seconds:.1f} s" if self.made else "already there"
        mean = self.bytes / self.files / 1e3
        return f"{directory}: {self.files} files, {self.bytes} bytes, mean {mean:.1f} KB, {done}"


def make_dataset(directory: Path, recipe: Recipe, jobs: int) -> Dataset:
    """Returns the data set `recipe` in `directory`, and makes it first if it does not exist. Raises
    DatasetError if that is impossible."""
    present = _look(directory, recipe)
    if present:
        return present
    from bench.data.synthetic_images import BUCKETS, bucket_of

    start = time.monotonic()
    for label in range(recipe.classes):
        (directory / f"class_{label:03d}").mkdir(parents=True, exist_ok=True)
    _write_manifest(directory, {"recipe": asdict(recipe), "complete": False})
    sizes, digest = _write_files(directory, recipe, jobs)
    found = Counter(bucket.label for size in sizes if (bucket := bucket_of(size)))
    body = {
        "files": len(sizes), "bytes": sum(sizes), "digest": digest,
        "histogram": {bucket.label: found[bucket.label] for bucket in BUCKETS}
    }
    _write_manifest(directory, {"recipe": asdict(recipe), "complete": True, **body})
    return Dataset(**body, seconds=time.monotonic() - start, made=True)


def _look(directory: Path, recipe: Recipe) -> Dataset | None:
    """Returns the data set if it is complete, or None if it must be written. Raises on any other
    content."""
    if directory.exists() and not directory.is_dir():
        raise DatasetError(f"{directory} is not a directory")
    if not directory.exists() or not any(directory.iterdir()):
        return None
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        held = Recipe(**manifest["recipe"])
    except FileNotFoundError:
        raise DatasetError(
            f"{directory} is not empty and holds no data set of ours: name another directory"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DatasetError(
            f"{directory / MANIFEST} is not a manifest of ours: name another directory") from None
    if held != recipe:
        raise DatasetError(
            f"{directory} holds another data set (count {held.count}, seed {held.seed}, classes"
            f" {held.classes}, format {held.format}): name another directory or remove it")
    if not manifest.get("complete") or _measure(directory,
                                                recipe) != (manifest["files"], manifest["bytes"]):
        return None
    body = {key: manifest[key] for key in ("files", "bytes", "histogram", "digest")}
    return Dataset(**body, seconds=0.0, made=False)


def _measure(directory: Path, recipe: Recipe) -> tuple[int, int]:
    """Returns the number and the total size of the set's existing files. This cheap check finds
    lost and truncated files."""
    files = total = 0
    for index in range(recipe.count):
        try:
            total += os.stat(directory / recipe.path(index)).st_size
            files += 1
        except FileNotFoundError:
            pass
    return files, total


def _write_manifest(directory: Path, manifest: dict) -> None:
    partial = directory / (MANIFEST + ".part")
    partial.write_text(json.dumps(manifest, indent=1) + "\n")
    partial.replace(directory / MANIFEST)


def _write_files(directory: Path, recipe: Recipe, jobs: int) -> tuple[list[int], str]:
    """Writes all files; returns their sizes and one digest over all bytes, both in the order of the
    index."""
    from bench.data.synthetic_images import buckets_for

    buckets = buckets_for(recipe.count, recipe.seed)
    tasks = [(directory, recipe, index, buckets[index]) for index in range(recipe.count)]
    sizes, digest = [], hashlib.sha256()
    # Each worker first makes its own noise fields, which takes as long as 50 files.
    jobs = min(jobs, 1 + recipe.count // 32)
    with multiprocessing.get_context("fork").Pool(jobs, _start_worker, (recipe.seed,)) as pool:
        for size, hashed in pool.imap(_write_one, tasks, chunksize=16):
            sizes.append(size)
            digest.update(hashed)
    return sizes, digest.hexdigest()


def _start_worker(seed: int) -> None:
    import cv2

    from bench.data.synthetic_images import noise_fields

    # The pool ends its workers with SIGTERM, which the caller might catch. Only the caller handles
    # Ctrl-C.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    noise_fields(seed)


def _write_one(task: tuple[Path, Recipe, int, int]) -> tuple[int, bytes]:
    directory, recipe, index, bucket = task
    from bench.data.synthetic_images import BUCKETS, make_jpeg

    data = make_jpeg(recipe.seed, index, index % recipe.classes, recipe.classes, BUCKETS[bucket])
    (directory / recipe.path(index)).write_bytes(data)
    return len(data), hashlib.sha256(data).digest()


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Makes JPEGs in class folders with the file sizes of ImageNet.")
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--count", type=int, required=True, help="number of files")
    parser.add_argument("--seed", type=int, required=True,
                        help="same count, seed and classes: same bytes")
    parser.add_argument("--classes", type=int, default=10, help="class folders (default 10)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1,
                        help="processes (default: all cores)")
    options = parser.parse_args(arguments)
    if not 1 <= options.classes <= min(options.count, 1000):
        parser.error("--classes must be at least 1 and no more than --count and 1000")
    if options.seed < 0 or options.jobs < 1:
        parser.error("--seed must not be negative, --jobs must be at least 1")
    return options


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    recipe = Recipe(options.count, options.seed, options.classes)
    try:
        print(make_dataset(options.directory, recipe, options.jobs).line(options.directory))
    except (DatasetError, OSError, RuntimeError) as error:
        print(f"make_dataset: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"make_dataset: this Python has no module {error.name}: "
            "install python3-opencv and python3-numpy",
            file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
