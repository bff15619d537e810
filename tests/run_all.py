"""`make test` and `make test-long`: runs builds, static checks and tests, one part after another,
and prints how long each part took.

    run_all.py --build DIR [--jobs N] [--long]

DIR is the build tree of g++. The trees of the sanitizers are next to it (DIR-asan, DIR-tsan). With
--long, there are two more trees: clang without optimisation and without unity builds (DIR-clang),
and a copy of the sources with deliberate faults (DIR-mutants). If a part fails, the other parts
still run, except tests whose build has failed. doc/CONTRIBUTING.md says what runs where. The last
line is "N passed, N failed, N skipped". Exit status: 0, or 1 if a part failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_OF_A_FAILURE = 30
MOST_HEADLINES = 10
NOT_RUN = ("notrun", "disabled", "skipped")  # the words of ctest's report
CLANG = ["-DCMAKE_CXX_COMPILER=clang++-16", "-DCMAKE_C_COMPILER=clang-16"]


def headlines(output: str) -> list[str]:
    """Returns the lines that name a failed case of unittest or GoogleTest, and its reason."""
    found = [
        line[:300] for line in output.splitlines()
        if re.match(r"FAIL: |ERROR: |\[  FAILED|\w+Error\b|.*: Failure$", line)
    ]
    return list(dict.fromkeys(found))[:MOST_HEADLINES]


class Run:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.parts: list[tuple[str, float, bool]] = []
        self.cases: list[tuple[float, str, str]] = []  # seconds, name, status
        self.said: dict[str, str] = {}  # the output of each failed part or test, by its name
        self.environment = os.environ | ({"CUBESHIM_TEST_LONG": "1"} if options.long else {})

    def part(self, name: str, *commands: list[str]) -> bool:
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        last: deque[str] = deque(maxlen=LINES_OF_A_FAILURE)
        passed = all(self.command(command, last) for command in commands)
        self.parts.append((name, time.monotonic() - begin, passed))
        if not passed and not name.startswith("tests:"):
            self.said[name] = "".join(last)
        return passed

    def command(self, command: list[str], last: deque[str]) -> bool:
        """Adds to `last` what the command prints."""
        with subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace") as running:
            for line in running.stdout:
                print(line, end="", flush=True)
                last.append(line)
        return running.returncode == 0

    def tree(self, suffix: str) -> str:
        return self.options.build + suffix

    def build(self, name: str, suffix: str, *flags: str) -> bool:
        settings = [
            "-DCUBESHIM_TESTS=ON", "-DCUBESHIM_BENCH=ON", "-DCUBESHIM_LAGFS=ON",
            "-DCUBESHIM_WERROR=ON", f"-DCUBESHIM_TEST_LONG={'ON' if self.options.long else 'OFF'}",
            *flags
        ]
        return self.part(f"build: {name}",
                         ["cmake", "-S", ".", "-B",
                          self.tree(suffix), "-G", "Ninja", *settings],
                         ["cmake", "--build",
                          self.tree(suffix), "-j",
                          str(self.options.jobs)])

    def tests(self, name: str, suffix: str, jobs: int) -> None:
        report = ROOT / self.tree(suffix) / "tests.xml"
        report.unlink(missing_ok=True)
        which = [] if self.options.long else ["-LE", "^long$"]
        self.part(f"tests: {name}", [
            "ctest", "--test-dir",
            self.tree(suffix), "--output-on-failure", "--no-tests=error", "-j",
            str(jobs), "--output-junit",
            str(report), *which
        ])
        for case in xml.parse(report).getroot().iter("testcase") if report.exists() else []:
            label, status = f"{case.get('name')} ({name})", case.get("status", "fail")
            self.cases.append((float(case.get("time", 0)), label, status))
            if status not in ("run", *NOT_RUN):
                self.said[label] = case.findtext("system-out") or ""

    def report(self) -> int:
        failed_parts = [name for name, _, passed in self.parts if not passed]
        print("\nHow long each part took:")
        for name, seconds, passed in self.parts:
            print(f"{seconds:7.0f} s  {name}{'' if passed else '  FAILED'}")
        print(
            f"{sum(seconds for _, seconds, _ in self.parts):7.0f} s  in all\n\n"
            "The slowest ten tests:"
        )
        for seconds, name, _ in sorted(self.cases, reverse=True)[:10]:
            print(f"{seconds:7.1f} s  {name}")
        statuses = [status for _, _, status in self.cases]
        skipped = sum(status in NOT_RUN for status in statuses)
        passed = statuses.count("run")
        # A build or a check that fails counts as a failure, too, if no test reported it.
        failed = len(statuses) - passed - skipped + sum(
            not name.startswith("tests:") for name in failed_parts)
        for label, output in self.said.items():
            print(f"\n{label} failed; its last lines:",
                  *output.splitlines()[-LINES_OF_A_FAILURE:], sep="\n    ")
        for label, output in self.said.items():
            print(f"\n{label}:", *headlines(output), sep="\n    ")
        if failed_parts:
            print(f"\nfailed: {', '.join(failed_parts)}")
        print(
            f"\n{passed} passed, {max(failed, int(bool(failed_parts)))} failed, {skipped} skipped",
            flush=True)
        return int(bool(failed_parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--long", action="store_true")
    run = Run(parser.parse_args())
    built = run.build("g++, all", "")
    run.part("check: format", ["make", "--no-print-directory", "check-format"])
    if built:
        run.part("check: clang-tidy, clang's warnings", [
            sys.executable, "tests/lint.py",
            run.tree(""), "--jobs",
            str(run.options.jobs), *(["--deep"] if run.options.long else [])
        ])
    if run.options.long:
        run.build("clang -O0, file by file", "-clang", *CLANG, "-DCUBESHIM_UNITY=OFF",
                  "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
                  "-DCMAKE_C_FLAGS_DEBUG=-O0")
    for name, suffix, sanitizer in (("ASan and UBSan", "-asan", "address,undefined"),
                                    ("TSan", "-tsan", "thread")):
        if run.build(name, suffix, *CLANG, f"-DCUBESHIM_SANITIZE={sanitizer}"):
            run.tests(name, suffix, run.options.jobs)
    if built:
        # One more job than there are processors, because many tests wait for a slow mount.
        run.tests("g++", "", run.options.jobs + 1)
    if built and run.options.long:
        run.part("mutants", [
            sys.executable, "tests/house/mutants/run.py", "--again", "--work",
            run.tree("-mutants"), "--jobs",
            str(run.options.jobs)
        ])
    return run.report()


if __name__ == "__main__":
    sys.exit(main())
