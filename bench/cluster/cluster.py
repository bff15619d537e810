"""Measures three nodes that share their files through memcached, compared with the same nodes
without memcached: epochs, cold starts, and servers that fail."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.cluster.jobs import (READERS, Epoch, Job, Plan, check_digests, same_order, shares,
                                started, totals, wait_until_shared)
from bench.cluster.nodes import Network
from bench.data.sets import FileSet
from bench.harness.contest import Spread, in_turn, spread
from bench.harness.report import Section, Table, Target
from bench.harness.suite import LATENCY_US, Bench

NODES = 3
BANDWIDTH_MB = 100
EPOCHS = 3
ALONE, POOL = "alone", "cluster"
WAYS = {ALONE: False, POOL: True}
MIB = 1 << 20
LITTLE_RAM = 32 * MIB  # most opens ask the servers
# How long each reader sleeps before a file, so that processors are not the bottleneck while waits
# are measured.
PAUSE_US = 40_000
FAULT_AT = 0.3  # of the epoch
MOST_WAIT_MS = 25.0
MOST_LOST = 0.01


def room_for(bytes_: int, share: float = 1.0) -> int:
    """Returns the megabytes that each server needs, so that all servers together have room for this
    share of the data. If the share is the whole data, each server gets a fifth more, because keys
    are distributed unevenly, and memcached reserves memory for each size of items."""
    return int(bytes_ * share * (1.2 if share >= 1 else 1.0) / NODES / MIB) + 1


@dataclass
class Runs:
    """The runs of one kind of job: epochs[n] has epoch n of each round."""

    epochs: list[list[Epoch]] = field(default_factory=list)

    def add(self, number: int, epoch: Epoch) -> None:
        while len(self.epochs) <= number:
            self.epochs.append([])
        self.epochs[number].append(epoch)

    def speeds(self, number: int) -> list[float]:
        return [epoch.files_per_s for epoch in self.epochs[number]]

    def most_opens(self, number: int) -> int:
        return max(epoch.opens for epoch in self.epochs[number])


def ratio(found: dict[str, Runs], number: int) -> Spread:
    return spread([
        with_pool / alone
        for with_pool, alone in zip(found[POOL].speeds(number), found[ALONE].speeds(number))
    ])


def run_rounds(bench: Bench, network: Network, plan: Plan, epochs: int, orders: Callable[..., list],
               rounds: int) -> dict[str, Runs]:
    """Runs both kinds of job alternately, with the same orders. Each round and epoch has new
    orders."""
    found = {way: Runs() for way in WAYS}
    digests: set[int] = set()
    for number in range(rounds):
        for way in in_turn(WAYS, number):
            with started(bench, network, plan, WAYS[way]) as job:
                for turn in range(epochs):
                    order = orders(plan.files.count, NODES, plan.readers, f"{number} {turn}")
                    found[way].add(turn, job.epoch(order, digests))
                    if WAYS[way]:
                        wait_until_shared(network)
    check_digests(digests, "nodes alone and with servers")
    return found


def rows_of(what: str, found: dict[str, Runs]) -> list[tuple[str, ...]]:
    rows = []
    for number in range(len(found[ALONE].epochs)):
        for way, runs in found.items():
            epochs = runs.epochs[number]
            counts = {
                name: totals(epochs, name) // len(epochs)
                for name in ("hits.ram", "hits.cluster", "cluster.late")
            }
            rows.append(
                (what, str(number + 1), way, spread(runs.speeds(number)).text(0),
                 ratio(found, number).text() if way == POOL else "",
                 spread([epoch.opens for epoch in epochs]).text(0), *map(str, counts.values())))
    return rows


HEADER = ("origin", "epoch", "way", "files/s", "cluster / alone", "opens at the origin",
          "hits: memory", "hits: servers", "late")


def data_of(found: dict[str, Runs]) -> dict[str, list]:
    return {
        way: [[vars(epoch)
               for epoch in epochs]
              for epochs in runs.epochs]
        for way, runs in found.items()
    }


def measure_shares(bench: Bench, section: Section) -> None:
    """Measures nodes that each read their share of an epoch's order, and have memory for a third of
    the data."""
    files = bench.sets["110k"]
    rows = []
    with Network(NODES, room_for(files.bytes)) as network:
        for bandwidth_mb, wanted, opens_allowed in ((BANDWIDTH_MB, 8.0, 0), (0, 2.5, None)):
            plan = Plan(files, files.bytes // NODES, LATENCY_US, bandwidth_mb)
            what = f"{LATENCY_US} us" + (f", {bandwidth_mb} MB/s" if bandwidth_mb else "")
            found = run_rounds(bench, network, plan, EPOCHS, shares, bench.rounds(5, 2))
            rows += rows_of(what, found)
            section.data[f"shares, {what}"] = data_of(found)
            second, first = ratio(found, 1), ratio(found, 0)
            section.targets.append(
                Target(f"memory of a node for a third, origin {what}: epoch 2, cluster / alone",
                       f">= {wanted} x", f"{second.text()} x", second.median >= wanted))
            if opens_allowed is not None:
                opens = found[POOL].most_opens(1)
                section.targets.append(
                    Target(f"the same: opens at the origin in epoch 2, in the worst round",
                           str(opens_allowed), str(opens), opens <= opens_allowed))
            section.targets.append(
                Target(f"the same, epoch 1, cold: cluster / alone", ">= 0.95 x",
                       f"{first.text()} x", first.median >= 0.95))
    section.tables.append(
        Table(
            f"{NODES} nodes with {READERS} readers each; memory of a node for a third of the data",
            f"{files.line()}. Each epoch has a new order, dealt out to all readers. The mount has"
            " no page cache; its latency is that of an operation, all nodes share its bandwidth."
            " The servers have room for all files. Before the next epoch the nodes finish sharing.",
            HEADER, rows))


def measure_one_order(bench: Bench, section: Section) -> None:
    files = bench.sets["110k"]
    plan = Plan(files, files.bytes * 5 // 4, LATENCY_US, BANDWIDTH_MB)
    with Network(NODES, room_for(files.bytes)) as network:
        found = run_rounds(bench, network, plan, 1, same_order, bench.rounds(5, 2))
    opens, times = found[POOL].most_opens(0), ratio(found, 0)
    section.data["one order, cold"] = data_of(found)
    section.targets += [
        Target(
            "all nodes read all files in one order, cold: opens at the origin, in the worst round",
            f"{files.count} + 1 %", str(opens), opens <= files.count * 1.01),
        Target("the same: cluster / alone", ">= 2 x", f"{times.text()} x", times.median >= 2)
    ]
    section.tables.append(
        Table(
            f"{NODES} nodes read the same files at once in the same order, cold",
            f"{files.line()}, each read once by each node; files/s are of all nodes. Node and"
            " servers have room for all files.",
            HEADER, rows_of(f"{LATENCY_US} us, {BANDWIDTH_MB} MB/s", found)))


def measure_half(bench: Bench, section: Section) -> None:
    """Measures servers with memory for half of the data, and nodes with hardly any memory."""
    files = bench.sets["110k"]
    plan = Plan(files, LITTLE_RAM, LATENCY_US)
    rows, worst = [], 1.0
    digests: set[int] = set()
    with Network(NODES, room_for(files.bytes, 0.5)) as network:
        with started(bench, network, plan, pool=True) as job:
            job.epoch(shares(files.count, NODES, READERS, "first"), digests)
            for number in range(bench.rounds(5, 3)):
                fits = wait_until_shared(network) / files.count
                epoch = job.epoch(shares(files.count, NODES, READERS, f"half {number}"), digests)
                share = 1 - epoch.opens / files.count
                worst = min(worst, share - fits)
                rows.append(
                    (str(number + 2), f"{fits:.1%}", f"{share:.1%}", str(epoch.counts["hits.ram"]),
                     str(epoch.counts["hits.cluster"]), str(epoch.opens)))
    check_digests(digests, "epochs with servers for half of the data")
    section.data["half"] = rows
    section.targets.append(
        Target("data 2 x the servers' memory: hits less the share that fits, in the worst epoch",
               ">= 0 %", f"{worst:+.1%}", worst >= 0))
    section.tables.append(
        Table(
            "Data twice the memory of the servers, and nodes with hardly any",
            f"{files.line()}. Fits: files that the servers have when the epoch begins. Hits: opens"
            " that asked the origin for nothing.",
            ("epoch", "fits", "hits", "hits: memory", "hits: servers", "opens at the origin"),
            rows))


@dataclass(frozen=True)
class Fault:
    """Causes a fault in the last node's server."""

    name: str
    strike: Callable[[Network], object]
    mend: Callable[[Network], object]


