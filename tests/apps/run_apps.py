#!/usr/bin/python3
"""Real programs on plain files and under the library: their output, exit status and written files
must be equal.

    run_apps.py --build build [NAME...]     # the cases of these names, or all that can run here,
                                            and a table
    run_apps.py --build build --all         # first makes a venv for the modules of requirements.txt
                                            (PyPI)
    run_apps.py --list                      # the names

Exit status: 77 if nothing could run (ctest counts that as skipped), 1 if something differed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app_case import PYTHON, Case, all_cases
from app_run import LAG_WAYS, PLAIN_WAYS, Outcome, Workspace, stop_all

SKIPPED = 77
# With --quick, only the slow mount has a cold start, because cold starts are slowest there. Heavy
# cases have no cold start.
QUICK_WAYS = ["native", "real", "virtual-warm", "lag-native", "lag-virtual"]
HEAVY_WAYS = ["native", "virtual-warm"]
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"


class Row:
    """The result of one case: one word per mode, and the full text of each failure."""
    def __init__(self, case: Case, skipped: str = "", version: str = ""):
        self.case, self.skipped, self.version = case, skipped, version
        self.words: dict[str, str] = {}
        self.trouble: list[str] = []
        self.seconds = 0.0

    def line(self) -> str:
        name = f"{self.case.name:28}"
        if self.skipped:
            return f"{name} skipped: {self.skipped}"
        words = "  ".join(f"{way} {word}" for way, word in self.words.items())
        return f"{name} {words}  {self.seconds:.1f} s"

    def markdown(self) -> str:
        cells = [self.words.get(way, "-") for way in PLAIN_WAYS + LAG_WAYS]
        what = self.case.head["what"].replace("|", "\\|")
        return f"| {self.case.name} | {what} | {self.version} | {' | '.join(cells)} |"


def as_lines(value: object) -> list[str]:
    if isinstance(value, list):
        return value
    return (value.decode(
        errors="backslashreplace") if isinstance(value, bytes) else str(value)).splitlines()


def difference(expected: Outcome, got: Outcome) -> str:
    """Returns the differences between the results of two runs, line by line."""
    lines = []
    for key, value in expected.seen().items():
        other = got.seen()[key]
        if value != other:
            changes = list(difflib.unified_diff(as_lines(value), as_lines(other), lineterm="", n=1))
            lines += [f"  {key}:"] + [f"    {line}" for line in changes[2:42]]
    return "\n".join(lines)


def judge(case: Case, way: str, native: Outcome, got: Outcome) -> str:
    """Returns the faults of this run; empty if there are none."""
    if wrong := difference(native, got):
        return f"{case.name}, {way}: not as native\n{wrong}"
    if case.serves and way.startswith("lag-") | (way in PLAIN_WAYS[2:]):
        count = got.hits() if way.endswith("-warm") else got.served()
        if not count:
            return (f"{case.name}, {way}: the library served no file, so this shows nothing "
                    f"(report: {got.report})")
    return ""


def run_case(case: Case, options: argparse.Namespace) -> Row:
    if lacks := case.lacks(options.venv):
        return Row(case, skipped=lacks)
    python = case.python(options.venv)
    row = Row(case, version=case.version(python) if options.markdown else "")
    began = time.monotonic()
    lag = options.lagfs.exists() and os.access("/dev/fuse", os.R_OK | os.W_OK)
    with Workspace(case, python, options.library, options.lagfs) as space:
        native: dict[bool, Outcome] = {}
        for way in PLAIN_WAYS + LAG_WAYS:
            on_lag = way in LAG_WAYS
            too_much = options.quick and way not in (HEAVY_WAYS if case.heavy else QUICK_WAYS)
            if on_lag and not lag or way in options.without or too_much:
                row.words[way] = "-"
                continue
            got = space.outcome(way)
            if way in ("native", "lag-native"):
                native[on_lag] = got
                row.words[way] = "ok" if got.status == 0 else f"status {got.status}"
                if got.status != 0:
                    row.trouble.append(
                        f"{case.name}, {way}: ends with {got.status}\n"
                        f"{got.stderr.decode(errors='replace')}"
                    )
                if options.verbose:
                    print(
                        f"--- {case.name}, {way}\n"
                        f"{(got.stdout + got.stderr).decode(errors='backslashreplace')}",
                        flush=True)
                continue
            wrong = judge(case, way, native[on_lag], got)
            served = f" ({got.hits()}/{got.served()})" if got.served() and case.serves else ""
            row.words[way] = "DIFFERS" if wrong else "equal" + ("" if options.markdown else served)
            if wrong:
                head, _, body = wrong.partition("\n")
                known = any(body and body in other for other in row.trouble)
                row.trouble.append(f"{head}, the same" if known else wrong)
    row.seconds = time.monotonic() - began
    return row


def make_venv(venv: Path) -> None:
    if not (venv / "bin" / "python").exists():
        subprocess.run([PYTHON, "-m", "venv", "--system-site-packages", venv], check=True)
    subprocess.run([venv / "bin" / "pip", "install", "-q", "-r", REQUIREMENTS], check=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--all", action="store_true",
                        help="with what PyPI has, in a venv under the build directory")
    parser.add_argument("--quick", action="store_true",
                        help="five of the eight ways, heavy cases in two of them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], choices=PLAIN_WAYS[1:] + LAG_WAYS,
                        metavar="WAY")
    parser.add_argument("--markdown", action="store_true",
                        help="the table as it stands in doc/TESTED.md")
    parser.add_argument("--verbose", action="store_true", help="shows what the native run prints")
    options = parser.parse_args(arguments)
    build = options.build.resolve()
    options.library, options.lagfs = build / "libcubeshim.so", build / "lagfs"
    options.venv = build / "apps-venv"
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    cases = [
        case for case in all_cases()
        if not options.names or {case.name, case.path.stem} & set(options.names)
    ]
    unknown = set(options.names) - {name for case in cases for name in (case.name, case.path.stem)}
    if unknown:
        print(f"no case of this name: {' '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    if options.all:
        make_venv(options.venv)
    signal.signal(signal.SIGTERM, lambda *_: stop_all())
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda case: run_case(case, options), cases):
            rows.append(row)
            print(row.markdown() if options.markdown and not row.skipped else row.line(),
                  flush=True)
            print("\n".join(row.trouble), end="\n" if row.trouble else "", flush=True)
    ran = [row for row in rows if not row.skipped]
    good = [row for row in ran if not row.trouble]
    print(f"{len(good)} of {len(ran)} programs equal in every way, {len(rows) - len(ran)} skipped")
    if not ran:
        return SKIPPED
    return 0 if len(good) == len(ran) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
