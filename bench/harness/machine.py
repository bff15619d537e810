"""Describes the machine on which the benchmarks run."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness.mount import file_system_of


def cpu_name() -> str:
    return next((line.partition(":")[2].strip()
                 for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")), platform.machine())


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    date: str
    command: str
    file_system: str

    def line(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gb:.0f} GB; Linux {self.kernel};"
            f" data on {self.file_system}; {self.date}")


def describe_machine(command: str, data: Path) -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Machine(cpu_name(),
                   os.cpu_count() or 1, memory, platform.release(), time.strftime("%Y-%m-%d"),
                   command, file_system_of(data))
