"""Measures how much of the machine other programs used while a row ran.

On a machine with few cores, a compiler in another window changes every figure of the demo. So each
row also reports the share of all cores that other programs used, and the report marks the affected
rows."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# The columns of /proc/stat for busy time, each counted once: user nice system irq softirq steal.
BUSY = (0, 1, 2, 5, 6, 7)


def machine_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Returns the CPU seconds of all cores since the machine was started."""
    columns = stat.read_text().split("\n", 1)[0].split()[1:]
    return sum(int(columns[i]) for i in BUSY if i < len(columns)) / TICKS


def process_seconds(pid: int) -> float:
    """Returns the CPU seconds of a running process, or 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def tree_seconds(pid: int) -> float:
    """Returns the CPU seconds of a running process, of its descendants, and of the children that
    these have waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS + sum(map(tree_seconds, children))


def own_seconds() -> float:
    """Returns the CPU seconds of this process and of all its descendants that have ended and were
    waited for."""
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Load:
    """Measures from its construction to `share_of_others()`. `helper` returns the CPU seconds of a
    process that runs at the same time (lagfs)."""
    def __init__(self, helper: Callable[[], float] | None = None):
        self._helper = helper or (lambda: 0.0)
        self._before = self._now()

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), machine_seconds() - own_seconds() - self._helper()

    def share_of_others(self) -> float:
        (start, before), (end, after) = self._before, self._now()
        return min(1.0, max(0.0, (after - before) / max(1e-3,
                                                        (end - start) * (os.cpu_count() or 1))))
