"""Measures shards four times as large as the memory: three epochs from the local disk, on the bare
slow mount, and on the mount under the library, in one job without a disk and two jobs with one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.disk.hits import disk_directory
from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.mount import SlowMount
from bench.harness.pages import forget_pages
from bench.harness.report import Section, Table, Target
from bench.harness.shim import Shim, exit_report
from bench.harness.suite import Bench
from bench.large.jobs import MEGABYTE, SHARD_FILES, Tar
from bench.large.large import BANDWIDTH_MB, BLOCKS, JOBS, LATENCY_US, Epochs, run_job

PARTS = 4  # of the data; one part is as large as the memory
EPOCHS = 3
LOCAL, BARE, NO_DISK = "local disk", "bare mount", "no disk"
FIRST, SECOND = "disk, first job", "disk, second job"
# The two jobs with a disk form a pair, because the second job reads the files that the first job
# has left on the disk.
TURNS = ((LOCAL,), (BARE,), (NO_DISK,), (FIRST, SECOND))
WAYS = tuple(way for ways in TURNS for way in ways)
# The share of the data that a job with a disk may still read from the origin, for example for the
# size of a tar.
MOST_READ = 0.01


@dataclass
class Runs:
    """All rounds of one kind of job."""

    epochs: Epochs = field(default_factory=lambda: Epochs(EPOCHS))
    reports: list[dict] = field(default_factory=list)


def shards_of(bench: Bench, shards: int, files: int) -> Path:
    made = bench.data / f"large-shards-{shards}-{files}"
    if not made.exists():
        half = made.with_suffix(".part")
        half.mkdir(parents=True, exist_ok=True)
        Tar.make(half, shards, files)
        half.rename(made)
    return made


def command_of(directory: Path) -> list[object]:
    return [sys.executable, JOBS, "read", "shards", directory]


def run_local(source: Path, runs: Runs) -> str:
    """Runs the job on the local disk. The pages are dropped before each epoch, because in a real
    job the data is larger than the memory."""
    return run_job(command_of(source), None, None, runs.epochs, lambda: forget_pages(source))


def run_on_mount(bench: Bench, source: Path, shim: Shim | None, runs: Runs) -> str:
    """Runs one job, whose region is removed afterwards. The mount is new, so the kernel has cached
    nothing of it."""
    forget_pages(source)
    with SlowMount(bench.lagfs, source, bench.work, LATENCY_US, bandwidth_mb=BANDWIDTH_MB,
                   at=bench.work / "mount") as mount:
        digest = run_job(command_of(mount.path), shim, mount, runs.epochs)
    if shim:
        if shim.region.exists():
            raise BenchError(f"{shim.region} is there after the job")
        runs.reports.append(exit_report(shim.stats))
    return digest


def run_turn(bench: Bench, source: Path, ram: int, ways: tuple[str, ...],
             found: dict[str, Runs]) -> set[str]:
    """Runs the jobs of one turn, each directly after the previous one, and returns their
    digests."""
    if ways == (LOCAL,):
        return {run_local(source, found[LOCAL])}
    if ways == (BARE,):
        return {run_on_mount(bench, source, None, found[BARE])}
    digests = set()
    with disk_directory(bench) as disk:
        settings = BLOCKS | ({"CUBESHIM_DISK_DIR": str(disk), "CUBESHIM_DISK": "8G"}
                             if FIRST in ways else {})
        shim = bench.shim(bench.work / "mount", str(ram), bench.work / "report.json", settings)
        for way in ways:
            # The disk's index stays in memory, because a job has just used it.
            forget_pages(*disk.glob("*/segment-*"))
            digests.add(run_on_mount(bench, source, shim, found[way]))
    return digests


def measure_jobs(bench: Bench, source: Path, ram: int, rounds: int) -> dict[str, Runs]:
    found = {way: Runs() for way in WAYS}
    digests = set()
    for number in range(rounds):
        for ways in in_turn(TURNS, number):
            digests |= run_turn(bench, source, ram, ways, found)
    if len(digests) != 1:
        raise BenchError("large-disk: not the same bytes in all ways")
    return found


def row_of(way: str, runs: Runs) -> tuple[str, ...]:
    on_disk = spread([report["disk"]["entries"] for report in runs.reports
                     ]).text(0) if way in (FIRST, SECOND) else "-"
    return (way, *(spread(seconds).text(2) for seconds in runs.epochs.seconds),
            *(spread(megabytes).text(1) for megabytes in runs.epochs.megabytes), on_disk)


def targets_of(found: dict[str, Runs], data: int) -> list[Target]:
    """The promises of README.md about data larger than memory, for large files."""
    targets = []
    for name, way, first in (("epochs 2 and 3 of the first job", FIRST, 1), ("a second job", SECOND,
                                                                             0)):
        epochs = found[way].epochs.megabytes[first:]
        most = max(spread(epoch).median for epoch in epochs) * 1e6 / data
        unwritten = max(report["disk"]["unwritten"] for report in found[FIRST].reports)
        targets.append(
            Target(
                f"large files 4 x the memory, with a disk, {name}: bytes of the origin, worst"
                " epoch",
                f"<= {MOST_READ} x data", f"{most:.3f} x", most <= MOST_READ,
                f"records that the first job had no time to write: {unwritten}"))
    return targets


def measure_large_disk(bench: Bench) -> Section:
    section = Section("large files and the disk")
    source = shards_of(bench, bench.rounds(8, 4), SHARD_FILES)
    shards = sorted(source.iterdir())
    data = sum(shard.stat().st_size for shard in shards)
    blocks = sum(-(-shard.stat().st_size // MEGABYTE) for shard in shards)
    ram = data // PARTS
    found = measure_jobs(bench, source, ram, bench.rounds(5, 2))
    section.data = {"data": data, "ram": ram} | {
        way: {
            "seconds": runs.epochs.seconds, "megabytes": runs.epochs.megabytes,
            "reports": runs.reports
        } for way, runs in found.items()
    }
    section.targets += targets_of(found, data)
    section.tables.append(
        Table(
            f"Tar shards 4 x the memory: seconds of an epoch; the origin takes {LATENCY_US} us an"
            f" operation and gives {BANDWIDTH_MB} MB/s",
            f"{len(shards)} shards, {data / 1e6:.0f} MB, {blocks} blocks, read from beginning to"
            f" end by two processes; CUBESHIM_RAM is {ram / 1e6:.0f} MB. The origin alone takes"
            f" {data / 1e6 / BANDWIDTH_MB:.2f} s. `{LOCAL}` is the yardstick: the shards"
            " themselves, their pages dropped before each epoch. All epochs of a row are one job,"
            " which opens the shards again in each. Megabytes are those read from the mount. The"
            " first job finds an empty disk, and the second one the records that the first has"
            " left there: its memory is gone, its mount is another. It starts when the first has"
            " exited, and nothing waits for the disk between jobs or epochs; at its exit a job"
            " writes for 50 ms at most.",
            ("job", "s, epoch 1", "2", "3", "origin MB 1", "2", "3", "blocks on the disk"),
            [row_of(*item) for item in found.items()]))
    return section
