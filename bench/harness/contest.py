"""Contests: the same work is done in several ways, which are timed alternately (A B A B ...), pass
by pass, so that other work on the machine affects all ways alike.

A contender is a process that reads a set, waits for a line on its stdin before each pass and prints
one JSON object for each pass: cubeshim_bench --gated, and bench/jobs/loaders.py. It reports the
digest of the bytes that it read; all digests must agree."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.harness.errors import BenchError
from bench.harness.mount import end
from bench.harness.shim import Shim, child_environment

Item = TypeVar("Item")


@dataclass
class Passes:
    """The timed passes of one contender."""

    name: str
    files: int = 0  # the number read in one pass by all processes together
    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)

    def us(self, cpu: bool = False) -> list[float]:
        """Returns the microseconds per file of each pass."""
        return [ns / 1e3 / self.files for ns in (self.cpu_ns if cpu else self.wall_ns)]

    def files_per_s(self) -> list[float]:
        return [1e6 / us for us in self.us()]

    def figures(self) -> dict[str, list[float]]:
        """The figures for bench.json."""
        return {"cpu_us": self.us(True), "wall_us": self.us()}


class Contender:
    """A child that makes one pass at each call."""
    def __init__(self, name: str, command: Sequence[str | Path], shim: Shim | None = None,
                 processes: int = 1, loops: int = 1):
        self.passes = Passes(name)
        self.digest = ""
        self._child = subprocess.Popen([*map(str, command)], env=child_environment(shim),
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes, self._loops = processes, loops
        self._ready = False

    @property
    def pid(self) -> int:
        return self._child.pid

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        # After an error, reports this error and not the child's exit status.
        if kind is None:
            self.finish()
        else:
            end(self._child, first_wait=0.0)

    def wait_until_ready(self) -> None:
        if self._ready:
            return
        first = self._line()
        self.digest = first["digest"]
        self.passes.files = first["files"] * self._processes * self._loops
        self._ready = True

    def run(self) -> dict:
        """Runs one pass. Returns everything that the child reports about it."""
        self.wait_until_ready()
        # _line() reports a child that has ended.
        with suppress(BrokenPipeError):
            self._child.stdin.write("go\n")
            self._child.stdin.flush()
        line = self._line()
        self.passes.wall_ns.append(line["wall_ns"])
        self.passes.cpu_ns.append(line["cpu_ns"])
        return line

    def finish(self) -> None:
        if self._child.stdin.closed:
            return
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        for text in self._child.stdout:
            self.digest = json.loads(text).get("digest") or self.digest
        if self._child.wait():
            raise BenchError(
                f"{self.passes.name}: the reading process ended with {self._child.returncode}")

    def _line(self) -> dict:
        text = self._child.stdout.readline()
        if not text:
            raise BenchError(
                f"{self.passes.name}: the reading process ended with {self._child.wait()}")
        return json.loads(text)


def in_turn(items: Iterable[Item], number: int) -> list[Item]:
    """Returns the items in the order for round `number`. Each round begins with another item."""
    found = list(items)
    first = number % len(found)
    return [*found[first:], *found[:first]]


def alternate(contenders: Sequence[Contender], rounds: int) -> dict[str, Passes]:
    """Runs `rounds` passes of each contender, alternately. Each round starts with another
    contender."""
    for contender in contenders:
        contender.wait_until_ready()
    for number in range(rounds):
        for contender in in_turn(contenders, number):
            contender.run()
    for contender in contenders:
        contender.finish()
    digests = {contender.digest for contender in contenders}
    if len(digests) != 1:
        raise BenchError("not the same bytes: " +
                         ", ".join(f"{c.passes.name} {c.digest}" for c in contenders))
    return {contender.passes.name: contender.passes for contender in contenders}


def alternate_cold(make: Sequence[Callable[[], Contender]], rounds: int) -> dict[str, Passes]:
    """Like alternate(), but starts new processes for each round, for contenders of which only the
    first pass counts."""
    sums: dict[str, Passes] = {}
    digests = set()
    for number in range(rounds):
        for start in in_turn(make, number):
            with start() as contender:
                contender.run()
                contender.finish()
            digests.add(contender.digest)
            passes = sums.setdefault(contender.passes.name,
                                     Passes(contender.passes.name, contender.passes.files))
            passes.wall_ns += contender.passes.wall_ns
            passes.cpu_ns += contender.passes.cpu_ns
    if len(digests) != 1:
        raise BenchError(f"not the same bytes in {', '.join(sums)}")
    return sums


@dataclass(frozen=True)
class Spread:
    median: float
    low: float  # quartiles
    high: float

    def text(self, digits: int = 2) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def figures(found: dict[str, Passes]) -> dict[str, dict[str, list[float]]]:
    return {name: passes.figures() for name, passes in found.items()}


def ratios(slow: Passes, fast: Passes, cpu: bool = False) -> Spread:
    """Returns how many times faster `fast` is in each round."""
    return spread([a / b for a, b in zip(slow.us(cpu), fast.us(cpu))])
