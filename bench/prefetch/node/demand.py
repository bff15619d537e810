"""Measures how long a demand miss waits while another process of the node prefetches other
files."""

from __future__ import annotations

import random

from bench.data.sets import write_list
from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.pages import have_memory
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench
from bench.prefetch.node.processes import (PLAN, Job, counts, jobs, on_mount, plan_of, planned,
                                           wait_until)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def demand_us(bench: Bench, prefetch: bool, think_ms: float, limit: int) -> tuple[list[float], int]:
    """Returns the microseconds of each miss, and the number of planned files that were not fetched
    yet at the end."""
    with bench.mount(bench.data) as mount:
        plan = plan_of(bench, mount)
        others = on_mount(bench, mount, ("mix",))
        random.Random(1).shuffle(others)
        shim = bench.shim(mount.path, more=planned(bench, plan,
                                                   CUBESHIM_PREFETCH="1" if prefetch else "0"))
        demand = write_list(bench.work / "demand", others[:limit])
        have_memory(3000)
        with jobs(Job(shim, "wait", others[-1]), Job(shim, "read", others[-2], demand,
                                                     think_ms)) as (leader, reader):
            for job in (leader, reader):
                job.answer()
            if prefetch:
                wait_until(lambda: counts(bench, shim) > 0, "a file is prefetched")
            reader.go_on()
            found = reader.answer()
            left = len(plan) - counts(bench, shim) if prefetch else 0
            reader.end()
            leader.go_on()
            leader.end()
    if found["errors"]:
        raise BenchError(f"{found['errors']} reads failed")
    return found["us"], left


def measure_demand(bench: Bench, section: Section) -> None:
    limit = bench.rounds(800, 400)
    rows = []
    for think_ms in (0.0, 3.0):
        us: dict[bool, list[list[float]]] = {False: [], True: []}
        left = []
        for number in range(bench.rounds(7, 3)):
            for prefetch in in_turn((False, True), number):
                found, rest = demand_us(bench, prefetch, think_ms, limit)
                us[prefetch].append(found)
                left += [rest] if prefetch else []
        ratio = {
            share: spread([
                percentile(on, share) / percentile(off, share)
                for on, off in zip(us[True], us[False])
            ])
            for share in (0.5, 0.99)
        }
        for prefetch in (False, True):
            per_round = {
                share: spread([percentile(found, share)
                               for found in us[prefetch]])
                for share in ratio
            }
            rows.append(
                (f"{think_ms:.0f} ms", "on" if prefetch else "off", per_round[0.5].text(0),
                 per_round[0.99].text(0), ratio[0.5].text() if prefetch else "",
                 ratio[0.99].text() if prefetch else "", f"{min(left)}" if prefetch else ""))
        pooled = percentile(sum(us[True], []), 0.99) / percentile(sum(us[False], []), 0.99)
        section.targets.append(
            Target(f"demand miss with prefetch on, {think_ms:.0f} ms between reads: p99",
                   "<= 1.5 x", f"{ratio[0.99].text()} x", ratio[0.99].median <= 1.5,
                   f"all rounds together {pooled:.2f} x; p50 {ratio[0.5].text()} x"))
        section.data[f"demand, {think_ms} ms"] = {"on": us[True], "off": us[False], "left": left}
    section.tables.append(
        Table(
            "A demand miss while other files are prefetched",
            f"A process opens, reads and closes {limit} files of the mix, each once and none of"
            " them in the list, while another process of the node prefetches a list of"
            f" {sum(bench.sets[name].count for name in PLAN)} others; on and off alternately, a"
            " fresh mount and cache each. Microseconds a file, of each round; ratios round by"
            " round. `left`: the fewest files of the list that were still to be fetched when the"
            " reader ended, so the sidecar was at work all the time.",
            ("between reads", "prefetch", "p50", "p99", "p50 against off", "p99 against off",
             "left"), rows))
