"""One run of train.py for the demo: the child and its environment, the counters at each epoch, cubeshim's report.

LD_PRELOAD is set for the child alone: the demo itself always reads the plain mount.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.demo.report import Row
from bench.harness.load import Load
from bench.harness.mount import DemoError, SlowMount, end

TRAIN = Path(__file__).resolve().parents[1] / "jobs" / "train.py"
PACKAGE = Path(__file__).resolve().parents[2] / "prefetch" / "python"
EPOCH_LINE = re.compile(r"epoch (\d+) ")
# Long enough for the counters to be read between two epochs; train.py does not time it.
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Job:
    """One row to be measured."""

    key: str
    name: str
    data: Path
    workers: int
    loader: str
    epochs: int
    per_class: int = 0


@dataclass(frozen=True)
class Shim:
    library: Path
    prefix: Path
    stats: Path
    name: str

    def environment(self) -> dict[str, str]:
        """As `cubeshim run` makes it: the job's data loader tells what it will read, and the job itself is as it was."""
        python = [str(PACKAGE / "site"), str(PACKAGE), os.environ.get("PYTHONPATH")]
        return {"PYTHONPATH": ":".join(filter(None, python)),
                "LD_PRELOAD": ":".join(filter(None, [str(self.library), os.environ.get("LD_PRELOAD")])),
                "CUBESHIM_PREFIXES": str(self.prefix), "CUBESHIM_NAME": self.name,
                "CUBESHIM_STATS": str(self.stats), "CUBESHIM_STATS_FORMAT": "json"}


def run_job(job: Job, work: Path, shim: Shim | None, mount: SlowMount | None) -> Row:
    """Runs train.py; the counter of `mount` is read after each epoch."""
    result = work / f"{job.key}-{job.loader}-{os.getpid()}.json"
    command = [sys.executable, TRAIN, "--data", job.data, "--epochs", str(job.epochs), "--workers", str(job.workers),
               "--loader", job.loader, "--per-class", str(job.per_class), "--pause", str(PAUSE_SECONDS), "--json", result]
    environment = {**os.environ, **(shim.environment() if shim else {}),
                   "PYTHONWARNINGS": "ignore:This DataLoader will create"}
    print(f"{job.loader}, {job.name}", flush=True)
    counts = [mount.data_operations()] if mount else []
    load = Load(mount.cpu_seconds if mount else None)
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as child:
        try:
            for line in child.stdout:
                if EPOCH_LINE.match(line):
                    if mount:
                        counts.append(mount.data_operations())
                    print("   ", line, end="", flush=True)
            status = child.wait()
        except BaseException:
            end(child, first_wait=0.0)
            raise
    if status:
        raise DemoError(f"train.py ended with {status} in row \"{job.name}\" ({job.loader})")
    try:
        return Row(job.key, job.name, job.loader, job.workers, json.loads(result.read_text())["epochs"],
                   [after - before for before, after in zip(counts, counts[1:])] if mount else None,
                   hit_rate_of(shim.stats) if shim else None, load.share_of_others())
    finally:
        result.unlink(missing_ok=True)


def hit_rate_of(stats: Path) -> float:
    """The share of opens that the cache answered, from cubeshim's exit report (the last one, if there are more)."""
    try:
        text = stats.read_text().strip()
        try:
            report = json.loads(text)
        except ValueError:
            report = json.loads(text.splitlines()[-1])
        return float(report["hit_rate"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise DemoError(f"cubeshim left no report with a hit rate in {stats} ({type(error).__name__}: {error}),"
                        " so the run was not proved to have used it") from None
    finally:
        stats.unlink(missing_ok=True)
