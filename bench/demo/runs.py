"""Makes one run of train.py for the demo: starts the child in its environment, and reads the
counters after each epoch and cubeshim's report.

LD_PRELOAD is set only for the child: the demo itself always reads the plain mount.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.demo.report import Row
from bench.harness.errors import BenchError
from bench.harness.load import Load
from bench.harness.mount import SlowMount
from bench.harness.shim import Shim, exit_report
from bench.jobs.training import epochs_of, run_epochs, train_command

# The pause between two epochs, in which the counters are read. train.py does not count it as time
# of an epoch.
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class RowPlan:
    """A row of the comparison, before it is measured."""

    key: str
    name: str
    data: Path
    workers: int
    loader: str
    epochs: int
    per_class: int = 0


def environment_of(shim: Shim | None) -> dict[str, str]:
    """Returns the user's own environment, so that the job runs as usual, with the library and the
    package in front."""
    added = shim.environment() if shim else {}
    joined = {
        name: ":".join(filter(None, [added[name], os.environ.get(name)]))
        for name in ("PYTHONPATH", "LD_PRELOAD")
        if name in added
    }
    return {**os.environ, **added, **joined}


def run_row(plan: RowPlan, work: Path, shim: Shim | None, mount: SlowMount | None) -> Row:
    """Runs train.py, and reads the counter of `mount` after each epoch."""
    result = work / f"{plan.key}-{plan.loader}-{os.getpid()}.json"
    command = train_command(plan.data, result, plan.loader, plan.epochs, plan.workers,
                            plan.per_class, PAUSE_SECONDS, steps=True)
    print(f"{plan.loader}, {plan.name}", flush=True)
    counts = [mount.data_operations()] if mount else []
    load = Load(mount.cpu_seconds if mount else None)

    def on_epoch(line: str) -> None:
        if mount:
            counts.append(mount.data_operations())
        print("   ", line, end="", flush=True)

    if status := run_epochs(command, environment_of(shim), on_epoch):
        raise BenchError(f"train.py ended with {status} in row \"{plan.name}\" ({plan.loader})")
    return Row(plan.key, plan.name, plan.loader, plan.workers, epochs_of(result),
               [after - before for before, after in zip(counts, counts[1:])] if mount else None,
               hit_rate_of(shim.stats) if shim else None, load.share_of_others())


def hit_rate_of(stats: Path) -> float:
    """Returns the share of opens that the cache answered, from cubeshim's exit report."""
    try:
        return float(exit_report(stats)["hit_rate"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise BenchError(
            f"cubeshim left no report with a hit rate in {stats} ({type(error).__name__}: {error}),"
            " so the run was not proved to have used it") from None
