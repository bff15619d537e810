"""A control group with a memory limit for children of a benchmark. The limit covers page cache,
/dev/shm and the processes' own memory together."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.harness.errors import BenchError

ROOT = Path("/sys/fs/cgroup")
PATIENCE_S = 10
# File names by version; the key is True for version 1, whose files are in the controller's folder.
# Each row names the file of the limit, the file of the maximum use, and the line of memory.stat
# with the processes' own memory.
NAMES = {
    True: ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "total_rss"),
    False: ("memory.max", "memory.peak", "anon")
}


def own_group() -> tuple[Path, bool]:
    """Returns the folder in which a group can be made, and whether the group is of version 1."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            # In a container, this can be the path that the host sees. The mounted group is then our
            # own group.
            own = ROOT / "memory" / path.lstrip("/")
            return (own if own.is_dir() else ROOT / "memory"), True
    for number, _, path in lines:
        if number == "0" and (ROOT / "cgroup.controllers").exists():
            own = ROOT / path.lstrip("/")
            # Except for the root, a group cannot contain both processes and groups.
            return (own.parent if own != ROOT else ROOT), False
    raise BenchError("this machine has no control group for memory")


class MemoryGroup:
    def __init__(self, limit: int = 0):
        parent, self._is_first = own_group()
        self.path = parent / f"cubeshim-bench-{os.getpid()}-{time.monotonic_ns()}"
        limit_name, self._most, self._own = NAMES[self._is_first]
        try:
            self.path.mkdir()
            if limit:
                (self.path / limit_name).write_text(str(limit))
        except OSError as error:
            raise BenchError(
                f"cannot make a control group for memory (root is needed): {error}") from error

    def __enter__(self) -> MemoryGroup:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        # Memory that the processes leave behind is charged to the parent. The group can be removed
        # only after all of them have ended.
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.path.rmdir()
            except OSError:
                if kind is not None:
                    # Only the earlier error is reported.
                    return
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def enter(self) -> None:
        """Moves the calling process into the group. Call it in a child, before exec."""
        (self.path / "cgroup.procs").write_text("0")

    def most_bytes(self) -> int:
        """Returns the maximum memory use, including page cache and shared memory."""
        return int((self.path / self._most).read_text())

    def own_bytes(self) -> int:
        """Returns the memory that the processes have allocated, without page cache and shared
        memory."""
        rows = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(rows[self._own])
