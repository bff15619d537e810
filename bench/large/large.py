"""Measures large files: two epochs of each job of jobs.py, from the local disk, on the bare slow
mount, and on the mount under the shim."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.mount import SlowMount
from bench.harness.pages import forget_pages
from bench.harness.report import Section, Table
from bench.harness.shim import Shim, child_environment
from bench.harness.suite import Bench

JOBS = Path(__file__).resolve().parent / "jobs.py"
WAYS = ("local", "bare", "shim")
EPOCHS = 2
BLOCKS = {"CUBESHIM_BLOCK": "1M", "CUBESHIM_ANNOUNCE": "0"}
LATENCY_US, BANDWIDTH_MB = 300, 200
# The times of epochs 1 and 2, in seconds, that the shim must reach; None: no target.
WANTED = {
    "tar": (2.5, 0.5), "hdf5": (2.5, 0.2), "parquet": (0.41, 0.05), "memmap": (1.95, 0.1),
    "safetensors": (5.2, 0.16), "torch": (5.1, 0.6)
}
NEEDS = {
    "tar": "tarfile", "hdf5": "h5py", "parquet": "pyarrow.parquet", "memmap": "numpy",
    "safetensors": "safetensors.numpy", "torch": "torch", "webdataset": "webdataset",
    "mds": "streaming", "tfrecord": "tensorflow", "arrow": "datasets", "duckdb": "duckdb",
    "polars": "polars"
}
# Maps cases to other cases whose data they read.
DATA = {"webdataset": "tar", "duckdb": "parquet", "polars": "parquet"}


@dataclass
class Epochs:
    """The figures of all rounds, as a list for each epoch."""

    count: int = EPOCHS
    seconds: list[list[float]] = field(init=False)
    megabytes: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self.seconds, self.megabytes = ([[] for _ in range(self.count)] for _ in range(2))


def interpreter_for(case: str) -> str | None:
    """Returns this process's interpreter or the system's, whichever has the modules that the case
    needs."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", f"import {NEEDS[case]}"],
                          capture_output=True).returncode == 0:
            return python
    return None


def data_of(bench: Bench, case: str, python: str) -> Path:
    case = DATA.get(case, case)
    made = bench.data / f"large-{case}"
    if not made.exists():
        python = interpreter_for(case) or python
        half = made.with_suffix(".part")
        half.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, JOBS, "make", case, half], check=True)
        half.rename(made)
    return made


def run_job(command: list[object], shim: Shim | None, mount: SlowMount | None, into: Epochs,
            before: Callable[[], None] = lambda: None) -> str:
    """Runs one epoch for each of `into`, in one process, and waits for the process to end. Calls
    `before` before each epoch. Returns the digest of the bytes that the process read."""
    digests = set()
    with subprocess.Popen([*map(str, command)], env=child_environment(shim), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as job:
        for epoch in range(into.count):
            before()
            if mount:
                mount.reset()
            job.stdin.write("go\n")
            job.stdin.flush()
            line = job.stdout.readline()
            if not line:
                raise BenchError(f"{command}: the reading process ended with {job.wait()}")
            said = json.loads(line)
            into.seconds[epoch].append(said["wall_ns"] / 1e9)
            into.megabytes[epoch].append(mount.bytes_read() / 1e6 if mount else 0.0)
            digests.add(said["digest"])
        job.stdin.close()
    if job.returncode:
        raise BenchError(f"{command}: the reading process ended with {job.returncode}")
    if len(digests) != 1:
        raise BenchError(f"{command}: not the same bytes in all epochs")
    return digests.pop()


def measure_case(bench: Bench, case: str, python: str) -> dict[str, Epochs]:
    source = data_of(bench, case, python)
    found = {way: Epochs() for way in WAYS}
    digests = set()
    for number in range(bench.rounds(5, 2)):
        for way in in_turn(WAYS, number):
            forget_pages(source)
            if way == "local":
                digests.add(run_job([python, JOBS, "read", case, source], None, None, found[way]))
                continue
            with SlowMount(bench.lagfs, source, bench.work, LATENCY_US,
                           bandwidth_mb=BANDWIDTH_MB) as mount:
                shim = bench.shim(mount.path, ram="4G", more=BLOCKS) if way == "shim" else None
                digests.add(
                    run_job([python, JOBS, "read", case, mount.path], shim, mount, found[way]))
    if len(digests) != 1:
        raise BenchError(f"{case}: not the same bytes in all ways")
    return found


def measure_large_files(bench: Bench, cases: tuple[str, ...] = tuple(NEEDS)) -> Section:
    section = Section("large files")
    rows = []
    for case in cases:
        python = interpreter_for(case)
        if python is None:
            print(f"{case}: no Python here has what it needs", file=sys.stderr)
            continue
        found = measure_case(bench, case, python)
        cells = []
        for way in WAYS:
            cells += [spread(found[way].seconds[epoch]).text(2) for epoch in range(EPOCHS)]
        bytes_ = [
            spread(found[way].megabytes[epoch]).text(1)
            for way in ("bare", "shim")
            for epoch in range(EPOCHS)
        ]
        rows.append((case, *cells, *map(str, WANTED.get(case, ("", ""))), *bytes_))
        section.data[case] = {
            way: {"seconds": found[way].seconds, "megabytes": found[way].megabytes} for way in WAYS
        }
        print(rows[-1], flush=True)
    section.tables.append(
        Table(
            f"Seconds of an epoch of large files; the origin takes {LATENCY_US} us an operation and"
            f" gives {BANDWIDTH_MB} MB/s",
            "Both epochs in one process, which opens the files again; pages of the local disk are"
            " dropped before the first. Megabytes are those read from the mount.",
            ("job", "local 1", "2", "bare 1", "2", "shim 1", "2", "wanted 1", "2", "bare MB 1", "2",
             "shim MB 1", "2"), rows))
    return section
