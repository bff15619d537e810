"""The suite of `make bench` for many threads, and for the same number of processes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench
from bench.threads.threads import SIZES, Way, gain, make_files, measure, remove_regions, rows_of

WHAT = (
    "open, fstat, read, close by threads of one process and by processes, each of as many files of"
    " its own in a shuffled order: hits; the same files on a local disk, warm; and the memcpy of"
    " the same bytes alone. Wall-clock nanoseconds a file, all readers together; the gain over one"
    " reader in files a second; CPU nanoseconds a file."
)


def measure_threads(bench: Bench) -> Section:
    section = Section("reads by threads")
    for size, (bytes_of_file, count) in SIZES.items():
        with tempfile.TemporaryDirectory(dir=bench.work) as home:
            files = Path(home) / "files"
            make_files(files, bytes_of_file, count)
            ways = [
                Way("hit", "hit", files, bench.library),
                Way("ext4", "native", files),
                Way("memcpy", "memcpy", files)
            ]
            try:
                table = measure(bench.build / "cubeshim_thread_reader", ways, size,
                                bench.rounds(9, 5), time.monotonic() + 600)
            finally:
                remove_regions()
        header, *rows = rows_of(table, ways)
        section.tables.append(Table(f"Threads and processes, files of {size}", WHAT, header, rows))
        if size == "4 KB":
            found = gain(table, "hit", 1, 2)
            section.targets.append(
                Target("C reader, 4 KB: hits by two threads against one", ">= 1.6 x",
                       f"{found:.2f} x", found >= 1.6))
    return section
