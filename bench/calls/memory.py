"""Checks that memory has only one copy of a file that many processes read, and measures how much
memory a file needs in addition to its bytes."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.shim import exit_report
from bench.harness.suite import Bench

PROCESSES = 8
MIB = 1 << 20
BUCKET_BYTES, SLOTS = 64, 8
# magic, version, header_bytes; segment_bytes, segment_count, process_slots, job_rows,
# process_lanes, five bucket counts; the offsets of 19 tables, five of the index, the first
# segment's and the end (cache/region/layout.h).
HEADER = "<QII5I5I27Q"
# The allowed overhead of one copy: headers, paths and padding to pages, the control tables, and for
# each process the segment that it was filling.
MOST_PADDING = 0.06


@dataclass(frozen=True)
class Memory:
    region: int  # bytes of the region's file
    directory: int  # bytes used in /dev/shm
    shmem: int  # Shmem of /proc/meminfo
    pss: int  # Pss of the region's mappings, summed over the processes


def measure_memory(bench: Bench) -> Section:
    section = Section("memory")
    data = bench.sets["mix"]
    stats = bench.work / "memory.json"
    shim = bench.shim(stats=stats)
    before = look(shim.region, [])
    with bench.reader("8 processes", data.path, shim, processes=PROCESSES) as contender:
        contender.run()
        after = look(shim.region, children_of(contender.pid))
        layout = read_layout(shim.region)
        contender.finish()
    report = exit_report(stats)
    rows = [("bytes of the files", mib(data.bytes)),
            ("memory of the region's file", mib(after.region)),
            ("more used in /dev/shm", mib(after.directory - before.directory)),
            ("more Shmem in /proc/meminfo", mib(after.shmem - before.shmem)),
            (f"Pss of the region, sum of {PROCESSES} processes", mib(after.pss)),
            ("records", str(report["ram"]["entries"])),
            ("header, path and padding, bytes a file",
             f"{(report['ram']['used'] - data.bytes) / report['ram']['entries']:.0f}"),
            *rows_of_layout(layout, report["ram"]["used"] / report["ram"]["entries"])]
    most = data.bytes * (1 + MOST_PADDING) + layout.control_bytes + PROCESSES * layout.segment_bytes
    section.data.update(vars(after) | {"before": vars(before), "report": report})
    section.targets.append(
        Target(
            f"one copy in memory for {PROCESSES} processes", f"<= {mib(int(most))}",
            f"region {mib(after.region)}, Pss {mib(after.pss)}",
            max(after.region, after.pss) <= most,
            f"bytes {mib(data.bytes)}, {PROCESSES} segments {mib(PROCESSES * layout.segment_bytes)}"
        ))
    section.tables.append(
        Table(
            f"Memory with {PROCESSES} processes",
            f"{PROCESSES} processes read all of the mix ({data.line()}) at the same time, with"
            f" nothing cached before. If each had a copy of its own, the sums would be {PROCESSES}"
            " times the bytes of the files. Pss counts a shared page once over all processes that"
            " map it. The rest over the bytes is padding: files of 32 KiB and more begin on a page"
            " and end in zeros so that a program can map them, and each of the eight leases"
            " segments of its own.",
            ("what", "figure"), rows))
    return section


@dataclass(frozen=True)
class Layout:
    """The start of a region's file (cache/region/layout.h)."""

    segment_bytes: int
    segment_count: int
    bucket_counts: tuple[int, ...]  # of the tables that get their memory one after another
    control_bytes: int  # mapped bytes; unused index tables have no memory

    @property
    def index_bytes(self) -> int:
        return sum(self.bucket_counts) * BUCKET_BYTES

    @property
    def capacity(self) -> int:
        return self.segment_bytes * self.segment_count


def read_layout(region: Path) -> Layout:
    with open(region, "rb") as file:
        fields = struct.unpack(HEADER, file.read(struct.calcsize(HEADER)))
    layout = Layout(fields[3], fields[4], fields[8:13], fields[-2])
    if layout.control_bytes + layout.capacity != fields[-1]:
        raise BenchError(
            "the layout of the region has changed: bring HEADER of bench/calls/memory.py in line "
            "with layout.h"
        )
    return layout


def rows_of_layout(layout: Layout, record_bytes: float) -> list[tuple[str, ...]]:
    files = layout.capacity / record_bytes
    return [("index, bytes a file in use (two slots)", str(2 * BUCKET_BYTES // SLOTS)),
            (f"first index table, bytes a file when {mib(layout.capacity)} are full of such files",
             f"{layout.bucket_counts[0] * BUCKET_BYTES / files:.0f}"),
            ("all index tables, had each of them memory, bytes a file",
             f"{layout.index_bytes / files:.0f}"),
            ("control tables (address space), share of the region",
             f"{layout.control_bytes / layout.capacity:.2%}")]


def mib(count: int) -> str:
    return f"{count / MIB:.1f} MiB"


def look(region: Path, processes: list[int]) -> Memory:
    shm = os.statvfs("/dev/shm")
    shmem = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("Shmem:"))
    return Memory(region.stat().st_blocks * 512 if region.exists() else 0,
                  (shm.f_blocks - shm.f_bfree) * shm.f_frsize, shmem,
                  sum(pss_of(pid, str(region.stat().st_ino)) for pid in processes))


def pss_of(pid: int, inode: str) -> int:
    """Returns the bytes of Pss in the mappings of one file. The file is found by its inode, because
    the mapping has no name in the process that made the file."""
    total, ours = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split(None, 1)[0]
        if "-" in first and not first.endswith(":"):
            ours = line.split()[4] == inode
        elif ours and first == "Pss:":
            total += int(line.split()[1]) * 1024
    return total


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
