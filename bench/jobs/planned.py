"""Compares `cubeshim plan` with real runs. Each job is observed one time under other settings, and
then run. A run stops after each epoch, so that the counters of the cache can be read."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.harness.errors import BenchError  # noqa: E402
from bench.harness.mount import SlowMount  # noqa: E402
from bench.harness.report import Section, Table, Target  # noqa: E402
from bench.harness.shim import Shim, child_environment  # noqa: E402
from bench.harness.suite import Bench  # noqa: E402

LATENCY_US, BANDWIDTH_MB = 1000, 400
KIB, MIB = 1 << 10, 1 << 20
PART = 256 * KIB


@dataclass(frozen=True)
class Job:
    name: str
    files: int
    least: int  # bytes; sizes are spread evenly on a logarithmic scale
    most: int
    ram: str  # of the predicted run
    observed: tuple[str, ...]  # options of `cubeshim profile` for the observed run
    how: str = "read"  # read, mmap or parts
    order: str = "random"  # "random" (another order in each epoch) or "same"
    processes: int = 1  # each reads a part of every epoch
    takes_turns: bool = False  # so that all reads come in the same order in each run
    disk: str = ""

    def sizes(self) -> list[int]:
        rng = random.Random(self.name)
        return [int(self.least * (self.most / self.least)**rng.random()) for _ in range(self.files)]


# To observe files in blocks, mappings and a disk, a run needs the cache. For files in blocks and
# mappings, the cache needs room for all files.
JOBS = (
    Job("random epochs", 1000, 10 * KIB, 200 * KIB, "32M", ("--observe",)),
    Job("sequential shards", 16, 20 * MIB, 28 * MIB, "288M", ("--ram", "600M"), "parts", "same"),
    Job("mmap", 1500, 32 * KIB, 128 * KIB, "48M", ("--ram", "400M"), "mmap"),
    Job("mmap, larger files", 800, 64 * KIB, 256 * KIB, "52M", ("--ram", "400M"), "mmap"),
    Job("mixed sizes, 2 processes", 700, 2 * KIB, 4 * MIB, "192M", ("--observe",), processes=2),
    Job("data 4 x memory", 1200, 40 * KIB, 100 * KIB, "20M", ("--observe",)),
    Job("the same with a disk",
        1200,
        40 * KIB,
        100 * KIB,
        "20M", ("--ram", "12M", "--disk", "1G"),
        disk="1G"),
)


def make_files(job: Job, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for i, size in enumerate(job.sizes()):
        (where / str(i)).write_bytes(random.Random(i).randbytes(size))


def read_file(path: str, how: str) -> None:
    """Reads a file the way the job does (`how`), and hashes the bytes."""
    with open(path, "rb", buffering=0) as file:
        if how == "mmap":
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as bytes_of_file:
                hashlib.sha256(bytes_of_file).digest()
        elif how == "read":
            hashlib.sha256(file.read()).digest()
        else:
            while part := file.read(PART):
                hashlib.sha256(part).digest()


def read_epochs(job: Job, root: str, epochs: int, stops: bool) -> None:
    """Runs the job itself. With `stops`, prints the time of each epoch and waits for a line."""
    for epoch in range(epochs):
        numbers = list(range(job.files))
        if job.order == "random":
            random.Random(epoch).shuffle(numbers)
        began = time.monotonic()
        children = []
        turns = [os.pipe() for _ in range(job.processes if job.takes_turns else 0)]
        if turns:
            os.write(turns[0][1], b"x")
        for number in range(job.processes if job.processes > 1 else 0):
            if (child := os.fork()) == 0:
                for i in numbers[number::job.processes]:
                    if turns:
                        os.read(turns[number][0], 1)
                    read_file(f"{root}/{i}", job.how)
                    if turns:
                        os.write(turns[(number + 1) % job.processes][1], b"x")
                os._exit(0)
            children.append(child)
        for i in numbers if not children else ():
            read_file(f"{root}/{i}", job.how)
        for child in children:
            if os.waitpid(child, 0)[1] != 0:
                sys.exit("a reader failed")
        for end in (end for turn in turns for end in turn):
            os.close(end)
        if stops:
            print(time.monotonic() - began, flush=True)
            sys.stdin.readline()


def job_words(job: Job, root: Path, epochs: int, stops: bool) -> list[str]:
    return [
        "/usr/bin/python3", __file__, "--read",
        json.dumps([asdict(job), str(root), epochs, stops])
    ]


def observe(bench: Bench, job: Job, root: Path, out: Path) -> None:
    """Observes two epochs, or three if a disk must answer the reads of the last epoch."""
    disk = ["--disk-dir", bench.work / "observed-disk"] if job.disk else []
    done = subprocess.run([
        bench.command, "profile", "-p", root, "--name",
        bench.shim(root).name, "--library", bench.library, "--stats", "off", "--announce", "0",
        "--out", out, *job.observed, *disk, "--", *job_words(job, root, 3 if disk else 2, False)
    ],
                          env=child_environment(None),
                          capture_output=True,
                          text=True,
                          check=False)
    if done.returncode != 0:
        raise BenchError(done.stderr + done.stdout)


def plan(bench: Bench, out: Path, job: Job) -> dict:
    """Returns the forecast for the job with the memory and the disk that it will have, and the
    observed figures."""
    done = subprocess.run(
        [bench.command, "plan", out, "--json", "--ram", job.ram, "--disk", job.disk or "0"],
        env=child_environment(None),
        capture_output=True,
        text=True,
        check=True)
    found = json.loads(done.stdout)
    return {"observed": found["observed"], **found["plans"][0]}


@dataclass(frozen=True)
class RealEpoch:
    seconds: float
    hit_ratio: float  # defined as in `cubeshim plan`


@contextmanager
def running(words: list, shim: Shim) -> Iterator[subprocess.Popen]:
    child = subprocess.Popen(words,
                             env=child_environment(shim),
                             stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE,
                             text=True)
    try:
        yield child
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()
        shim.region.unlink(missing_ok=True)


def hits_between(job: Job, before: dict, after: dict) -> float:

    def grown(group: str, *names: str) -> float:
        return sum(after[group][name] - before[group][name] for name in names)

    if job.least > 16 * MIB:
        # The origin can have delivered more bytes than the files have, because some bytes were
        # fetched in vain.
        return max(1 - grown("blocks", "origin", "kernel") / grown("blocks", "read"), 0)
    hits = grown("hits", *after["hits"])
    return hits / (hits + after["misses"] - before["misses"] + grown("bypassed", "full", "busy"))


def run(bench: Bench, job: Job, root: Path, epochs: int = 4) -> list[RealEpoch]:
    """Runs the job with the memory and the disk that it will have."""
    settings = {"CUBESHIM_DISK_DIR": str(bench.work / "disk"), "CUBESHIM_DISK": job.disk}
    shim = bench.shim(root, job.ram, more=settings if job.disk else {})
    found, before = [], None
    with running(job_words(job, root, epochs, True), shim) as child:
        for _ in range(epochs):
            seconds = float(child.stdout.readline())
            after = bench.reports(shim)[0]
            zero = {k: dict.fromkeys(v, 0) if isinstance(v, dict) else 0 for k, v in after.items()}
            found.append(RealEpoch(seconds, hits_between(job, before or zero, after)))
            before = after
            child.stdin.write("\n")
            child.stdin.flush()
    return found


def empty_disks(bench: Bench) -> None:
    for name in ("disk", "observed-disk"):
        shutil.rmtree(bench.work / name, ignore_errors=True)
        (bench.work / name).mkdir()


def compare(bench: Bench, job: Job, root: Path) -> tuple[float, ...]:
    """Returns the hit ratio and seconds of a later epoch, predicted and real, and the profiler's
    share of the observed run."""
    empty_disks(bench)
    with tempfile.TemporaryDirectory(dir=bench.work) as out:
        observe(bench, job, root, Path(out))
        found = plan(bench, Path(out), job)
    real = run(bench, job, root)[1:]
    later, seen = found["later"], found["observed"]
    return (later["hit_ratio"], statistics.median(epoch.hit_ratio for epoch in real),
            later["seconds"], statistics.median(epoch.seconds for epoch in real),
            seen["profiler_seconds"] / seen["readers"] / seen["seconds"])


def measure_plan(bench: Bench) -> Section:
    section = Section("forecasts of cubeshim plan")
    rows = []
    sources = [bench.work / f"plan-files-{i}" for i in range(len(JOBS))]
    # Makes all files first, because a fetch requests the stat of a new file twice.
    for job, source in zip(JOBS, sources):
        make_files(job, source)
    for job, source in zip(JOBS, sources):
        with SlowMount(bench.lagfs, source, bench.work, LATENCY_US,
                       bandwidth_mb=BANDWIDTH_MB) as mount:
            rounds = [compare(bench, job, mount.path) for _ in range(bench.rounds(3, 1))]
        shutil.rmtree(source)
        hit, real_hit, seconds, real_seconds, cost = map(statistics.median, zip(*rounds))
        ratio = statistics.median(found[2] / found[3] for found in rounds)
        rows.append((job.name, " ".join(job.observed), job.ram, f"{100 * hit:.1f} %",
                     f"{100 * real_hit:.1f} %", f"{seconds:.2f} s", f"{real_seconds:.2f} s",
                     f"{ratio:.2f}", f"{100 * cost:.2f} %"))
        section.data[job.name] = rounds
        for name, wanted, found, passed in (("hit ratio, predicted and real", "3 points",
                                             f"{100 * abs(hit - real_hit):.1f}", abs(hit - real_hit)
                                             <= 0.03), ("time, predicted / real", "0.9 to 1.1",
                                                        f"{ratio:.2f}", 0.9 <= ratio <= 1.1),
                                            ("the profiler's share of the observed run", "1 %",
                                             f"{100 * cost:.2f} %", cost < 0.01)):
            section.targets.append(Target(f"{job.name}: {name}", wanted, found, passed))
    section.tables.append(
        Table(
            f"A later epoch on a mount with {LATENCY_US} us an operation and {BANDWIDTH_MB} MB/s",
            "Medians of rounds; in each, a run is observed, then the job runs with the memory of"
            " the table. The profiler's share is its own measurement.",
            ("job", "observed", "RAM", "hit ratio, predicted", "real", "time, predicted", "real",
             "predicted / real", "profiler"), rows))
    return section


if __name__ == "__main__":
    fields, *rest = json.loads(sys.argv[2])
    read_epochs(Job(**fields), *rest)
