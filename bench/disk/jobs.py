"""Measures jobs with a disk tier: data four times the memory, and a second job after the first one
was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, nullcontext
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.data.sets import data_files, write_list
from bench.disk.hits import disk_directory, disk_settings, wait_for_disk
from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.load import Load
from bench.harness.memory_group import MemoryGroup
from bench.harness.mount import SlowMount
from bench.harness.pages import forget_pages, have_memory
from bench.harness.report import Section, Table, Target
from bench.harness.shim import PREFETCH_OFF, Shim, child_environment, exit_report
from bench.harness.suite import LATENCY_US, Bench
from bench.jobs.training import QUIET, epochs_of, train_command

PARTS = 4  # of the data; one part is as large as the memory
EPOCHS = 2
JOBS = ("reader", "DataLoader")
# Additional room for page tables, the kernel's own structures, and the memory that a process needs
# at its end.
SLACK = 16 << 20
# The part of a control group's memory that the shim leaves free (cache/region/region.cc): the
# group's limit must include it, although it is not used.
HEADROOM = 64 << 20
KEPT = ("lookup", "getattr", "open", "read")

# In each epoch, reads all files in an order that depends on the epoch's seed, prints the samples
# per second, and waits for a line on stdin.
READER = """
import json, random, sys, time, zlib
names, epochs, waits = sys.argv[1], int(sys.argv[2]), sys.argv[3] == 'wait'
files = open(names).read().splitlines()
for epoch in range(epochs):
    random.Random(epoch).shuffle(files)
    total, began = 0, time.monotonic()
    for file in files:
        with open(file, 'rb') as f:
            total += zlib.crc32(f.read())
    speed = len(files) / (time.monotonic() - began)
    print(json.dumps({'samples_per_s': speed, 'checksum': total}), flush=True)