FAULTS = (Fault("killed", lambda network: network.servers[-1].kill(),
                lambda network: network.servers[-1].start()),
          Fault("stopped", lambda network: network.servers[-1].process.send_signal(signal.SIGSTOP),
                lambda network: network.servers[-1].process.send_signal(signal.SIGCONT)),
          Fault("unplugged", lambda network: network.set_cable(NODES - 1, "down"),
                lambda network: network.set_cable(NODES - 1, "up")),
         )


@dataclass
class Struck:
    """Epochs without and with the fault, one pair for each round."""

    whole: list[Epoch] = field(default_factory=list)
    struck: list[Epoch] = field(default_factory=list)

    def more_ms(self) -> Spread:
        """Returns the increase of the longest open."""
        return spread([
            struck.longest_ms - whole.longest_ms for whole, struck in zip(self.whole, self.struck)
        ])

    def lost(self) -> Spread:
        """Returns the additional time of long opens, as a share of the time of all readers."""
        readers = NODES * READERS
        return spread([
            max(0.0, struck.long_ms - whole.long_ms) / (1e3 * struck.seconds * readers)
            for whole, struck in zip(self.whole, self.struck)
        ])


def measure_faults(bench: Bench, section: Section) -> None:
    files = bench.sets["110k"]
    rows = []
    with Network(NODES, room_for(files.bytes)) as network:
        for fault in FAULTS:
            found = run_fault(bench, network, files, fault, bench.rounds(5, 2))
            more, lost = found.more_ms(), found.lost()
            section.data[fault.name] = {
                "whole": [vars(epoch) for epoch in found.whole],
                "struck": [vars(epoch) for epoch in found.struck]
            }
            section.targets += [
                Target(
                    f"a server is {fault.name}: by which the longest open of the epoch is longer",
                    f"<= {MOST_WAIT_MS:.0f} ms", f"{more.text(1)} ms", more.median <= MOST_WAIT_MS),
                Target("the same: time that readers lost in long opens", f"< {MOST_LOST:.0%}",
                       f"{lost.median:.2%}", lost.median < MOST_LOST)
            ]
            for name, epochs in (("none", found.whole), (fault.name, found.struck)):
                rows.append(
                    (name, spread([epoch.seconds for epoch in epochs]).text(),
                     spread([epoch.longest_ms for epoch in epochs]).text(1),
                     spread([epoch.long_ms for epoch in epochs]).text(0),
                     *(str(totals(epochs, count) // len(epochs))
                       for count in ("hits.cluster", "misses", "cluster.late", "cluster.trips"))))
    section.tables.append(
        Table(
            "A server fails in the midst of an epoch",
            f"{files.line()}; {NODES * READERS} readers, each of which sleeps {PAUSE_US // 1000}"
            " ms before a file; all files are in the servers, hardly any in the nodes. Each pair"
            " is an epoch without the fault and one with it, of the same processes. Long opens"
            " took 10 ms or more. No open failed, and all bytes were the same.",
            ("fault", "epoch, s", "longest open, ms", "long opens, ms in sum", "hits: servers",
             "misses", "late", "trips"), rows))


def run_fault(bench: Bench, network: Network, files: FileSet, fault: Fault, rounds: int) -> Struck:
    found = Struck()
    digests: set[int] = set()
    plan = Plan(files, LITTLE_RAM, LATENCY_US)
    for number in range(rounds):
        with started(bench, network, plan, pool=True) as job:
            fill(job, network, files, digests)
            whole = job.epoch(shares(files.count, NODES, READERS, f"whole {number}"), digests,
                              PAUSE_US)

            def strike() -> None:
                time.sleep(whole.seconds * FAULT_AT)
                fault.strike(network)

            try:
                struck = job.epoch(shares(files.count, NODES, READERS, f"struck {number}"), digests,
                                   PAUSE_US, strike)
            finally:
                fault.mend(network)
            found.whole.append(whole)
            found.struck.append(struck)
    check_digests(digests, f"a server {fault.name}")
    return found


def fill(job: Job, network: Network, files: FileSet, digests: set[int]) -> None:
    """Fills the servers by two epochs: a process that has found no records in a cold pool seldom
    asks the pool."""
    for number in range(2):
        job.epoch(shares(files.count, NODES, READERS, f"fill {number}"), digests, PAUSE_US // 20)
        wait_until_shared(network)


def measure_hit(bench: Bench, section: Section) -> None:
    files = bench.sets["4k"]
    plan = Plan(files, 64 * MIB, 0, readers=1)
    found: dict[str, list[int]] = {way: [] for way in WAYS}
    with Network(NODES, 64) as network:
        for number in range(3):
            for way in in_turn(WAYS, number):
                with started(bench, network, plan, WAYS[way]) as job:
                    found[way].append(job.steps())
    section.data["instructions of a hit"] = found
    alone, pool = min(found[ALONE]), min(found[POOL])
    section.targets.append(
        Target(
            "instructions of a hit in memory (open, fstat, read, close of 4 KiB): cluster less"
            " alone",
            "0", str(pool - alone), pool <= alone, f"{alone} alone, stepped one by one"))
