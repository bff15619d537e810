"""Shared by the public test suites: the columns, the results of a run, and the directories of
runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

STANDARD_LIBRARY = Path(os.__file__).resolve().parent


class CannotRun(Exception):
    """A requirement of a suite is missing: exit status 2."""


@dataclass(frozen=True)
class Column:
    """How a run sees the file system. Without a mode the library is not loaded at all."""

    name: str
    meaning: str
    mode: str | None = None
    more_prefixes: tuple[Path, ...] = ()

    @property
    def serves(self) -> bool:
        return self.mode in ("virtual", "real")


NATIVE = Column("native", "without the library")
COLUMNS = (Column("off", "mode off", "off"),
           Column("real", "mode real; the tests' working directory is the prefix", "real"),
           Column("virtual", "mode virtual; the tests' working directory is the prefix", "virtual"),
           Column("library",
                  "mode virtual; Python's standard library with its test data is a prefix too",
                  "virtual", (STANDARD_LIBRARY,)),
           Column("wide", "mode virtual; /usr, /etc, /var and /tmp are prefixes too", "virtual",
                  (Path("/usr"), Path("/etc"), Path("/var"), Path("/tmp"))),
          )


@dataclass
class Outcome:
    """The result of one run of a module: how often each test passed, failed or was skipped, and how
    much was served."""

    passed: Counter = field(default_factory=Counter)
    failed: Counter = field(default_factory=Counter)
    skipped: Counter = field(default_factory=Counter)
    broken: str = ""
    seconds: float = 0.0
    opens: int = 0
    served: int = 0
    complaints: list[str] = field(default_factory=list)

    def add(self, name: str, one: Outcome) -> None:
        """Adds the result of one of the module's programs to this one, except for its counts of
        tests."""
        self.broken = self.broken or (f"{name}: {one.broken}" if one.broken else "")
        self.complaints += one.complaints
        self.seconds += one.seconds
        self.opens += one.opens
        self.served += one.served


@dataclass(frozen=True)
class Runs:
    """Provides a directory for each run. `scratch` is on a disk, `ram` is a private directory on a
    tmpfs."""

    library: Path
    scratch: Path
    ram: Path
    timeout: int

    def home(self, module: str, column: Column, attempt: int) -> Path:
        """Returns the directory of one run, for its log and its reports."""
        return self.scratch / column.name / f"{module}-{attempt}"

    def run(self, home: Path, command: list[str], column: Column, work: Path, cwd: Path,
            more: dict[str, str] | None = None) -> tuple[int, Outcome]:
        """Returns the exit status and the findings about the library in the reports and the log.
        `work` is removed after the run."""
        outcome = Outcome()
        began = time.monotonic()
        with open(home / "log", "wb") as log:
            process = subprocess.Popen(command, cwd=cwd,
                                       env=self.environment(home, work, column) | (more or {}),
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
            try:
                status = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
                outcome.broken = f"no end within {self.timeout} s"
        outcome.seconds = time.monotonic() - began
        _read_reports(home, outcome)
        lines = (home / "log").read_text(errors="replace").splitlines()
        outcome.complaints = sorted({line for line in lines if line.startswith("cubeshim:")})
        _unmount_below(work)
        shutil.rmtree(work, ignore_errors=True)
        return status, outcome

    def new_work(self) -> Path:
        work = Path(tempfile.mkdtemp(prefix="",
                                     dir=self.scratch))  # short, for the names of Unix sockets
        work.chmod(0o755)
        return work

    def environment(self, home: Path, work: Path, column: Column) -> dict[str, str]:
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("CUBESHIM_", "LD_PRELOAD", "PYTHON"))
        }
        kept["TMPDIR"] = str(work)
        if column.mode is None:
            return kept
        prefixes = ":".join(map(str, (work, *column.more_prefixes)))
        return kept | {
            "LD_PRELOAD": str(self.library), "CUBESHIM_MODE": column.mode,
            "CUBESHIM_PREFIXES": prefixes, "CUBESHIM_NAME": work.name, "CUBESHIM_RAM": "256M",
            "CUBESHIM_RAM_DIR": str(self.ram), "CUBESHIM_STRICT": "1", "CUBESHIM_STATS": str(
                home / "report-%p.json"), "CUBESHIM_STATS_FORMAT": "json"
        }

    def check_loaded(self, columns: tuple[Column, ...]) -> None:
        """Runs the probe in the same way as the tests: it must have the library in each column, and
        not natively."""
        probe = [sys.executable, "-c", "print('libcubeshim' in open('/proc/self/maps').read())"]
        for column in (NATIVE, *columns):
            home = self.home("probe", column, 1)
            home.mkdir(parents=True)
            status, _ = self.run(home, probe, column, self.new_work(), home)
            said = (home / "log").read_text()
            if status != 0 or said.strip() != str(column is not NATIVE):
                raise CannotRun(
                    f"column {column.name}: the library is not as it should be: {said.strip()}")


def _unmount_below(work: Path) -> None:
    """Unmounts everything that a test has left mounted, and frees its loop device."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in reversed([place for place in places if place.startswith(f"{work}/")]):
        subprocess.run(["umount", "-d", place], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)


def _read_reports(home: Path, outcome: Outcome) -> None:
    """Adds up the exit reports. There can be several, because a child that is started with a
    cleaned environment is a separate job."""
    for file in home.glob("report-*.json"):
        report = json.loads(file.read_text().splitlines()[-1])
        outcome.opens += report["opens"]
        outcome.served += report["hits"]["ram"] + report["misses"]


@contextmanager
def directories(work: Path | None):
    """Yields a scratch directory below `work` (or the usual place), and a directory on a tmpfs,
    which is removed at the end."""
    scratch = Path(tempfile.mkdtemp(prefix="suite-", dir=work))
    scratch.chmod(0o755)
    ram = Path(tempfile.mkdtemp(prefix="cubeshim-suite-", dir="/dev/shm"))
    ram.chmod(0o1777)  # like /dev/shm itself: some tests change to another user
    try:
        yield scratch, ram
    finally:
        shutil.rmtree(ram, ignore_errors=True)
