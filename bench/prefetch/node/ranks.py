"""Measures how ranks that announce at the same time share the sidecar."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

from bench.data.sets import make_mix, write_list
from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench
from bench.prefetch.node.processes import Job, jobs, on_mount

RANKS = 8
# An open, read and close that take less than this were served from the cache: through the mount,
# they take at least twice its latency.
THERE_US = 150.0


def measure_ranks(bench: Bench, section: Section) -> None:
    # The lists are so long that the head start of the first rank, some 200 files, is only a small
    # part of them.
    each = bench.rounds(1900, 150)
    rows, slowest = [], []
    for think_ms in (0.0, 5.0):
        for number in range(bench.rounds(3, 2)):
            progress, there, seconds = run_ranks(bench, each, think_ms)
            slowest.append(max(progress) / max(1, min(progress)))
            rows.append(
                (f"{think_ms:.0f} ms", str(number + 1),
                 f"{min(progress)}-{max(progress)} of {each}", f"{slowest[-1]:.2f}",
                 f"{min(there):.0%}-{max(there):.0%}", f"{min(seconds):.2f}-{max(seconds):.2f}"))
    section.targets.append(
        Target(f"{RANKS} ranks announcing at once: progress, most against least", "<= 1.25 x",
               f"{max(slowest):.2f} x",
               max(slowest) <= 1.25, "the worst round"))
    section.tables.append(
        Table(
            f"{RANKS} ranks announce at once, each {each} files of its own, and read them in that"
            " order",
            "Progress: files that each has read when the first has read all. There: the share of"
            f" its reads that took less than {THERE_US:.0f} us, so they did not wait for the"
            " mount. All ranks are processes of their own on the same cores.",
            ("between reads", "round", "progress", "most / least", "there", "seconds to the end"),
            rows))


def rank_set(bench: Bench) -> str:
    if bench.quick:
        return "mix"
    bench.sets["mix-16000"] = make_mix(bench.data, 16_000)
    return "mix-16000"


def run_ranks(bench: Bench, each: int,
              think_ms: float) -> tuple[list[int], list[float], list[float]]:
    with bench.mount(bench.data) as mount, ExitStack() as stack:
        files = on_mount(bench, mount, (rank_set(bench),))
        random.Random(2).shuffle(files)
        shim = bench.shim(mount.path)
        lists = [
            write_list(bench.work / f"rank{rank}", files[rank * (each + 1):(rank + 1) * (each + 1)])
            for rank in range(RANKS)
        ]
        ranks = [
            stack.enter_context(jobs(Job(shim, "rank", name, think_ms, rank=rank, world=RANKS)))[0]
            for rank, name in enumerate(lists)
        ]
        for rank in ranks:
            rank.answer()
        start = time.monotonic_ns()
        for rank in ranks:
            rank.go_on()
        found = [rank.answer() for rank in ranks]
        for rank in ranks:
            rank.go_on()
            rank.end()
    if any(rank["errors"] for rank in found):
        raise BenchError("a rank could not read")
    first = min(rank["ends"][-1] for rank in found)
    return ([sum(end <= first for end in rank["ends"]) for rank in found
            ], [sum(us < THERE_US for us in rank["us"]) / each for rank in found],
            [(rank["ends"][-1] - start) / 1e9 for rank in found])
