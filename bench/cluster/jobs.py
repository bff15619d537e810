"""A job on all nodes of a cluster. It runs epochs in given orders, and measures their time, their
requests to the origin, and the source of their bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster.nodes import Network, Readers, wait_until
from bench.data.sets import FileSet, data_files, write_list
from bench.harness.errors import BenchError
from bench.harness.mount import SlowMount
from bench.harness.shim import Shim
from bench.harness.suite import Bench

READERS = 4  # on each node
SETTLED_LOOKS = 25  # consecutive checks, 20 ms apart, that must find the servers' records unchanged
SETTLE_SECONDS = 60.0
KEPT = ("hits.ram", "hits.cluster", "misses", "cluster.late", "cluster.trips", "cluster.waits",
        "cluster.skipped", "cluster.offered", "cluster.refused")


@dataclass(frozen=True)
class Plan:
    """One kind of job, with the servers or alone."""

    files: FileSet
    ram: int  # bytes of each node
    latency_us: int
    bandwidth_mb: int = 0
    readers: int = READERS
    settings: tuple[tuple[str, str], ...] = ()  # additional environment


@dataclass
class Epoch:
    files: int
    seconds: float  # from the start of the first reader to the end of the last
    opens: int  # at the origin
    longest_ms: float  # of all opens
    long_ms: float  # the total time of the opens that took 10 ms or more
    counts: dict[str, int] = field(default_factory=dict)  # the library's counters named in KEPT

    @property
    def files_per_s(self) -> float:
        return self.files / self.seconds


Orders = list[list[list[int]]]  # the numbers of the files of each reader of each node


def shares(files: int, nodes: int, readers: int, seed: str) -> Orders:
    """Distributes an order of all files over all readers of all nodes, like a distributed
    sampler."""
    order = list(range(files))
    random.Random(seed).shuffle(order)
    return [[order[node * readers + reader::nodes * readers]
             for reader in range(readers)]
            for node in range(nodes)]


def same_order(files: int, nodes: int, readers: int, seed: str) -> Orders:
    """Returns orders in which each node reads all files in the same order."""
    return shares(files, 1, readers, seed) * nodes


class Job:
    """`with Job(...) as job:` starts readers on each node of the network, with new caches. `pool`
    tells whether they use the servers."""
    def __init__(self, bench: Bench, network: Network, mount: SlowMount, plan: Plan, pool: bool):
        self._bench, self._network, self.mount = bench, network, mount
        self._plan, self._pool = plan, pool
        self._nodes: list[Readers] = []
        self._counts: dict[str, int] = dict.fromkeys(KEPT, 0)

    def __enter__(self) -> Job:
        listed = list_of(self._bench, self._plan.files, self.mount.path)
        more = {"CUBESHIM_CLUSTER": self._network.pool(), "CUBESHIM_CLUSTER_JOB": "bench"}
        if not self._pool:
            # Sets variables with names of the same length, so that both kinds of job have the same
            # stack layout: the cost of a copy depends on it.
            more = {name.replace("CUBESHIM", "NO_SHIM_"): value for name, value in more.items()}
        more |= dict(self._plan.settings)
        try:
            for node in self._network.nodes:
                shim = self._bench.shim(self.mount.path, str(self._plan.ram), more=more)
                self._nodes.append(
                    Readers(self._bench.build / "cubeshim_node_reader", listed, node,
                            self._plan.readers, shim))
            for node in self._nodes:
                node.wait_until_ready()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            for node in self._nodes:
                node.finish()
        else:
            self._kill()

    def _kill(self) -> None:
        for node in self._nodes:
            node.kill()

    def epoch(self, orders: Orders, digests: set[int], pause_us: int = 0,
              meanwhile: Callable[[], object] = lambda: None) -> Epoch:
        """Runs one epoch. Adds the digest of the bytes of the whole epoch to `digests`. Calls
        `meanwhile` while the readers read."""
        self.mount.reset()
        for node, order in zip(self._nodes, orders):
            node.send([" ".join(["read", str(pause_us), *map(str, files)]) for files in order])
        meanwhile()
        said = [one for node in self._nodes for one in node.hear()]
        digests.add(sum(one["digest"] for one in said) % (1 << 64))
        seconds = (max(one["end_ns"] for one in said) - min(one["begin_ns"] for one in said)) / 1e9
        return Epoch(sum(one["files"] for one in said), seconds, self.mount.on_data("open"),
                     max(one["longest_ns"] for one in said) / 1e6,
                     sum(sum(one["long_opens_ns"]) for one in said) / 1e6, self._new_counts())

    def steps(self) -> int:
        """Returns the number of instructions of a memory hit on the first node."""
        first = self._nodes[0]
        first.send(["steps 0"])
        return first.hear_one()["steps"]

    def _new_counts(self) -> dict[str, int]:
        total = dict.fromkeys(KEPT, 0)
        for node in self._nodes:
            for report in self._bench.reports(node.shim):
                for name in KEPT:
                    total[name] += value_of(report, name)
        found = {name: total[name] - self._counts[name] for name in KEPT}
        self._counts = total
        return found


def value_of(report: dict, name: str) -> int:
    for part in name.split("."):
        report = report.get(part, {})
    return report or 0


def list_of(bench: Bench, files: FileSet, at: Path) -> Path:
    return write_list(bench.work / "cluster-files",
                      [at / file.relative_to(files.path) for file in data_files(files.path)])


def wait_until_shared(network: Network) -> int:
    """Waits until no more records arrive, and returns how many the servers have."""
    found: list[int] = []

    def is_settled() -> bool:
        found.append(network.items())
        return len(found) >= SETTLED_LOOKS and len(set(found[-SETTLED_LOOKS:])) == 1

    wait_until(is_settled, "what the nodes share comes to its end", SETTLE_SECONDS)
    return found[-1]


@contextmanager
def started(bench: Bench, network: Network, plan: Plan, pool: bool,
            keeps_pool: bool = False) -> Iterator[Job]:
    """Starts a job with a new mount, new caches and empty servers."""
    if pool and not keeps_pool:
        network.empty()
    with ExitStack() as stack:
        mount = stack.enter_context(
            SlowMount(bench.lagfs, plan.files.path, bench.work, plan.latency_us, direct=True,
                      bandwidth_mb=plan.bandwidth_mb, at=bench.work / "mount"))
        yield stack.enter_context(Job(bench, network, mount, plan, pool))


def check_digests(digests: set[int], what: str) -> None:
    if len(digests) != 1:
        raise BenchError(f"{what}: not the same bytes")


def totals(epochs: Sequence[Epoch], name: str) -> int:
    return sum(epoch.counts[name] for epoch in epochs)
