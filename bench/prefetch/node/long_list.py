"""Measures how much memory the prefetching process needs for a list of millions of paths."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from bench.data.sets import data_files
from bench.harness.errors import BenchError
from bench.harness.report import Section, Target
from bench.harness.suite import Bench
from bench.prefetch.node.processes import PATIENCE_S, Job, counts, jobs

MB = 1 << 20


def private_bytes(pid: int) -> int:
    """Returns the memory of a process, without the region."""
    lines = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":" in line)
    return sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssFile")) * 1024


def measure_memory_of_list(bench: Bench, section: Section) -> None:
    """Uses local files, because the cost of a list does not depend on the speed of the origin, and
    ten million missing files would take an hour on a slow origin."""
    lines = bench.rounds(10_000_000, 1_000_000)
    existing = data_files(bench.sets["4k"].path)[:2000]
    listed = bench.work / "long-list"
    every = lines // len(existing)
    directory = existing[0].parent
    with open(listed, "w", encoding="utf-8") as file:
        for number, path in enumerate(existing):
            file.writelines(f"{directory}/a-name-that-no-file-has-{number * every + k}.jpg\n"
                            for k in range(every - 1))
            file.write(f"{path}\n")
    most, seconds = {}, 0.0
    for prefetch in (False, True):
        shim = bench.shim(
            bench.data,
            more={"CUBESHIM_PREFETCH_LIST": str(listed), "CUBESHIM_PREFETCH": str(int(prefetch))})
        with jobs(Job(shim, "wait", data_files(bench.sets["mix"].path)[0])) as (job,):
            start = time.monotonic()
            job.answer()
            samples = [private_bytes(job.pid)]
            for tick in itertools.count():
                samples.append(private_bytes(job.pid))
                # `stats` costs much more than a read of /proc.
                if not prefetch or (tick % 50 == 0 and counts(bench, shim) >= len(existing)):
                    break
                if time.monotonic() - start > 20 * PATIENCE_S:
                    fetched = counts(bench, shim)
                    raise BenchError(
                        f"the list is not read to its end: {fetched} of {len(existing)} fetched")
                time.sleep(0.02)
            seconds = time.monotonic() - start
            most[prefetch] = max(samples)
            job.go_on()
            job.end()
    size = listed.stat().st_size
    listed.unlink()
    more = most[True] - most[False]
    section.targets.append(
        Target(
            f"memory of the sidecar with a list of {lines} paths", "< 64 MB", f"{more / MB:.1f} MB",
            more < 64 * MB,
            f"{len(existing)} of them exist, the others would lie next to these; local files;"
            f" {size / 1e6:.0f} MB of list in {seconds:.0f} s,"
            f" {lines / seconds / 1e3:.0f} thousand lines/s"))
    section.data["memory of a list"] = {
        "lines": lines, "with": most[True], "without": most[False], "seconds": seconds
    }
