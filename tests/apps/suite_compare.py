"""Compares the runs of a module. A test that passes natively can pass in a column, be lost, or be
flaky."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from suite_run import NATIVE, Column, Outcome

ATTEMPTS = 3
# Runs a module once: its name, the column, the number of the attempt.
RunOnce = Callable[[str, Column, int], Outcome]


@dataclass(frozen=True)
class Waverer:
    """A test that passed natively but not in a column's first run. Counts how many attempts passed
    natively and in the column."""

    test: str
    column: str
    native_passes: int
    column_passes: int
    attempts: int

    @property
    def lost(self) -> bool:
        """Returns True if the test never passed in the column and always passed natively. Other
        tests are flaky, and are reported with both figures."""
        return self.column_passes == 0 and self.native_passes == self.attempts

    def __str__(self) -> str:
        word = "lost" if self.lost else "flaky"
        return (f"{word}: {self.test}: native passed {self.native_passes} of {self.attempts}, "
                f"{self.column} {self.column_passes} of {self.attempts}")


@dataclass
class Verdict:
    """A module's row of the table."""

    module: str
    native: Outcome
    columns: dict[str, Outcome] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    waverers: list[Waverer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # the library's lines on stderr

    @property
    def lost(self) -> list[Waverer]:
        return [waverer for waverer in self.waverers if waverer.lost]


def judge(run_once: RunOnce, module: str, columns: tuple[Column, ...]) -> Verdict:
    native = run_once(module, NATIVE, 1)
    verdict = Verdict(module, native)
    if native.broken:
        verdict.problems.append(f"{module}: natively {native.broken}")
        return verdict
    natives = [native]
    for column in columns:
        _judge_column(run_once, verdict, column, natives)
    return verdict


def _judge_column(run_once: RunOnce, verdict: Verdict, column: Column,
                  natives: list[Outcome]) -> None:
    module, wanted = verdict.module, natives[0].passed
    outcomes = [run_once(module, column, 1)]
    missing = wanted - outcomes[0].passed
    never = Counter(missing)
    while never and len(outcomes) < ATTEMPTS:
        outcomes.append(run_once(module, column, len(outcomes) + 1))
        never &= wanted - outcomes[-1].passed
    while missing and len(natives) < len(outcomes):
        natives.append(run_once(module, NATIVE, len(natives) + 1))
    for test in missing:
        passes = [
            sum(outcome.passed[test] >= wanted[test]
                for outcome in runs[:len(outcomes)])
            for runs in (natives, outcomes)
        ]
        verdict.waverers.append(Waverer(test, column.name, *passes, len(outcomes)))
    verdict.columns[column.name] = outcomes[0]
    verdict.kept[column.name] = wanted.total() - never.total()
    for outcome in outcomes:
        if outcome.broken:
            verdict.problems.append(f"{module}, {column.name}: {outcome.broken}")
        if not column.serves and outcome.opens:
            verdict.problems.append(
                f"{module}, {column.name}: {outcome.opens} opens were counted though nothing is "
                "served"
            )
        verdict.remarks += [f"{module}, {column.name}: {text}" for text in outcome.complaints]
