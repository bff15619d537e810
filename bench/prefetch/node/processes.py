"""The jobs of the suite `node`: processes that share a cache and are controlled step by step, and
the files that they read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.data.sets import data_files, write_list
from bench.harness.errors import BenchError
from bench.harness.mount import SlowMount
from bench.harness.shim import PACKAGE, Shim, child_environment
from bench.harness.suite import Bench

JOBS = Path(__file__).resolve().with_name("jobs.py")
PATIENCE_S = 60.0
# The sets of the plan and the mix have fewer than 20,000 files, because each file costs the mount
# an fd.
PLAN = ("64k", "110k", "256k")


class Job:
    """A job of bench/prefetch/node/jobs.py, under the library."""
    def __init__(self, shim: Shim, *words: object, rank: int = 0, world: int = 1):
        environment = child_environment(shim) | {
            "PYTHONPATH": str(PACKAGE), "RANK": str(rank), "WORLD_SIZE": str(world)
        }
        self._child = subprocess.Popen([sys.executable, str(JOBS), *map(str, words)],
                                       env=environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        self.pid = self._child.pid

    def answer(self) -> dict:
        text = self._child.stdout.readline()
        if not text:
            raise BenchError(f"a job of the sidecar's suite ended with {self._child.wait()}")
        return json.loads(text)

    def go_on(self) -> None:
        self._child.stdin.write("\n")
        self._child.stdin.flush()

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        self.close()

    def end(self) -> None:
        self._child.stdin.close()
        if self._child.wait():
            raise BenchError(f"a job of the sidecar's suite ended with {self._child.returncode}")
        self.close()

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            pipe.close()


@contextmanager
def jobs(*made: Job) -> Iterator[tuple[Job, ...]]:
    try:
        yield made
    finally:
        for job in made:
            job.close()


def wait_until(condition: Callable[[], object], what: str, nap_s: float = 0.005) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"after {PATIENCE_S:.0f} s: not {what}")
        time.sleep(nap_s)


def counts(bench: Bench, shim: Shim, what: str = "fetched") -> int:
    """Returns the sum of a prefetch counter over the jobs of a cache."""
    return sum(report["prefetch"][what] for report in bench.reports(shim))


def on_mount(bench: Bench, mount: SlowMount, names: tuple[str, ...]) -> list[str]:
    """Returns the files of these sets as paths below a mount of all sets. The listing comes from
    the local disk. Loads the files' pages, so that only the latency determines the speed of the
    origin, not the disk below it."""
    files = [file for name in names for file in data_files(bench.sets[name].path)]
    for file in files:
        file.read_bytes()
    return [str(mount.path / file.relative_to(bench.data)) for file in files]


def plan_of(bench: Bench, mount: SlowMount) -> list[str]:
    return on_mount(bench, mount, PLAN)


def planned(bench: Bench, plan: list[str], **more: str) -> dict[str, str]:
    """Returns the environment of a job whose library prefetches this list."""
    return {"CUBESHIM_PREFETCH_LIST": str(write_list(bench.work / "plan", plan)), **more}