if waits: sys.stdin.readline()
"""


def reader_command(bench: Bench, data: Path, names: Path, epochs: int,
                   waits: bool = False) -> list[str]:
    """`names`: a directory that contains the same files. Their names are read from it."""
    listed = write_list(bench.work / "names",
                        [data / file.relative_to(names) for file in data_files(names)])
    return [sys.executable, "-c", READER, str(listed), str(epochs), "wait" if waits else "go"]


def run_in(group: MemoryGroup, command: list[str], shim: Shim | None) -> tuple[str, int]:
    """Returns the printed text, and the maximum of the memory that the processes themselves had
    allocated."""
    environment = child_environment(shim) | QUIET
    most = 0
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, preexec_fn=group.enter) as child:
        while child.poll() is None:
            most = max(most, group.own_bytes())
            time.sleep(0.02)
        text = child.stdout.read()
    if child.returncode:
        raise BenchError(
            f"{command[1]} ended with {child.returncode} in a control group of bounded memory")
    return text, most


def found_by(bench: Bench, job: str, text: str) -> list[dict]:
    """Returns the epochs of a job that has printed `text`."""
    if job == "reader":
        return [json.loads(line) for line in text.splitlines()]
    return epochs_of(bench.work / "train.json")


def command_of(bench: Bench, job: str, data: Path, names: Path, epochs: int = EPOCHS) -> list[str]:
    if job == "reader":
        return reader_command(bench, data, names, epochs)
    return train_command(data, bench.work / "train.json", "pil", epochs)


def fill(bench: Bench, shim: Shim, data: Path, names: Path, count: int) -> None:
    """Runs a first job with room for all files. Nothing of this job stays in memory."""
    with subprocess.Popen(reader_command(bench, data, names, 1,
                                         waits=True), env=child_environment(shim),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        job.stdout.readline()
        wait_for_disk(bench, shim, count)
        job.stdin.close()
        job.wait()


@contextmanager
def origin(bench: Bench, local: Path, at: Path | None) -> Iterator[SlowMount | None]:
    with (bench.mount(local, at=at) if at else nullcontext()) as mount:
        yield mount


def measure_larger_than_memory(bench: Bench, section: Section) -> None:
    files = bench.sets["mix"]
    local, ram = files.path, files.bytes // PARTS
    stats = bench.work / "report.json"
    rows, most = [], {}
    slow = f"disk tier, origin {LATENCY_US} us"
    gathered = f"{slow}, stats gathered"
    ways = {
        "local ext4": (local, None), "disk tier, origin local": (local, None),
        slow: (bench.work / "mount", bench.work / "mount"),
        gathered: (bench.work / "mount", bench.work / "mount")
    }
    base = next(iter(ways))
    with ExitStack() as stack:
        settings, own = {}, {}
        for way, (data, at) in ways.items():
            if way == base:
                continue
            if way == gathered:
                # Reads the disk that the previous job has written.
                more = {
                    name: value for name, value in settings[slow].more if name not in PREFETCH_OFF
                }
                settings[way] = replace(settings[slow], more=tuple(more.items()))
                continue
            settings[way] = bench.shim(
                data, more=disk_settings(stack.enter_context(disk_directory(bench))))
            with origin(bench, local, at):
                fill(bench, settings[way], data, local, files.count)
        for job in JOBS:
            with MemoryGroup() as group:
                _, own[job] = run_in(group, command_of(bench, job, local, local, 1), None)
                if job == "DataLoader":
                    found_by(bench, job, "")
            speeds, reports, loads, sums = {}, {}, {}, set()
            for number in range(bench.rounds(5, 2)):
                for way in in_turn(ways, number):
                    data, at = ways[way]
                    shim = None
                    if way != base:
                        full = settings[way]
                        shim = Shim(full.library, full.prefix, full.name, str(ram), stats,
                                    more=full.more)
                    forget_pages(local)
                    have_memory(400)
                    load = Load()
                    bound = own[job] + ram + SLACK
                    with origin(bench, local,
                                at), MemoryGroup(bound + (HEADROOM if shim else 0)) as group:
                        text, _ = run_in(group, command_of(bench, job, data, local), shim)
                        most[way] = group.most_bytes()
                    found = found_by(bench, job, text)
                    speeds.setdefault(way, []).extend(epoch["samples_per_s"] for epoch in found)
                    sums.add(tuple(epoch["checksum"] for epoch in found))
                    loads.setdefault(way, []).append(load.share_of_others())
                    if shim:
                        reports[way] = exit_report(stats)
            if len(sums) != 1:
                raise BenchError(f"{job}: the checksums differ")
            for way in ways:
                share = spread([a / b for a, b in zip(speeds[way], speeds[base])])
                rows.append((job, way, spread(speeds[way]).text(0), share.text(),
                             where_from(reports.get(way)), f"{most[way] / 1e6:.0f}",
                             f"{spread(loads[way]).median:.0%}"))
                if way == list(ways)[1]:
                    section.targets.append(
                        Target(f"data 4 x the memory, all on the disk, {job}: against ext4",
                               ">= 1.0 x", f"{share.text()} x", share.median >= 1.0
                               and most[way] <= bound,
                               f"with {most[way] / bound:.2f} x of the memory that ext4 may use"))
            section.data[f"data 4 x the memory, {job}"] = {
                "samples_per_s": speeds, "reports": reports, "ram": ram, "own": own[job]
            }
    section.tables.append(
        Table(
            "Data 4 x the memory, all of it on the disk: samples a second",
            f"{files.line()}; a second job, {EPOCHS} epochs, each in its own random order. A"
            f" control group limits the memory: {ram / 1e6:.0f} MB, {SLACK >> 20} MiB and the"
            " memory of the job's own processes. It includes the page cache of `local ext4` and"
            " the region of the others, whose CUBESHIM_RAM is a quarter of the data; their groups"
            f" allow {HEADROOM >> 20} MiB more, which the shim leaves alone. `most` is the most"
            " that was used in the last round. `reader` is one Python process (open, read, CRC),"
            " `DataLoader` bench/jobs/train.py --no-train with PIL and 2 workers. All of them ask"
            " the origin for stats; if it has a latency, each file waits for that, unless threads"
            " gather the stats (`stats gathered`: CUBESHIM_PREFETCH is on, as it is by default;"
            " nothing is announced). From: RAM / disk / origin, by opens.",
            ("job", "way", "samples/s", "of ext4", "from", "most, MB", "others' CPU"),
            rows))


def where_from(report: dict | None) -> str:
    if report is None:
        return "-"
    from_origin = report["misses"] + sum(report["bypassed"].values())
    return f"{report['hits']['ram']} / {report['hits']['disk']} / {from_origin}"


def operations(mount: SlowMount, count: int) -> dict[str, float]:
    return {name: mount.on_data(name) / count for name in KEPT}


def measure_second_job(bench: Bench, section: Section) -> None:
    local = bench.sets["mix"].path
    count = len(data_files(local))
    at, stats = bench.work / "mount", bench.work / "report.json"
    rows, found = [], {}
    with disk_directory(bench) as disk:
        settings = bench.shim(at, more=disk_settings(disk))
        shim = Shim(settings.library, at, settings.name, settings.ram, stats, more=settings.more)
        region = shim.region
        for way, own in (("without the shim", None), ("first job, killed", shim), ("second job",
                                                                                   shim)):
            forget_pages(local)
            with bench.mount(local, at=at) as mount:
                mount.reset()
                command = reader_command(bench, at, local, 1, waits=True)
                with subprocess.Popen(command, env=child_environment(own), stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True) as job:
                    epoch = json.loads(job.stdout.readline())
                    found[way] = operations(mount, count) | epoch
                    if way == "first job, killed":
                        wait_for_disk(bench, shim, count)
                        job.send_signal(signal.SIGKILL)
                    job.stdin.close()
            if way == "first job, killed":
                # A restart of the machine would remove the region, too.
                region.unlink(missing_ok=True)
            rate = f"{exit_report(stats)['hit_rate']:.2%}" if way == "second job" else "-"
            rows.append((way, *(f"{found[way][name]:.2f}" for name in KEPT), rate,
                         f"{epoch['samples_per_s']:.0f}"))
    if len({row["checksum"] for row in found.values()}) != 1:
        raise BenchError("the second job has read other bytes")
    second = found["second job"]
    asked = sum(second[name] for name in KEPT)
    section.data["second job after SIGKILL"] = found
    section.targets += [
        Target("second job after SIGKILL: reads at the origin", "0 a file", f"{second['read']:.2f}",
               second["read"] == 0),
        Target("second job after SIGKILL: operations at the origin", "1 stat a file, 0 opens",
               f"{asked - second['open']:.2f} and {second['open']:.2f}", second["open"] == 0
               and asked <= 1.01)
    ]
    section.tables.append(
        Table(
            "A second job after SIGKILL of the first: operations at the origin, for each file",
            f"{count} files of the mix, a mount with {LATENCY_US} us an operation, counted by the"
            " mount itself; each job has a new mount, so the kernel remembers nothing. Everything"
            " that the first job had in memory is gone, too.",
            ("job", *(name.upper() for name in KEPT), "hit rate", "files/s"), rows))
