"""Packs on the slow mount: a file of a pack against the same file as it is, and how long torchvision's ImageFolder takes to find
its files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench_contest import BenchError, Shim, alternate_cold, child_environment, ratios, spread
from bench_report import Section, Table, Target
from bench_sets import PLANS, make_set
from bench_slow import LATENCY_US, mounted
from bench_suite import Bench

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
        subprocess.run([bench.build / "cubeshim", "pack", "-q", tree, file], check=True, stdout=subprocess.DEVNULL)


def packed_shim(bench: Bench, prefix: Path, file: Path, **more: str) -> Shim:
    return bench.shim(prefix, more={"CUBESHIM_PACKS": f"{prefix}={file}", **more})


def make_sources(bench: Bench) -> tuple[Path, Path, Path]:
    """A directory with the mix and many small classes, and the pack of each beside it."""
    folder = bench.work / "packs"
    folder.mkdir(parents=True, exist_ok=True)
    mix = make_set(folder, next(plan for plan in PLANS if plan.name == "mix"), bench.rounds(2000, 1000)).path
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
    with mounted(bench, folder, LATENCY_US, direct=True) as mount:
        tree, file = mount.path / mix.name, mount.path / f"{mix.name}.cube"
        found = alternate_cold(
            [lambda: bench.reader("plain", tree, limit=limit, options=("--cold",), names=mix),
             lambda: bench.reader("packed", prefix, packed_shim(bench, prefix, file), limit=limit, options=("--cold",), names=mix)],
            bench.rounds(5, 3))
    gain = ratios(found["plain"], found["packed"])
    section.data["reader"] = {name: passes.us() for name, passes in found.items()}
    section.tables.append(Table(
        "A C reader, cold, of plain files and of a pack: microseconds a file",
        f"{limit} files of the mix in random order on a mount with {LATENCY_US} us an operation and without page cache, wall time,"
        " the cache of the shim empty: lookups, open, fstat, read and close of a file against one read of the pack.",
        ("way", "us a file", "plain / packed"),
        [("plain", spread(found["plain"].us()).text(0), ""), ("packed", spread(found["packed"].us()).text(0), gain.text())]))
    section.targets.append(Target("packs: a C reader, cold, against plain files", ">= 4 x", f"{gain.text()} x", gain.median >= 4))


def scan(root: Path, shim: Shim | None) -> tuple[float, int, str]:
    done = subprocess.run([PYTHON, "-W", "ignore", "-c", SCAN, root], env=child_environment(shim), check=True, capture_output=True, text=True)
    seconds, files, digest = done.stdout.split()
    return float(seconds), int(files), digest


def measure_scan(bench: Bench, section: Section, folder: Path, tree: Path, prefix: Path) -> None:
    seconds: dict[str, list[float]] = {"plain": [], "packed": []}
    seen, operations = set(), {}
    for number in range(bench.rounds(5, 3)):
        # A mount of its own for each, so that the kernel knows no names yet.
        for way in ("plain", "packed") if number % 2 == 0 else ("packed", "plain"):
            with mounted(bench, folder, LATENCY_US) as mount:
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
        f"{files:,} files in {files // 100:,} classes, a fresh mount with {LATENCY_US} us an operation for each run (lookup, getattr, readdir,"
        " read), wall time of the constructor.",
        ("way", "s", "operations of the mount", "plain / packed"),
        [(way, spread(found).text(), f"{operations[way]:,}", gain.text() if way == "packed" else "") for way, found in seconds.items()]))
    section.targets.append(Target("packs: an ImageFolder scan against plain directories", ">= 20 x", f"{gain.text()} x", gain.median >= 20))


def measure_packs(bench: Bench) -> Section:
    section = Section("packs")
    folder, mix, tree = make_sources(bench)
    prefix = bench.work / "packed"  # that nobody makes
    measure_reader(bench, section, folder, mix, prefix)
    measure_scan(bench, section, folder, tree, prefix)
    return section
