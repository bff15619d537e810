"""Measures an announced epoch after a job that announced nothing has filled the memory. Compares it
with an epoch in a fresh cache."""

from __future__ import annotations

import random
from pathlib import Path

from bench.data.sets import write_list
from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.shim import PREFETCH_OFF, Shim, exit_report
from bench.harness.suite import Bench
from bench.prefetch.node.processes import PLAN, Job, jobs, on_mount

SLOW_US = 1000
PARTS = 4  # of the announced data; one part is as large as the memory


def measure_full_memory(bench: Bench, section: Section) -> None:
    rates: dict[str, list[float]] = {}
    reports = {}
    for number in range(bench.rounds(5, 2)):
        for way in in_turn(("fresh", "full before", "full before, not announced"), number):
            rate, reports[way] = read_once(bench, way)
            rates.setdefault(way, []).append(rate)
    share = spread([full / fresh for full, fresh in zip(rates["full before"], rates["fresh"])])
    section.targets.append(
        Target("announced epoch, the memory full before: files/s against a fresh cache", ">= 0.8 x",
               f"{share.text()} x", share.median >= 0.8))
    section.data["announced after a full memory, files/s"] = rates
    rows = []
    for way, found in rates.items():
        report = reports[way]
        ahead = report["prefetch"]
        rows.append((way, spread(found).text(0), str(report["opens"]), str(ahead["early"]),
                     str(ahead["late"]), str(report["misses"] + report["bypassed"]["full"]),
                     str(ahead["wasted"])))
    section.tables.append(
        Table(
            f"One process reads files in random order, {PARTS} x as much as the memory holds",
            f"lagfs with {SLOW_US} us an operation. `full before`: a job with CUBESHIM_PREFETCH=0"
            " has filled the memory with other files before (CUBESHIM_RAM_KEEP=1). The files are"
            " announced, except in the last row. Counters of the last round.",
            ("memory", "files/s", "opens", "early", "late", "demand misses", "wasted"), rows))


def read_once(bench: Bench, way: str) -> tuple[float, dict]:
    stats = bench.work / "report.json"
    with bench.mount(bench.data, latency_us=SLOW_US) as mount:
        filler, files = on_mount(bench, mount, PLAN), on_mount(bench, mount, ("mix",))
        random.Random(4).shuffle(files)
        ram = str(
            sum(
                Path(bench.data / Path(file).relative_to(mount.path)).stat().st_size
                for file in files) // PARTS)
        shim = bench.shim(mount.path, ram=ram, stats=stats, more={"CUBESHIM_RAM_KEEP": "1"})
        try:
            if way != "fresh":
                fill(
                    Shim(shim.library, shim.prefix, shim.name, ram, stats,
                         more=(*shim.more, *PREFETCH_OFF.items())),
                    write_list(bench.work / "filler", filler), filler[0], stats)
            names = write_list(bench.work / "late", files)
            words = ("read", files[0], names, 0) if way.endswith("not announced") else ("rank",
                                                                                        names, 0)
            with jobs(Job(shim, *words)) as (job,):
                job.answer()
                job.go_on()
                found = job.answer()
                job.go_on()
                job.end()
            if found["errors"]:
                raise BenchError("a file could not be read")
            return len(found["us"]) / (sum(found["us"]) / 1e6), exit_report(stats)
        finally:
            shim.region.unlink(missing_ok=True)


def fill(shim: Shim, names: Path, trigger: str, stats: Path) -> None:
    with jobs(Job(shim, "read", trigger, names, 0)) as (job,):
        job.answer()
        job.go_on()
        job.answer()
        job.end()
    if exit_report(stats)["bypassed"]["full"] == 0:
        raise BenchError("the memory is not full")
