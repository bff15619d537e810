"""Reads a set in the ways in which Python programs do.

    loaders.py --set DIR --loader NAME [--names DIR] [--limit N] [--seed S]

A contender of harness/contest.py, with or without the library preloaded. Each loader has a variant,
NAME:interpreter, without the file calls: the same loop over bytes that are already in memory. Its
time is the time of the interpreter alone, which no file layer can save."""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the root
from bench.data.sets import data_files  # noqa: E402

PAGE = 4096
Load = Callable[[str], object]
TWIN = ":interpreter"


def open_read(_: dict[str, bytes]) -> Load:
    def load(path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    return load


def open_read_twin(held: dict[str, bytes]) -> Load:
    def load(path: str) -> bytes:
        with io.BytesIO(held[path]) as file:
            return file.read()

    return load


def np_fromfile(_: dict[str, bytes]) -> Load:
    import numpy as np
    return lambda path: np.fromfile(path, np.uint8)


def np_fromfile_twin(held: dict[str, bytes]) -> Load:
    import numpy as np
    return lambda path: np.frombuffer(held[path], np.uint8)


def np_memmap(_: dict[str, bytes]) -> Load:
    import numpy as np

    def load(path: str) -> object:
        mapped = np.memmap(path, np.uint8, "r")
        int(mapped[::PAGE].sum())  # touches every page
        return mapped

    return load


class HeldFile(io.BytesIO):
    """Replaces the file object that open() gives np.memmap; it has no file."""
    def __init__(self, name: str, data: bytes):
        super().__init__(data)
        self.name = name

    def fileno(self) -> int:
        return -1


def np_memmap_twin(held: dict[str, bytes]) -> Load:
    import mmap

    import numpy as np

    writable = {path: bytearray(data) for path, data in held.items()}
    current: list[bytearray] = []
    # np.memmap looks the name up in the module at each call
    mmap.mmap = lambda *_, **__: current[0]

    def load(path: str) -> object:
        current[:] = [writable[path]]
        mapped = np.memmap(HeldFile(path, held[path]), np.uint8, "r")
        int(mapped[::PAGE].sum())
        return mapped

    return load


def torch_read_file(_: dict[str, bytes]) -> Load:
    from torchvision.io import read_file

    def load(path: str) -> object:
        read = read_file(path)  # maps the file
        int(read[::PAGE].sum())
        return read

    return load


def torch_read_file_twin(held: dict[str, bytes]) -> Load:
    import torch
    views = {
        path: torch.frombuffer(bytearray(data), dtype=torch.uint8) for path, data in held.items()
    }

    def load(path: str) -> object:
        read = views[path].view(-1)
        int(read[::PAGE].sum())
        return read

    return load


def cv2_imread(_: dict[str, bytes]) -> Load:
    import cv2
    cv2.setNumThreads(0)
    return cv2.imread


def pil(_: dict[str, bytes]) -> Load:
    from torchvision.datasets.folder import pil_loader
    return lambda path: pil_loader(path).tobytes()


LOADERS: dict[str, Callable[[dict[str, bytes]], Load]] = {
    "open().read()": open_read, "open().read()" + TWIN: open_read_twin, "np.fromfile": np_fromfile,
    "np.fromfile" + TWIN: np_fromfile_twin, "np.memmap": np_memmap,
    "np.memmap" + TWIN: np_memmap_twin, "torchvision.io.read_file": torch_read_file,
    "torchvision.io.read_file" + TWIN: torch_read_file_twin, "cv2.imread": cv2_imread, "PIL": pil,
}


def digest_of(load: Load, paths: list[str]) -> str:
    """Returns the digest of all bytes that the loader returns, in the order of the files' names."""
    total = 0
    for number, path in enumerate(paths):
        got = load(path)
        data = got if isinstance(
            got, bytes) else memoryview(got.numpy() if hasattr(got, "numpy") else got).cast("B")
        total += (number + 1) * zlib.crc32(data)
    return f"{total & (2**64 - 1):016x}"


def one_pass(load: Load, order: list[str]) -> dict[str, int]:
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    for path in order:
        load(path)
    return {"wall_ns": time.perf_counter_ns() - wall, "cpu_ns": time.process_time_ns() - cpu}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--set", required=True, type=Path, metavar="DIR")
    parser.add_argument("--names", type=Path, metavar="DIR",
                        help="a directory with the same files, listed in its place")
    parser.add_argument("--loader", required=True, choices=LOADERS)
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N files")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    options = parser.parse_args(arguments)
    names = options.names or options.set
    files = data_files(names)[:options.limit or None]
    paths = [str(options.set / file.relative_to(names)) for file in files]
    held = {path: Path(path).read_bytes() for path in paths
           } if options.loader.endswith(TWIN) else {}
    load = LOADERS[options.loader](held)
    order = random.Random(options.seed).sample(paths, len(paths))
    print(json.dumps({"files": len(paths), "digest": digest_of(load, paths)}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(one_pass(load, order)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
