"""Runs the modules of a public suite, and prints the table and the result."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suite_compare import RunOnce, Verdict, judge
from suite_run import COLUMNS, NATIVE, CannotRun, Column, Runs, directories


def parser(text: str, columns: tuple[Column, ...] = COLUMNS) -> argparse.ArgumentParser:
    lines = "\n".join(f"  {column.name:8} {column.meaning}" for column in (NATIVE, *columns))
    made = argparse.ArgumentParser(description=text, epilog=f"columns:\n{lines}",
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--build", type=Path, required=True)
    made.add_argument("--columns", nargs="+", choices=[column.name for column in columns])
    made.add_argument("--work", type=Path, help="directory for scratch files; the logs stay there")
    made.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    made.add_argument("--timeout", type=int, default=1800,
                      help="seconds that one run of a module may take")
    return made


def table(verdicts: list[Verdict], columns: tuple[Column, ...]) -> str:
    names = [column.name for column in columns]
    rows = [["module", "native passed", "failed", "skipped", *names, "served", "lost", "flaky"]]
    for verdict in verdicts:
        native = verdict.native
        rows.append([
            verdict.module,
            native.passed.total(),
            native.failed.total(),
            native.skipped.total(), *(verdict.kept.get(name, 0) for name in names),
            sum(outcome.served for outcome in verdict.columns.values()),
            len(verdict.lost),
            len(verdict.waverers) - len(verdict.lost)
        ])
    rows.append(["all", *(sum(column) for column in zip(*(row[1:] for row in rows[1:])))])
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows)]
    lines = [
        "| " + " | ".join(
            str(cell).ljust(width) if at == 0 else str(cell).rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths))) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join(" --- " for _ in widths) + "|", *lines[1:]])


def unserved(verdicts: list[Verdict], columns: tuple[Column, ...], readers: set[str]) -> list[str]:
    """Returns a line for each column, and for each module that is known to read, in which nothing
    was served: such a run proves nothing."""
    found = [
        f"{verdict.module}, {column.name}: nothing was served, though this module reads files"
        for verdict in verdicts
        for column in columns
        if column.serves and verdict.module in readers and column.name in verdict.columns
        and not verdict.columns[column.name].served
    ]
    for column in columns:
        outcomes = [
            verdict.columns[column.name] for verdict in verdicts if column.name in verdict.columns
        ]
        if column.serves and not any(outcome.served for outcome in outcomes):
            found.append(f"{column.name}: nothing was served at all")
    return found


def compare(modules: list[str], run_once: RunOnce, columns: tuple[Column, ...], jobs: int,
            readers: set[str]) -> int:
    began = time.monotonic()

    def one(module: str) -> Verdict:
        verdict = judge(run_once, module, columns)
        seconds = " ".join(
            f"{name} {outcome.seconds:.0f}s" for name, outcome in verdict.columns.items())
        print(f"{module}: native {verdict.native.seconds:.0f}s {seconds}", flush=True)
        return verdict

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(one, modules))
    print(f"\n{table(verdicts, columns)}\n")
    for verdict in verdicts:
        for line in (*verdict.waverers, *verdict.remarks):
            print(line)
    problems = [problem for verdict in verdicts for problem in verdict.problems] + unserved(
        verdicts, columns, readers)
    if not any(verdict.native.passed for verdict in verdicts):
        problems.append("natively no test passed at all")
    for problem in problems:
        print(f"problem: {problem}")
    lost = sum(len(verdict.lost) for verdict in verdicts)
    print(
        f"{len(verdicts)} modules in {time.monotonic() - began:.0f} s: {lost} passes lost, "
        f"{len(problems)} problems"
    )
    return 1 if lost or problems else 0


def main(options: argparse.Namespace, columns: tuple[Column, ...],
         body: Callable[[Path, Path, Path, tuple[Column, ...]], int]) -> int:
    """`body` is called with the library, a scratch directory, a directory on a tmpfs, and the
    requested columns."""
    wanted = tuple(
        column for column in columns if not options.columns or column.name in options.columns)
    library = options.build.resolve() / "libcubeshim.so"
    try:
        if not library.is_file():
            raise CannotRun(f"{library} is missing: build it first with make")
        with directories(options.work) as (scratch, ram):
            Runs(library, scratch, ram, options.timeout).check_loaded(wanted)
            status = body(library, scratch, ram, wanted)
    except CannotRun as reason:
        print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
        return 2
    if status or options.work:
        print(f"logs: {scratch}")
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    return status
