"""A job like a data loader's for the Python of a system under test: worker processes decode images
over two epochs.
    loader.py DIRECTORY [--make COUNT]     # --make: writes the images instead"""

import hashlib
import multiprocessing
import os
import sys
from pathlib import Path

import numpy
from PIL import Image


def make(directory: Path, count: int) -> None:
    pixels = numpy.random.default_rng(1)
    for i in range(count):
        Image.fromarray(pixels.integers(0, 255, (40, 60, 3),
                                        dtype="uint8")).save(directory / f"{i:04}.png")


def look(path: Path) -> str:
    with Image.open(path) as image:
        decoded = hashlib.sha256(numpy.asarray(image.convert("L")).tobytes()).hexdigest()
    return f"{path.name} {decoded} {len(path.read_bytes())} {path.stat().st_size}"


def main() -> None:
    directory = Path(sys.argv[1])
    if "--make" in sys.argv:
        return make(directory, int(sys.argv[3]))
    files = sorted(directory / name for name in os.listdir(directory))
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            for _ in range(2):
                print(hashlib.sha256("\n".join(pool.map(look, files)).encode()).hexdigest())


if __name__ == "__main__":
    main()
