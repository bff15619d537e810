"""Runs a case natively on the slow mount, under the library on the slow mount, and natively on the
local disk, in turn."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness.contest import Contender, in_turn
from bench.harness.errors import BenchError
from bench.harness.load import tree_seconds
from bench.harness.mount import SlowMount, count_data_operations
from bench.harness.shim import child_environment, exit_report
from bench.harness.suite import LATENCY_US
from plan import CASES, Case
from installed import python_of

EPOCHS = 3
SECONDS = 900
PAST_S = 3600
NATIVE, SHIM, LOCAL = WAYS = ("native", "shim", "local")


@dataclass
class Run:
    """The epochs of one process."""

    checksums: list[str] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # seconds of the process and all its descendants
    operations: list[int] = field(default_factory=list)  # on data files, waiting for the origin
    bytes: list[int] = field(default_factory=list)
    report: dict = field(default_factory=dict)


@dataclass
class Found:
    case: Case
    versions: list[str]
    runs: dict[str, list[Run]] = field(default_factory=lambda: {way: [] for way in WAYS})
    error: str = ""

    def equal(self) -> bool:
        """Returns True if every epoch of every run has read the same bytes, and at least one."""
        seen = {(run.checksums[i], run.samples[i])
                for runs in self.runs.values()
                for run in runs
                for i in range(EPOCHS)}
        return len(seen) == 1 and next(iter(seen))[1] > 0

    def per_s(self, way: str, epoch: int) -> float:
        return statistics.median(run.per_s[epoch] for run in self.runs[way])

    def ratios(self, other: str) -> list[float]:
        """Returns the library's speed relative to another way in the epochs after the first. Each
        epoch is compared with the other way's epoch that ran next to it."""
        return [
            shim.per_s[i] / run.per_s[i]
            for shim, run in zip(self.runs[SHIM], self.runs[other])
            for i in range(1, EPOCHS)
        ]

    def cpu_ratio(self) -> float:
        """Like ratios(), but returns the CPU seconds on the local disk divided by those under the
        library. These depend less on other work of the machine."""
        return statistics.median(local.cpu[i] / max(shim.cpu[i], 0.01)
                                 for shim, local in zip(self.runs[SHIM], self.runs[LOCAL])
                                 for i in range(1, EPOCHS))

    def middle(self, way: str, what: str, epoch: int) -> int:
        return int(statistics.median(getattr(run, what)[epoch] for run in self.runs[way]))


@dataclass(frozen=True)
class Tools:
    library: Path
    command: Path
    lagfs: Path
    work: Path
    nice: int


def job_command(tools: Tools, case: Case, venv: Path, scratch: Path, words: list[str | Path],
                wrap: list[str | Path]) -> list[str | Path]:
    """Returns the command of a run. TMPDIR and the caches of the frameworks are on the local disk,
    and are new for each run."""
    settings = {
        "PYTHONPATH": CASES, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": scratch, "HOME": scratch,
        "HF_HOME": scratch / "hf", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "2",
        "RAY_USAGE_STATS_ENABLED": "0", "TORCH_EXTENSIONS_DIR": tools.work / "extensions",
        "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"
    }
    return [
        "timeout", "--kill-after=10", SECONDS, "nice", "-n", tools.nice, "env",
        *(f"{k}={v}" for k, v in settings.items()), *wrap,
        python_of(venv), *case.launch, CASES / "job.py", case.name, *words
    ]


def make_data(tools: Tools, case: Case, venv: Path, pictures: Path) -> Path:
    """Makes the data, if they do not exist. The files are made an hour old, because the library
    revalidates new files more often."""
    if not case.makes and not case.data:
        return pictures
    data = tools.work / "data" / (case.data or case.name)
    if data.exists():
        return data
    partial = data.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="make-", dir=tools.work) as scratch:
        plain = Case(case.data or case.name, case.title, case.venv, case.packages)
        done = subprocess.run(
            list(
                map(str,
                    job_command(tools, plain, venv, Path(scratch), ["make", pictures, partial],
                                []))), env=child_environment(None), stdout=subprocess.DEVNULL)
    if done.returncode:
        raise BenchError(f"{case.name}: the data could not be made (status {done.returncode})")
    age(partial)
    return partial.rename(data)


def age(directory: Path) -> None:
    past = time.time() - PAST_S
    for root, _, names in os.walk(directory, topdown=False):
        for path in (*(Path(root, name) for name in names), Path(root)):
            os.utime(path, (past, past))
    os.sync()


class Reading:
    """One process that reads, and the mount from which it reads."""
    def __init__(self, tools: Tools, case: Case, venv: Path, data: Path, way: str,
                 stack: ExitStack):
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=tools.work)))
        self.found = Run()
        self._stats = scratch / "stats.json" if way == SHIM else None
        self._mount = None if way == LOCAL else stack.enter_context(
            SlowMount(tools.lagfs, data, tools.work, LATENCY_US))
        at = self._mount.path if self._mount else data
        wrap = [
            tools.command, "run", "--library", tools.library, "-p", at, "--name",
            f"ecosystem-{os.getpid()}", "--stats", self._stats, "--stats-format", "json"
        ] if self._stats else []
        if self._mount:
            self._mount.reset()
        self._job = stack.enter_context(
            Contender(f"{case.name}, {way}",
                      job_command(tools, case, venv, scratch, ["read", at], wrap)))
        self._cpu, self._operations, self._bytes = 0.0, 0, 0
        self._job.wait_until_ready()

    def epoch(self) -> None:
        """Measures an epoch. The first epoch counts operations and bytes from the start of the
        process, and time from the first read."""
        before = tree_seconds(self._job.pid)
        line = self._job.run()
        self.found.cpu.append(tree_seconds(self._job.pid) - before)
        self.found.checksums.append(line["checksum"])
        self.found.samples.append(line["samples"])
        self.found.per_s.append(line["samples"] / (line["wall_ns"] / 1e9))
        if self._mount:
            counters = self._mount.counters()
            operations, size = count_data_operations(counters), counters["read"]["bytes"]
            self.found.operations.append(operations - self._operations)
            self.found.bytes.append(size - self._bytes)
            self._operations, self._bytes = operations, size

    def finish(self) -> Run:
        self._job.finish()
        if self._stats:
            self.found.report = exit_report(self._stats)
        return self.found


def measure(tools: Tools, case: Case, venv: Path, found: Found, pictures: Path,
            rounds: int) -> None:
    """The three processes of a round exist at the same time and take turns to read an epoch, so
    that other work on the machine affects all of them alike."""
    data = make_data(tools, case, venv, pictures)
    for number in range(rounds):
        with ExitStack() as stack:
            readings = {
                way: Reading(tools, case, venv, data, way, stack) for way in in_turn(WAYS, number)
            }
            for epoch in range(EPOCHS):
                for way in in_turn(WAYS, number + epoch):
                    readings[way].epoch()
            for way in WAYS:
                found.runs[way].append(readings[way].finish())
