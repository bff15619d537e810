"""The context of each suite of `make bench`: paths, time limits, and functions that start
contenders."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.data.sets import FileSet
from bench.harness.contest import Contender
from bench.harness.mount import SlowMount
from bench.harness.shim import Shim, child_environment

LOADERS = Path(__file__).resolve().parents[1] / "jobs" / "loaders.py"
MANY_PASSES = 10_000
LATENCY_US = 300  # of the slow mount, if a suite sets no other value
FULL_RAM = "8M"  # the smallest region; the filler is larger


@dataclass
class Bench:
    build: Path
    work: Path
    quick: bool
    sets: dict[str, FileSet] = field(default_factory=dict)
    _numbers: itertools.count = field(default_factory=itertools.count)

    @property
    def library(self) -> Path:
        return self.build / "libcubeshim.so"

    @property
    def program(self) -> Path:
        return self.build / "cubeshim_bench"

    @property
    def lagfs(self) -> Path:
        return self.build / "lagfs"

    @property
    def data(self) -> Path:
        return self.work / "data"

    @property
    def command(self) -> Path:
        return self.build / "cubeshim"

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def shim(self, prefix: Path | None = None, ram: str = "1500M", stats: Path | None = None,
             more: dict[str, str] | None = None) -> Shim:
        """Returns a shim with its own, empty cache."""
        return Shim(self.library, prefix or self.data, f"bench-{os.getpid()}-{next(self._numbers)}",
                    ram, stats, more=tuple((more or {}).items()))

    def mount(self, source: Path, latency_us: int = LATENCY_US, direct: bool = False,
              at: Path | None = None) -> SlowMount:
        return SlowMount(self.lagfs, source, self.work, latency_us, direct, at=at)

    def reports(self, shim: Shim) -> list[dict]:
        """Returns the reports of `cubeshim stats` for the jobs that use a cache; empty if no job
        uses it."""
        done = subprocess.run([self.command, "stats", "--json", "--name", shim.name],
                              env=child_environment(None), capture_output=True, text=True)
        found = json.loads(
            done.stdout.splitlines()[-1])["jobs"] if done.returncode == 0 and done.stdout else []
        return [job["report"] for job in found]

    def reader(self, name: str, data: Path, shim: Shim | None = None, reader: str = "posix",
               processes: int = 1, loops: int = 1, limit: int = 0,
               options: tuple[str | Path, ...] = (), names: Path | None = None) -> Contender:
        """Returns cubeshim_bench as a contender. `names` has the same files as `data` and is listed
        instead of `data`."""
        command = [
            self.program, "--gated", "--set", data, "--reader", reader, "--processes", processes,
            "--loops", loops, "--limit", limit, "--passes", MANY_PASSES, "--names", names or data,
            *options
        ]
        return Contender(name, command, shim, processes, loops)

    def loader(self, name: str, data: Path, loader: str, shim: Shim | None = None, limit: int = 0,
               names: Path | None = None) -> Contender:
        """Returns a Python loader as a contender."""
        return Contender(name, [
            sys.executable, LOADERS, "--set", data, "--names", names or data, "--loader", loader,
            "--limit", limit
        ], shim)

    def full(self, name: str, data: Path, limit: int = 0) -> Contender:
        """Returns a contender with the shim, whose region is full of other files, so that every
        open is passed to the mount."""
        return self.reader(name, data, self.shim(ram=FULL_RAM), limit=limit,
                           options=("--filler", self.sets["filler"].path))
