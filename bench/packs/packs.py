"""Packs on the slow mount: a file of a pack against the same file as it is, how long torchvision's ImageFolder takes to find its
files, and how much of the mount's bandwidth a list is prefetched with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

from bench.data.sets import make_mix, write_list
from bench.harness.contest import alternate_cold, in_turn, ratios, spread
from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.shim import Shim, child_environment
from bench.harness.suite import LATENCY_US, Bench

WANTED_SHARE = 0.9
READERS, PIECE = 32, 1 << 20
PYTHON = "/usr/bin/python3"  # that has torchvision
SCAN = """
import hashlib, sys, time
from torchvision.datasets import ImageFolder
began = time.monotonic()
found = ImageFolder(sys.argv[1])
took = time.monotonic() - began
names = "".join(f"{path[len(sys.argv[1]):]} {label}\\n" for path, label in found.samples)
print(took, len(found.samples), hashlib.sha256(names.encode()).hexdigest())
"""


def pack(bench: Bench, tree: Path, file: Path) -> None:
    if not file.exists():
        subprocess.run([bench.command, "pack", "-q", tree, file], check=True, stdout=subprocess.DEVNULL)


def packed_shim(bench: Bench, prefix: Path, file: Path, **more: str) -> Shim:
    return bench.shim(prefix, more={"CUBESHIM_PACKS": f"{prefix}={file}", **more})


def make_sources(bench: Bench) -> tuple[Path, Path, Path]:
    """A directory with the mix and many small classes, and the pack of each beside it."""
    folder = bench.data / "packs"
    folder.mkdir(parents=True, exist_ok=True)
    mix = make_mix(folder, bench.rounds(2000, 1000)).path
    classes, files = bench.rounds(1000, 100), 100
    scan = folder / f"scan-{classes}"
    if not (folder / f"{scan.name}.cube").exists():
        shutil.rmtree(scan, ignore_errors=True)
        for number in range(classes):
            one = scan / f"class_{number:04d}"
            one.mkdir(parents=True)
            for index in range(files):
                (one / f"image_{index:05d}.jpg").touch()
    for tree in (mix, scan):
        pack(bench, tree, folder / f"{tree.name}.cube")
    return folder, mix, scan


def measure_reader(bench: Bench, section: Section, folder: Path, mix: Path, prefix: Path) -> None:
    limit = bench.rounds(1000, 300)
    with bench.mount(folder, direct=True) as mount:
        tree, file = mount.path / mix.name, mount.path / f"{mix.name}.cube"
        found = alternate_cold(
            [lambda: bench.reader("plain", tree, limit=limit, options=("--cold",), names=mix),
             lambda: bench.reader("packed", prefix, packed_shim(bench, prefix, file), limit=limit, options=("--cold",),
                                  names=mix)],
            bench.rounds(5, 3))
    gain = ratios(found["plain"], found["packed"])
    section.data["reader"] = {name: passes.us() for name, passes in found.items()}
    section.tables.append(Table(
        "A C reader, cold, of plain files and of a pack: microseconds a file",
        f"{limit} files of the mix in random order on a mount with {LATENCY_US} us an operation and without page cache, wall"
        " time, the cache of the shim empty: lookups, open, fstat, read and close of a file against one read of the pack.",
        ("way", "us a file", "plain / packed"),
        [("plain", spread(found["plain"].us()).text(0), ""), ("packed", spread(found["packed"].us()).text(0), gain.text())]))
    section.targets.append(Target("packs: a C reader, cold, against plain files", ">= 4 x", f"{gain.text()} x", gain.median >= 4))


def scan(root: Path, shim: Shim | None) -> tuple[float, int, str]:
    done = subprocess.run([PYTHON, "-W", "ignore", "-c", SCAN, root], env=child_environment(shim), check=True,
                          capture_output=True, text=True)
    seconds, files, digest = done.stdout.split()
    return float(seconds), int(files), digest


def measure_scan(bench: Bench, section: Section, folder: Path, tree: Path, prefix: Path) -> None:
    seconds: dict[str, list[float]] = {"plain": [], "packed": []}
    seen, operations = set(), {}
    for number in range(bench.rounds(5, 3)):
        # A mount of its own for each, so that the kernel knows no names yet.
        for way in in_turn(("plain", "packed"), number):
            with bench.mount(folder) as mount:
                packed = packed_shim(bench, prefix, mount.path / f"{tree.name}.cube") if way == "packed" else None
                mount.reset()
                took, files, digest = scan(prefix if packed else mount.path / tree.name, packed)
                operations[way] = mount.counters()["total"]["count"] if isinstance(mount.counters().get("total"), dict) else 0
            seconds[way].append(took)
            seen.add((files, digest))
    if len(seen) != 1:
        raise BenchError("ImageFolder: not the same files in the tree and in the pack")
    gain = spread([a / b for a, b in zip(seconds["plain"], seconds["packed"])])
    section.data["scan"] = seconds
    files = next(iter(seen))[0]
    section.tables.append(Table(
        "torchvision's ImageFolder: seconds until its files are known",
        f"{files:,} files in {files // 100:,} classes, a fresh mount with {LATENCY_US} us an operation for each run (lookup,"
        " getattr, readdir, read), wall time of the constructor.",
        ("way", "s", "operations of the mount", "plain / packed"),
        [(way, spread(found).text(), f"{operations[way]:,}", gain.text() if way == "packed" else "")
         for way, found in seconds.items()]))
    section.targets.append(Target("packs: an ImageFolder scan against plain directories", ">= 20 x", f"{gain.text()} x",
                                  gain.median >= 20))


def read_in_pieces(file: Path) -> float:
    """MB/s of threads that read all of it and throw it away: what the mount can give."""
    size = file.stat().st_size
    offsets = iter(range(0, size, PIECE))
    lock = threading.Lock()

    def read(fd: int) -> None:
        room = bytearray(PIECE)
        while True:
            with lock:
                at = next(offsets, None)
            if at is None:
                return
            os.preadv(fd, [room], at)

    fd = os.open(file, os.O_RDONLY)
    threads = [threading.Thread(target=read, args=(fd,)) for _ in range(READERS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    os.close(fd)
    return size / took / 1e6


def prefetch_list(bench: Bench, prefix: Path, file: Path, listed: Path, files: int) -> float:
    """MB/s with which `cubeshim warmup` loads a list from the pack into a cache that nobody has filled."""
    shim = packed_shim(bench, prefix, file, CUBESHIM_RAM_KEEP="1")
    environment = child_environment(shim)
    environment.pop("LD_PRELOAD", None)
    try:
        done = subprocess.run([bench.command, "warmup", "-q", "--json", "--filelist", listed], env=environment, check=True,
                              capture_output=True, text=True)
    finally:
        subprocess.run([bench.command, "clear"], env=environment, check=False, capture_output=True)
    summary = json.loads(done.stdout)
    if summary["fetched"] != files:
        raise BenchError(f"of {files} files of the list {summary['fetched']} were fetched from the pack")
    return summary["fetched_bytes"] / summary["seconds"] / 1e6


def measure_list(bench: Bench, section: Section, folder: Path, prefix: Path) -> None:
    mix = make_mix(folder, bench.rounds(6000, 2000)).path
    file = folder / f"{mix.name}.cube"
    pack(bench, mix, file)
    paths = sorted(os.path.join(prefix, path.relative_to(mix)) for path in mix.rglob("*") if path.is_file())
    listed = write_list(bench.work / "pack-list", paths)
    rates: dict[str, list[float]] = {"reader": [], "list": []}
    for number in range(bench.rounds(7, 3)):
        # A mount of its own for each.
        for way in in_turn(("reader", "list"), number):
            with bench.mount(folder, direct=True) as mount:
                there = mount.path / file.name
                rates[way].append(read_in_pieces(there) if way == "reader"
                                  else prefetch_list(bench, prefix, there, listed, len(paths)))
    share = spread([a / b for a, b in zip(rates["list"], rates["reader"])])
    section.data["list"] = rates
    section.tables.append(Table(
        "A list in the order of the pack, prefetched: MB/s",
        f"{len(paths):,} files of the mix, a fresh mount with {LATENCY_US} us an operation and without page cache for each run;"
        f" `cubeshim warmup` into an empty cache against {READERS} threads that read the pack in pieces of {PIECE >> 20} MiB and"
        " throw them away.",
        ("way", "MB/s", "list / reader"),
        [(way, spread(found).text(0), share.text() if way == "list" else "") for way, found in rates.items()]))
    section.targets.append(Target("packs: a list prefetched against the mount's bandwidth", f">= {WANTED_SHARE} x",
                                  f"{share.text()} x", share.median >= WANTED_SHARE))


def measure_packs(bench: Bench) -> Section:
    section = Section("packs")
    folder, mix, tree = make_sources(bench)
    prefix = bench.work / "packed"  # that nobody makes
    measure_reader(bench, section, folder, mix, prefix)
    measure_scan(bench, section, folder, tree, prefix)
    measure_list(bench, section, folder, prefix)
    return section
