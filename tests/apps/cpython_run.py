"""Runs one module of CPython's own test suite, natively or under the library, and returns the
result of each test method."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from suite_run import Column, Outcome, Runs

# In a virtual machine whose host does not answer on vsock, these tests wait forever, even without
# the library.
IGNORED = ("*ThreadedVSOCKSocketStreamTest*",)
RESOURCES = {"quick": "none", "all": "cpu,largefile,subprocess,tzdata"}


@dataclass(frozen=True)
class PythonRuns(Runs):
    resources: str

    def test(self, module: str, column: Column, attempt: int) -> Outcome:
        home = self.home(module, column, attempt)
        home.mkdir(parents=True)
        work = self.new_work()
        command = [
            sys.executable, "-m", "test", "-v", "-u", self.resources, "--tempdir",
            str(work), "--junit-xml",
            str(home / "result.xml"), *(f"--ignore={pattern}" for pattern in IGNORED), module
        ]
        status, outcome = self.run(home, command, column, work, cwd=work)
        _read_results(home / "result.xml", status, outcome)
        return outcome


def _read_results(file: Path, status: int, outcome: Outcome) -> None:
    """If only subtests of a method fail, the method's element has no name. It counts as a failed
    subtest, and the method does not count as passed."""
    if not file.exists():
        outcome.broken = outcome.broken or f"no results, exit status {status}"
        return
    for case in ElementTree.parse(file).iter("testcase"):
        kinds = {child.tag for child in case}
        name = case.get("name")
        if name is None:
            outcome.failed["a subtest"] += 1
        elif kinds & {"failure", "error"} or case.get("outcome") == "UNEXPECTED_SUCCESS":
            outcome.failed[name] += 1
        elif "skipped" in kinds:
            outcome.skipped[name] += 1
        else:
            outcome.passed[name] += 1
