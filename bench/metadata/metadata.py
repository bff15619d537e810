"""Measures metadata: passes over a tree of 4,000 files that read no file, on the local disk, on the
bare slow mount, and on the mount under the shim."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.mount import NOT_COUNTED, SlowMount
from bench.harness.report import Section, Table, Target
from bench.harness.shim import Shim, child_environment
from bench.harness.suite import Bench
from bench.metadata.jobs import CASES

JOBS = Path(__file__).resolve().parent / "jobs.py"
WAYS = ("local", "bare", "shim")
PASSES = 2
# The wanted times of passes 1 and 2 in seconds; None: no target.
WANTED = {
    "walk": (None, 0.010), "glob": (None, 0.012), "getsize": (0.2, 0.010),
    "walk, getsize": (0.2, 0.010), "exists, absent": (None, 0.010)
}


@dataclass
class Passes:
    """The figures of all rounds, as a list for each pass."""

    seconds: list[list[float]] = field(default_factory=lambda: [[] for _ in range(PASSES)])
    operations: list[list[float]] = field(default_factory=lambda: [[] for _ in range(PASSES)])


def operations(mount: SlowMount | None) -> int:
    """Counts all operations that wait for the origin, on files and on directories."""
    counters = mount.counters() if mount else {}
    return sum(row["count"]
               for name, row in counters.items()
               if isinstance(row, dict) and name not in NOT_COUNTED)


def run_passes(case: str, root: Path, shim: Shim | None, mount: SlowMount | None,
               into: Passes) -> int:
    found = set()
    with subprocess.Popen(
        [sys.executable, JOBS, "look", case, str(root)], env=child_environment(shim),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        for number in range(PASSES):
            before = operations(mount)
            job.stdin.write("go\n")
            job.stdin.flush()
            line = job.stdout.readline()
            if not line:
                raise BenchError(f"{case}: the job ended with {job.wait()}")
            said = json.loads(line)
            into.seconds[number].append(said["wall_ns"] / 1e9)
            into.operations[number].append(operations(mount) - before)
            found.add(said["digest"])
        job.stdin.close()
    if job.returncode or len(found) != 1:
        raise BenchError(f"{case}: the job ended with {job.returncode} and found {found}")
    return found.pop()


def measure_case(bench: Bench, case: str, source: Path, keeps_names: bool) -> dict[str, Passes]:
    passes, found = {way: Passes() for way in WAYS}, set()
    for number in range(bench.rounds(7, 3)):
        for way in in_turn(WAYS, number):
            if way == "local":
                found.add(run_passes(case, source, None, None, passes[way]))
                continue
            with SlowMount(bench.lagfs, source, bench.work, 300, keeps_names=keeps_names) as mount:
                shim = bench.shim(mount.path, ram="1G") if way == "shim" else None
                found.add(run_passes(case, mount.path, shim, mount, passes[way]))
    # All trees have paths of the same length, so that a tree's location does not change the sizes.
    if len(found) != 1:
        raise BenchError(f"{case}: not the same names in all ways: {found}")
    return passes


def measure_names(bench: Bench) -> Section:
    section = Section("names")
    source = bench.data / "names"
    if not source.exists():
        subprocess.run([sys.executable, JOBS, "make", source], check=True)
    for keeps_names in (True, False):
        kept = "1 s" if keeps_names else "0 s"
        rows = []
        for case in CASES:
            passes = measure_case(bench, case, source, keeps_names)
            cells = [spread(passes[way].seconds[i]).text(4) for way in WAYS for i in range(PASSES)]
            asked = [
                spread(passes[way].operations[i]).text(0)
                for way in ("bare", "shim")
                for i in range(PASSES)
            ]
            rows.append((case, *cells, *asked))
            section.data[f"{case}, {kept}"] = {way: vars(passes[way]) for way in WAYS}
            print(rows[-1], flush=True)
            for i, wanted in enumerate(WANTED.get(case, ())):
                median = spread(passes["shim"].seconds[i]).median
                if wanted is not None and keeps_names:
                    section.targets.append(
                        Target(f"{case}, pass {i + 1}", f"{wanted} s", f"{median:.4f} s", median
                               <= wanted))
        section.tables.append(
            Table(
                "Seconds of a pass over 4,000 names; the origin takes 300 us an operation, and the"
                f" kernel keeps names and stats for {kept}",
                "Both passes in one process. Operations are all that wait for the origin.",
                ("pass over", "local 1", "2", "bare 1", "2", "shim 1", "2", "bare operations 1",
                 "2", "shim operations 1", "2"), rows))
    return section
