#!/usr/bin/env python3
"""Measures frameworks as users install them, each with its own way to read: bytes, operations at
the origin, speed. Writes a page.

    run.py --build BUILD [--library PATH] [--command PATH] [--only NAME ...] [--rounds N] [--venvs
    DIR] [--out FILE.md]

A case (cases/NAME.py) reads its data for three epochs: natively on a slow mount (lagfs, 300 us an
operation), under `cubeshim run` on such a mount, and natively on the local disk. The three take
turns. The venvs come from PyPI (some 10 GB), the data are made here.
"""

from __future__ import annotations

import argparse
import pickle
import shlex
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]
from bench.data.sets import make_mix  # noqa: E402
from bench.harness.errors import BenchError  # noqa: E402
from bench.harness.load import Load  # noqa: E402
from bench.harness.machine import Machine, describe_machine  # noqa: E402
from measure import Found, Tools, measure  # noqa: E402
from plan import Case, all_cases, chosen  # noqa: E402
from tables import MARK, faults, origin_table, speed_table, verdict  # noqa: E402
from installed import NotInstalled, ready_venv, versions  # noqa: E402


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True, metavar="DIR",
                        help="a build with lagfs")
    parser.add_argument("--library", type=Path, metavar="PATH",
                        help="another libcubeshim.so than that of the build")
    parser.add_argument("--command", type=Path, metavar="PATH",
                        help="another cubeshim than that of the build")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="these cases (files of cases/, without .py)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each kind (default 3)")
    parser.add_argument("--pictures", type=int, default=600, metavar="N",
                        help="pictures of the data sets (default 600)")
    parser.add_argument("--venvs", type=Path, metavar="DIR",
                        help="for the venvs (default: BUILD/ecosystem/venvs)")
    parser.add_argument("--work", type=Path, metavar="DIR",
                        help="for data, on a local disk (default: BUILD/ecosystem)")
    parser.add_argument("--add", action="store_true",
                        help="the page has the rows of earlier runs in --work, too")
    parser.add_argument("--nice", type=int, default=0, metavar="N",
                        help="niceness of the jobs (default 0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds} is not accepted; give a number from 1")
    if options.pictures < 60 or options.pictures % 60:
        parser.error(
            f"--pictures {options.pictures} is not accepted; give a multiple of 60, so that ranks "
            "get as many each"
        )
    return options


def tools_of(options: argparse.Namespace, work: Path) -> Tools:
    build = options.build.resolve()
    tools = Tools((options.library or build / "libcubeshim.so").resolve(),
                  (options.command
                   or build / "cubeshim").resolve(), build / "lagfs", work, options.nice)
    for file in (tools.library, tools.command, tools.lagfs):
        if not file.exists():
            raise BenchError(f"{file} is missing: build it first, with -DCUBESHIM_LAGFS=ON")
    return tools


def measured(tools: Tools, case: Case, options: argparse.Namespace, venvs: Path,
             pictures: Path) -> Found:
    """Measures a case. A case that cannot be installed or that fails is a row of the table, too."""
    found = Found(case, list(case.packages))
    try:
        venv = ready_venv(case.venv, venvs)
        found.versions = versions(venv, case.packages)
        measure(tools, case, venv, found, pictures, options.rounds)
    except (NotInstalled, BenchError, subprocess.CalledProcessError) as error:
        found.error = str(error)
    print(f"{case.name}: {', '.join(faults(found)) or 'all rules kept'}", flush=True)
    return found


def keep(work: Path, found: Found) -> Found:
    (work / "found").mkdir(exist_ok=True)
    (work / "found" / f"{found.case.name}.pickle").write_bytes(pickle.dumps(found))
    return found


def earlier(work: Path) -> list[Found]:
    files = {file.stem: file for file in (work / "found").glob("*.pickle")}
    return [pickle.loads(files[name].read_bytes()) for name in all_cases() if name in files]


def write(out: Path, text: str) -> None:
    """Writes the text. If the file exists, everything in front of the mark is kept."""
    head = out.read_text().partition(MARK)[0] if out.exists() else ""
    out.write_text(f"{head}{MARK}\n\n{text}")


def page(machine: Machine, rows: list[Found], others: float) -> str:
    parts = [
        f"Machine: {machine.line()}; others took {others:.0%} of the cores.\n"
        f"Command: `{machine.command}`.",
        verdict(rows)
    ]
    parts += [
        f"## {table.title}\n\n{table.markdown()}" for table in (speed_table(rows),
                                                                origin_table(rows))
    ]
    return "\n\n".join(parts) + "\n"


def run(options: argparse.Namespace, command: str) -> int:
    work = (options.work or options.build / "ecosystem").resolve()
    (work / "data").mkdir(parents=True, exist_ok=True)
    cases, tools, load = chosen(options.only), tools_of(options, work), Load()
    pictures = make_mix(work / "data", options.pictures).path
    venvs = (options.venvs or work / "venvs").resolve()
    done = [keep(work, measured(tools, case, options, venvs, pictures)) for case in cases]
    rows = earlier(work) if options.add else done
    text = page(describe_machine(command, work), rows, load.share_of_others())
    print(text)
    if options.out:
        write(options.out, text)
    return int(any(map(faults, done)))


def main(arguments: list[str]) -> int:
    signal.signal(
        signal.SIGTERM,
        lambda *_: sys.exit(143))  # as an exception, so that mounts and children are ended too
    try:
        return run(parse_arguments(arguments), shlex.join(["tests/ecosystem/run.py", *arguments]))
    except (BenchError, OSError, subprocess.CalledProcessError) as error:
        print(f"run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
