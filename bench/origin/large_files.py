#!/usr/bin/env python3
"""Measures the first epoch of files of some megabytes. Runs with the shim and on the bare mount
alternate, and each run has a new mount.

    bench/origin/large_files.py --build build [--rounds 5] [--files 60]
                                [--mounts lagfs,direct,disk] [--readers whole,chunks]

`lagfs`: 1 ms an operation and 500 MB/s over all reads; `direct`: the same without a page cache;
`disk`: a directory of the local disk whose pages were dropped; `memory`: the same with all its
pages in memory.

Readers, in Python: `whole` is open().read(); `chunks` reads 64 KiB at a time and computes the
crc32; `read4k`, `read64k` and `read1m` call read(2) with pieces of that size; `fromfile` is
numpy's; `load` reads a header and then the rest into an array through a dup, like numpy.load;
`header` reads 4 KiB.

The times are those of the loop over the files in one process, which also makes the region.
`origin's bytes` is the number of bytes that the mount's server read with the shim, divided by the
number without the shim."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the root
from bench.harness.contest import in_turn  # noqa: E402
from bench.harness.errors import BenchError  # noqa: E402
from bench.harness.mount import SlowMount  # noqa: E402
from bench.harness.pages import forget_pages  # noqa: E402
from bench.harness.shim import Shim, child_environment  # noqa: E402

LATENCY_US = 1000
BANDWIDTH_MB = 500
MEGABYTE = 1_000_000

READER = '''
import os, sys, time, zlib
reader, paths = sys.argv[1], sys.argv[2:]
total = 0
if reader == "fromfile":
    import numpy
piece_size = {"read4k": 4 << 10, "read64k": 64 << 10, "read1m": 1 << 20}.get(reader, 0)
began = time.perf_counter()
for path in paths:
    if piece_size:
        fd = os.open(path, os.O_RDONLY)
        while n := len(os.read(fd, piece_size)):
            total += n
        os.close(fd)
        continue
    if reader == "fromfile":
        total += numpy.fromfile(path, numpy.uint8).size
        continue
    with open(path, "rb") as file:
        if reader == "whole":
            total += len(file.read())
        elif reader == "load":
            # Reads as numpy.load does: the header, then the rest into an array by a dup of the fd.
            head = file.read(128)
            rest = bytearray(os.fstat(file.fileno()).st_size - 128)
            with open(os.dup(file.fileno()), "rb", buffering=0) as other:
                other.seek(128)
                total += other.readinto(rest)
        elif reader == "header":
            total += len(file.read(4096))
        else:
            crc = 0
            while piece := file.read(65536):
                crc = zlib.crc32(piece, crc)
                total += len(piece)
print(time.perf_counter() - began, total)
'''


def make_old_files(directory: Path, count: int, size: int) -> list[str]:
    """Makes files that are an hour old, because new files are revalidated more often."""
    directory.mkdir()
    names = [f"f{i:03}" for i in range(count)]
    for name in names:
        (directory / name).write_bytes(os.urandom(size))
    os.sync()
    past = time.time() - 3600
    for name in names:
        os.utime(directory / name, (past, past))
    return names


def shim_of(build: Path, directory: Path) -> Shim:
    """Returns a shim with the settings in the caller's environment, so that settings can be tried
    out."""
    tried = {name: value for name, value in os.environ.items() if name.startswith("CUBESHIM")}
    return Shim((build / "libcubeshim.so").resolve(), directory, f"first-epoch-{os.getpid()}", "4G",
                mode=None, more=tuple(tried.items()))


def read_all(build: Path, reader: str, directory: Path, names: list[str], with_shim: bool) -> float:
    """Returns the seconds of the loop."""
    shim = shim_of(build, directory) if with_shim else None
    done = subprocess.run(
        [sys.executable, "-c", READER, reader, *(str(directory / n) for n in names)],
        env=child_environment(shim), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def measure(arguments: argparse.Namespace, work: Path, mount: str, reader: str, size: int,
            names: list[str]) -> str:
    source = work / f"files-{size}"
    times: dict[bool, list[float]] = {False: [], True: []}
    origin = {False: 0, True: 0}
    for turn in range(arguments.rounds + 1):
        for shim in in_turn((False, True), turn):
            if mount in ("disk", "memory"):
                if mount == "disk":
                    forget_pages(source)
                seconds = read_all(arguments.build, reader, source, names, shim)
            else:
                with SlowMount(arguments.build / "lagfs", source, work, LATENCY_US,
                               mount == "direct", BANDWIDTH_MB) as slow:
                    seconds = read_all(arguments.build, reader, slow.path, names, shim)
                    origin[shim] += slow.bytes_read()
            if turn > 0:
                times[shim].append(seconds)
    ratios = sorted(s / n for s, n in zip(times[True], times[False]))
    share = f"{origin[True] / origin[False]:.2f}" if origin[False] else "-"
    each = {shim: 1000 * statistics.median(t) / len(names) for shim, t in times.items()}
    return (f"| {mount} | {reader} | {size // MEGABYTE} MB | {each[False]:.2f} | {each[True]:.2f} |"
            f" {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) | {share} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--mounts", default="lagfs,direct,disk,memory")
    parser.add_argument("--readers", default="whole,chunks,load,header")
    parser.add_argument("--sizes", default="4,8,16")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    print(
        "| mount | reader | file | bare, ms a file | shim, ms a file | shim over bare (least-most)"
        " |"
        " origin's bytes |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="first-epoch-", dir=arguments.work) as work:
        for size in (MEGABYTE * int(s) for s in arguments.sizes.split(",")):
            names = make_old_files(Path(work) / f"files-{size}", arguments.files, size)
            for mount in arguments.mounts.split(","):
                for reader in arguments.readers.split(","):
                    print(measure(arguments, Path(work), mount, reader, size, names), flush=True)
            for name in names:
                (Path(work) / f"files-{size}" / name).unlink()


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"large_files: {error}")
