"""Measures start-up, the system calls of a hit, and calls that do not concern a prefix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.shim import Shim, child_environment
from bench.harness.suite import Bench

NOTHING_ON = ("Call/read(1)", "Call/pread(1)", "Call/write(1)", "Call/pwrite(1)")
# How much two runs of the same program without the shim can differ, because the location of its
# pages affects every figure.
NOISE_NS = 10.0
HITS = 1000


def measure_calls(bench: Bench) -> Section:
    section = Section("calls outside the prefixes")
    plain: dict[str, list[float]] = {}
    shimmed: dict[str, list[float]] = {}
    for number in range(bench.rounds(15, 7)):
        turns = [(plain, None), (shimmed, bench.shim())]
        for sums, shim in in_turn(turns, number):
            for name, ns in time_calls(bench, shim, number).items():
                sums.setdefault(name, []).append(ns)
    rows, worst = [], ("", 0.0)
    for name, without in plain.items():
        more = spread([b - a for a, b in zip(without, shimmed[name])])
        rows.append(
            (name.removeprefix("Call/"), spread(without).text(0), spread(shimmed[name]).text(0),
             more.text(0)))
        section.data[name] = {"without_ns": without, "with_ns": shimmed[name]}
        worst = max(worst, (name.removeprefix("Call/"), more.median), key=lambda pair: pair[1])
        if name in NOTHING_ON:
            call = name.removeprefix("Call/")
            section.targets.append(
                Target(f"{call} outside: nothing more", f"<= {NOISE_NS:.0f} ns",
                       f"{more.text(1)} ns", more.median <= NOISE_NS))
    section.targets.append(
        Target("any call outside", "<= 100 ns more", f"{worst[1]:.0f} ns ({worst[0]})", worst[1]
               <= 100))
    section.tables.append(
        Table(
            "Calls outside the prefixes: nanoseconds",
            "The same binary without and with the shim, alternately; with it, a cache is attached"
            " and files have been served. Calls with a path pay for one comparison with the"
            " prefixes, calls with an fd for one lookup in a table, and calls that make or close"
            " an fd for keeping that table right. The cost of mmap and munmap varies by some"
            " hundred ns with the shape of the kernel's tree of mappings; each round has another"
            " number of spare mappings, the same on both sides.",
            ("call", "without", "with", "difference"), rows))
    return section


def time_calls(bench: Bench, shim: Shim | None, layout: int) -> dict[str, float]:
    """Returns the nanoseconds of CPU time for each call. Both sides of a round have the same
    `layout` of additional mappings."""
    outside = bench.work / "outside"
    outside.mkdir(exist_ok=True)
    command = [
        bench.program, "--calls", outside, "--filler", bench.sets["filler"].path, "--seed", layout,
        "--benchmark_format=json", f"--benchmark_min_time={0.01 if bench.quick else 0.02}"
    ]
    done = subprocess.run(list(map(str, command)), env=child_environment(shim),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode:
        raise BenchError(f"{bench.program} --calls ended with {done.returncode}")
    rows = json.loads(done.stdout)["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            raise BenchError(f"{row['name']}: {row['error_message']}")
    return {row["name"]: row["cpu_time"] for row in rows}


def measure_start(bench: Bench) -> Section:
    section = Section("start-up")
    programs = [("true", [shutil.which("true") or "/bin/true"], bench.rounds(1001, 101), 0.4),
                ("python3 -c pass", [sys.executable, "-c", "pass"], bench.rounds(61, 31), 3.0)]
    rows = []
    # All other settings have their default, as for a user, except that the report of a Python
    # process is written to a file.
    report = bench.work / "start.report"
    library = {
        "LD_PRELOAD": str(bench.library), "CUBESHIM_PREFIXES": str(bench.data),
        "CUBESHIM_NAME": bench.shim().name, "CUBESHIM_STATS": str(report)
    }
    for name, command, rounds, most_ms in programs:
        plain, shimmed = [], []
        for number in range(rounds):
            for runs, more in in_turn([(plain, {}), (shimmed, library)], number):
                runs.append(time_start(command, {**child_environment(None), **more}))
        wall = [spread([run.wall_ms for run in runs]) for runs in (plain, shimmed)]
        more_wall, more_cpu, faults = (spread(
            [getattr(b, what) - getattr(a, what)
             for a, b in zip(plain, shimmed)])
                                       for what in ("wall_ms", "cpu_ms", "faults"))
        rows.append((name, str(rounds), wall[0].text(), wall[1].text(), more_wall.text(),
                     more_cpu.text(), f"{faults.median:.0f}"))
        section.data[name] = {"without": plain, "with": shimmed}
        section.targets.append(
            Target(f"start of `{name}`", f"<= {most_ms} ms more", f"{more_wall.text()} ms",
                   more_wall.median <= most_ms, f"CPU time {more_cpu.text()} ms"))
    report.unlink(missing_ok=True)
    section.tables.append(
        Table(
            "Start and end of a program: milliseconds",
            "Programs that open nothing under a prefix, without and with the shim, alternately."
            " The loader maps and relocates one more library and binds its hooks; no region is"
            " made. The cost is the same for every program, and each child of a job pays it.",
            ("program", "runs", "without", "with", "difference", "difference, CPU",
             "page faults more"), rows))
    return section


class Start(NamedTuple):
    wall_ms: float
    cpu_ms: float
    faults: int


def time_start(command: list[str], environment: dict[str, str]) -> Start:
    start = time.perf_counter()
    child = os.posix_spawn(command[0], command, environment)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    if status:
        raise BenchError(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return Start(wall * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_minflt)


def measure_system_calls(bench: Bench) -> Section:
    """Counts the system calls of 1,000 hits with strace: the difference between a run with three
    passes and a run with two."""
    section = Section("system calls of a hit")
    tool = shutil.which("strace")
    if tool is None:
        section.targets.append(
            Target("system calls of a hit", "placeholder's only", "strace is not installed", False))
        return section
    rows = []
    for name, shim_of in (("ext4", lambda: None), ("hit", bench.shim)):
        twice, thrice = (count_calls(bench, tool, shim_of(), passes) for passes in (2, 3))
        extra = {call: thrice.get(call, 0) - twice.get(call, 0) for call in {*twice, *thrice}}
        calls = {
            call: n
            for call, n in sorted(extra.items(), key=lambda item: -item[1])
            if n >= HITS // 100
        }
        section.data[name] = calls
        rows.append(
            (name, str(sum(calls.values())), ", ".join(f"{call} {n}" for call, n in calls.items())
             or "none"))
    hits = section.data["hit"]
    section.targets.append(
        Target("system calls of 1,000 hits", "the placeholder's only",
               ", ".join(f"{call} {n}" for call, n in hits.items()) or "none",
               set(hits) <= {"fcntl", "close"}))
    section.tables.append(
        Table(
            f"System calls of {HITS:,} reads",
            f"`strace -f -c` of a run with three passes over {HITS:,} files, less one with two."
            " Both have CUBESHIM_PREFETCH=0, because the library's threads would fetch the other"
            " files of the directory meanwhile. One file is open at a time, so the placeholder's fd"
            " is parked and costs nothing. With more files open, a hit costs fcntl and close.",
            ("way", "calls", "which"), rows))
    return section


def count_calls(bench: Bench, tool: str, shim: Shim | None, passes: int) -> dict[str, int]:
    out = bench.work / f"strace-{passes}.txt"
    # env sets LD_PRELOAD for the traced program, because strace itself must not be shimmed.
    settings = shim.environment() | {"CUBESHIM_PREFETCH": "0"} if shim else {}
    variables = [f"{name}={value}" for name, value in settings.items()]
    command = [
        tool, "-f", "-c", "-o", out, "env", *variables, bench.program, "--set",
        bench.sets["mix"].path, "--limit", HITS, "--passes", passes
    ]
    subprocess.run(list(map(str, command)), env=child_environment(None), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    counts = parse_strace(out)
    out.unlink()
    return counts


def parse_strace(path: Path) -> dict[str, int]:
    """Returns {"openat": 1003, ...} from strace's summary, whose columns are: % time, seconds,
    usecs/call, calls, errors (or none), name."""
    counts = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            counts[words[-1]] = int(words[3])
    return counts
