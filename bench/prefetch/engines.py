"""Compares the engines of prefetch/ with a plain reader with 32 threads: on the slow mount, over
sshfs, and on warm and cold local files. Shows which engine `auto` chooses."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.shim import child_environment
from bench.harness.sshfs import sshfs_mounted
from bench.harness.suite import LATENCY_US, Bench

WANTED = 0.90
DEPTH = 32  # the depth of `auto`
HEADER = ("reader", "files/s", "against plain", "CPU us/file")
Rows = list[tuple[str, ...]]


def rows_of(text: str) -> Rows:
    """Returns the rows of the table that cubeshim_engines prints, without the head."""
    cells = [
        tuple(cell.strip()
              for cell in line.strip("|\n ").split("|"))
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return cells[2:]


def ratio_of_readers(rows: Rows) -> dict[str, float]:
    """Maps each reader to its median ratio to the plain reader. Refused readers are left out."""
    return {row[0]: float(row[2].split()[0]) for row in rows if len(row) == 4 and row[2]}


def best_of(found: dict[str, float], engine: str) -> float:
    """Returns the best ratio of all depths, or 0 if the engine is refused."""
    return max((ratio for name, ratio in found.items() if name.split()[0] == engine), default=0.0)


def choice_of(found: dict[str, float]) -> str:
    """Returns the engine that `auto` has chosen, or `auto` if the trial was not over."""
    return next(name.split("(")[1].rstrip(")") for name in found if name.startswith("auto "))


def targets_of(origin: str, rows: Rows) -> list[Target]:
    found = ratio_of_readers(rows)
    best = max(best_of(found, "threads"), best_of(found, "uring"))
    choice = choice_of(found)
    there = {engine: found.get(f"{engine} {DEPTH}", 0.0) for engine in ("threads", "uring")}
    share = there.get(choice, 0.0) / max(there.values())
    return [
        Target(f"engines on {origin}: the best against 32 plain threads", f">= {WANTED} x",
               f"{best:.2f} x", best >= WANTED),
        Target(
            f"engines on {origin}: what auto takes against the better one, depth {DEPTH}",
            f">= {WANTED} x", f"{share:.2f} x", share >= WANTED,
            f"{choice}; auto {best_of(found, 'auto'):.2f}, threads {there['threads']:.2f}, io_uring"
            f" {there['uring']:.2f} x plain"),
    ]


def run_engines(bench: Bench, data: Path, options: tuple[str | int, ...] = ()) -> Rows:
    program = bench.build / "cubeshim_engines"
    if not program.exists():
        raise BenchError(f"{program} is missing: build it first with make")
    # A quick run has fewer depths and not fewer rounds, because on a busy machine five rounds did
    # not show a difference between the engines.
    depths = ("--depths", "4,16,32,64") if bench.quick else ()
    command = [program, "--set", data, "--rounds", bench.rounds(15, 9), *depths, *options]
    done = subprocess.run(list(map(str, command)), env=child_environment(None), check=True,
                          capture_output=True, text=True)
    return rows_of(done.stdout)


def measure_prefetch(bench: Bench) -> Section:
    section = Section("prefetch engines")
    local = bench.sets["mix"].path
    found = {}
    few = ("--limit", bench.rounds(1000, 500))
    with bench.mount(local) as mount:
        found[f"FUSE, {LATENCY_US} us"] = run_engines(bench, mount.path, few)
    with sshfs_mounted(bench.work, local) as mount:
        found["sshfs, loopback"] = run_engines(bench, mount, few)
    found["ext4, pages dropped"] = run_engines(bench, local, ("--cold",))
    found["ext4, warm"] = run_engines(bench, local)
    for origin, rows in found.items():
        section.data[origin] = rows
        section.tables.append(
            Table(
                f"Engines by depth on {origin}",
                "Every file once, whole; all readers alternately, in an order that changes from"
                " round to round; ratios to the plain reader of the same round.", HEADER, rows))
        section.targets += targets_of(origin, rows)
    return section
