#!/usr/bin/env python3
"""Measures threads and processes that read small files at the same time. Compares hits of the
library with the same files on a local file system and with a bare memcpy. Needs only Python 3, the
compiled reader.c next to it, the library, and a directory in which it can make files.

    threads.py --library LIBRARY --reader READER [--origin DIR ...] [--rounds N] [--seconds N]

Each row has one number of readers, which are threads of one process, or processes. Each reader has
the same number of its own files. All ways of a row are measured in turn, in another order in each
round. A figure is the median of the rounds. A way's gain is its files per second with this many
readers, divided by its files per second with one reader.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SIZES = {"4 KB": (4096, 8192), "64 KB": (65536, 2048)}  # bytes of a file, and files
READERS = (1, 2, 4, 8, 16)
# With one reader, a run takes some 50 ms.
READS = {
    "4 KB": {"hit": 160_000, "memcpy": 400_000, "native": 16_000},
    "64 KB": {"hit": 10_000, "memcpy": 10_000, "native": 4_000}
}


@dataclass(frozen=True)
class Way:
    name: str
    kind: str  # of READS
    directory: Path
    library: Path | None = None

    def environment(self) -> dict[str, str]:
        plain = {
            name: value
            for name, value in os.environ.items()
            if name != "LD_PRELOAD" and not name.startswith("CUBESHIM_")
        }
        if self.library is None:
            return plain
        return {
            **plain, "LD_PRELOAD": str(self.library), "CUBESHIM_PREFIXES": str(self.directory),
            "CUBESHIM_STATS": "off", "CUBESHIM_NAME": f"threads-{os.getpid()}-{self.name}",
            "CUBESHIM_RAM": "1G", "CUBESHIM_RAM_KEEP": "1", "CUBESHIM_PREFETCH": "0",
            "CUBESHIM_ANNOUNCE": "0"
        }


@dataclass
class Cell:
    """The figures of one way with one number of readers: for each round, nanoseconds per file of
    wall time and of processor time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def ns(self) -> float:
        return statistics.median(self.wall)


def most_readers() -> int:
    return max(n for n in READERS if n <= max(8, len(os.sched_getaffinity(0))))


def make_files(directory: Path, bytes_of_file: int, count: int) -> None:
    directory.mkdir()
    content = os.urandom(bytes_of_file)
    for number in range(count):
        path = directory / f"{number:06}"
        path.write_bytes(content)
        os.utime(path, (1_600_000_000,) * 2)  # a new file would not be cached immediately


def run(reader: Path, way: Way, size: str, processes: int, threads: int,
        cores: int) -> tuple[float, float]:
    readers = processes * threads
    reads = READS[size][way.kind] * cores // max(cores, readers)
    how = "copy" if way.kind == "memcpy" else "files"
    files = SIZES[size][1] // READERS[-1]
    command = [
        str(reader), str(processes), str(threads), str(files), str(reads), how, str(way.directory)
    ]
    done = subprocess.run(command, env=way.environment(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{way.name}, {processes} processes of {threads} threads: {done.stderr}")
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


Table = dict[tuple[str, int, int], Cell]  # way, processes, threads


def measure(reader: Path, ways: list[Way], size: str, rounds: int, until: float) -> Table:
    cores = len(os.sched_getaffinity(0))
    shapes = [(1, 1)
             ] + [shape for n in READERS[1:] if n <= most_readers() for shape in ((1, n), (n, 1))]
    table: Table = {(way.name, *shape): Cell() for way in ways for shape in shapes}
    for number in range(rounds):
        if number > 0 and time.monotonic() > until:
            break
        for processes, threads in shapes:
            first = number % len(ways)
            for way in ways[first:] + ways[:first]:
                wall, cpu = run(reader, way, size, processes, threads, cores)
                cell = table[way.name, processes, threads]
                cell.wall.append(wall)
                cell.cpu.append(cpu)
    return table


def gain(table: Table, way: str, processes: int, threads: int) -> float:
    one, many = table[way, 1, 1].wall, table[way, processes, threads].wall
    return statistics.median(a / b for a, b in zip(one, many))


def rows_of(table: Table, ways: list[Way]) -> Iterator[tuple[str, ...]]:
    yield ("readers", *(text for way in ways for text in (f"{way.name}: ns", "gain", "cpu ns")))
    for processes, threads in dict.fromkeys(
        (processes, threads) for _, processes, threads in table):
        row = [
            f"{threads} threads" if processes == 1 and threads > 1 else
            f"{processes} processes" if processes > 1 else "1"
        ]
        for way in ways:
            cell = table[way.name, processes, threads]
            row += [
                f"{cell.ns():.1f}", f"{gain(table, way.name, processes, threads):.2f}",
                f"{statistics.median(cell.cpu):.0f}"
            ]
        yield tuple(row)


def text_of(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def remove_regions() -> None:
    """Removes the regions that this process has kept between runs."""
    for region in Path("/dev/shm").glob(f"cubeshim-*-threads-{os.getpid()}*"):
        region.unlink()


def kind_of_file_system(directory: Path) -> str:
    done = subprocess.run(["stat", "-f", "-c", "%T", str(directory)], capture_output=True,
                          text=True)
    return done.stdout.strip() or str(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description="threads and processes that read small files")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="another library, to be measured beside it")
    parser.add_argument("--reader", type=Path, required=True)
    parser.add_argument("--origin", type=Path, action="append",
                        help="where to make the files; /dev/shm and /var/tmp by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=200, help="no round begins later")
    options = parser.parse_args()
    began = time.monotonic()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    places = options.origin or [Path("/dev/shm"), Path("/var/tmp")]
    for number, (size, (bytes_of_file, count)) in enumerate(SIZES.items()):
        homes = [
            tempfile.TemporaryDirectory(prefix="cubeshim-threads-", dir=place) for place in places
        ]
        try:
            directories = [Path(home.name) / "files" for home in homes]
            for directory in directories:
                make_files(directory, bytes_of_file, count)
            ways = [Way("hit", "hit", directories[0], options.library)]
            if options.base is not None:
                ways.append(Way("base", "hit", directories[0], options.base))
            ways += [
                Way(kind_of_file_system(directory), "native", directory)
                for directory in directories
            ]
            ways.append(Way("memcpy", "memcpy", directories[0]))
            until = began + options.seconds * (number + 1) / len(SIZES)
            table = measure(options.reader, ways, size, options.rounds, until)
            taken = len(table["hit", 1, 1].wall)
            print(
                f"\n{size}: nanoseconds a file, all readers together; gain over one reader; "
                f"medians of {taken}\n"
            )
            print(text_of(list(rows_of(table, ways))), flush=True)
        finally:
            for home in homes:
                home.cleanup()
            remove_regions()


if __name__ == "__main__":
    main()
