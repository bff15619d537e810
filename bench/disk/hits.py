"""Measures the disk tier: the cost of a hit, compared with the disk itself and with plain files on
the disk."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.contest import Contender, Passes, alternate_cold, figures, ratios, spread
from bench.harness.errors import BenchError
from bench.harness.pages import forget_pages, have_memory
from bench.harness.report import Section, Table, Target
from bench.harness.shim import PREFETCH_OFF, Shim, exit_report
from bench.harness.suite import Bench

EXT4, PREAD, HIT, MISS = "ext4, cold", "pread, O_DIRECT", "disk hit", "miss, cold"
HIT_SIZES = ("4k", "110k", "256k", "mix")
PATIENCE_S = 60


@contextmanager
def disk_directory(bench: Bench) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="disk-", dir=bench.work))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def disk_settings(disk: Path) -> dict[str, str]:
    return {"CUBESHIM_DISK_DIR": str(disk), "CUBESHIM_DISK": "4G", **PREFETCH_OFF}


def entries_on_disk(bench: Bench, shim: Shim) -> int:
    reports = bench.reports(shim)
    return reports[0].get("disk", {}).get("entries", 0) if reports else 0


def wait_for_disk(bench: Bench, shim: Shim, files: int) -> None:
    """Waits until this many files are on the disk. The caller must have a process that keeps the
    region alive until then."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := entries_on_disk(bench, shim)) < files:
        if time.monotonic() > deadline:
            raise BenchError(f"{found} of {files} files came to the disk within {PATIENCE_S} s")
        time.sleep(0.1)


def fill_disk(bench: Bench, shim: Shim, data: Path, limit: int) -> None:
    """Runs a first job, which reads all files. Its region no longer exists afterwards."""
    with bench.reader("fill", data, shim, limit=limit, options=("--cold",)) as job:
        job.run()
        wait_for_disk(bench, shim, limit)
        job.finish()


def check_hits(stats: Path, files: int) -> None:
    report = exit_report(stats)
    if report["hits"]["disk"] != files:
        raise BenchError(f"{report['hits']['disk']} of {files} files came from the disk: {report}")


def cold_start(bench: Bench, data: Path, disk: Path, make) -> Contender:
    forget_pages(data)
    # The disk's index stays in memory, because a job has just used it.
    forget_pages(*disk.glob("*/segment-*"))
    have_memory(400)
    return make()


def measure_hits(bench: Bench, section: Section) -> None:
    limit = bench.rounds(1500, 400)
    rows = []
    for name in HIT_SIZES:
        data, arena = bench.sets[name].path, bench.work / f"arena-{name}-{limit}"
        stats = bench.work / "report.json"
        cold = ("--cold",)
        with disk_directory(bench) as disk:
            shim = bench.shim(data, stats=stats, more=disk_settings(disk))
            fill_disk(bench, shim, data, limit)
            stats.unlink(missing_ok=True)

            def hit() -> Contender:
                # Checks the result of the previous job.
                if stats.exists():
                    check_hits(stats, limit)
                return bench.reader(HIT, data, shim, limit=limit, options=cold)

            direct = ("--arena", arena, *cold)
            makers = [
                lambda: bench.reader(EXT4, data, limit=limit, options=cold),
                lambda: bench.reader(PREAD, data, reader="direct", limit=limit, options=direct),
                hit, lambda: bench.reader(MISS, data, bench.shim(data, more=PREFETCH_OFF), limit=
                                          limit, options=cold)
            ]
            found = alternate_cold(
                [lambda make=make: cold_start(bench, data, disk, make) for make in makers],
                bench.rounds(9, 5))
            check_hits(stats, limit)
        arena.unlink()
        section.data[f"hits, {name}"] = figures(found)
        rows.append(row_of_hits(name, found))
        over, gain = ratios(found[HIT], found[PREAD]), ratios(found[EXT4], found[HIT])
        section.targets += [
            Target(f"disk hit, {name}: wall time against a bare pread", "<= 1.3 x",
                   f"{over.text()} x", over.median <= 1.3),
            Target(f"disk hit, {name}: cold files on ext4 against it", ">= 1.0 x",
                   f"{gain.text()} x", gain.median >= 1.0)
        ]
    section.tables.append(
        Table(
            "A hit on the disk: microseconds a file, wall time",
            f"{limit} files in random order by one C reader (open, fstat, read, close), first pass"
            " of a new process. The origin is the directory of `ext4, cold` itself, so both ask"
            " the same file system for the same stat; its inodes are in memory, the pages of the"
            " files are dropped before each pass. `pread` reads the same bytes, whole pages, out"
            " of one open file with O_DIRECT: the cost of the disk alone. `disk hit` is a second"
            " job, whose memory is empty: it asks the origin for the stat, reads the record with"
            " O_DIRECT, checks it and puts it into newly allocated memory; `miss` does the same"
            " with the bytes of the origin.",
            ("files", EXT4, PREAD, HIT, MISS, "hit / pread", "ext4 / hit", "CPU: ext4", "pread",
             "hit"), rows))


def row_of_hits(name: str, found: dict[str, Passes]) -> tuple[str, ...]:
    return (name, *(spread(found[way].us()).text(1) for way in (EXT4, PREAD, HIT, MISS)),
            ratios(found[HIT], found[PREAD]).text(), ratios(found[EXT4], found[HIT]).text(),
            *(f"{spread(found[way].us(True)).median:.1f}" for way in (EXT4, PREAD, HIT)))
