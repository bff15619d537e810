"""Measures packs on the slow mount: a file of a pack compared with the same file unpacked, the time
that torchvision's ImageFolder takes to find its files, and the share of the mount's bandwidth that
the prefetch of a list reaches."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import subprocess
import tempfile
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
PYTHON = "/usr/bin/python3"  # has torchvision
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
        subprocess.run([bench.command, "pack", "-q", tree, file], check=True,
                       stdout=subprocess.DEVNULL)


def packed_shim(bench: Bench, prefix: Path, file: Path, **more: str) -> Shim:
    return bench.shim(prefix, more={"CUBESHIM_PACKS": f"{prefix}={file}", **more})


def make_sources(bench: Bench) -> tuple[Path, Path, Path]:
    """Makes a directory with the mix and many small classes, and the pack of each next to it."""
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
        found = alternate_cold([
            lambda: bench.reader("plain", tree, limit=limit, options=("--cold",), names=mix),
            lambda: bench.reader("packed", prefix, packed_shim(bench, prefix, file), limit=limit,
                                 options=("--cold",), names=mix)
        ], bench.rounds(5, 3))
    gain = ratios(found["plain"], found["packed"])
    section.data["reader"] = {name: passes.us() for name, passes in found.items()}
    section.tables.append(
        Table(
            "A C reader, cold, of plain files and of a pack: microseconds a file",
            f"{limit} files of the mix in random order on a mount with {LATENCY_US} us an"
            " operation and without page cache, wall time, the cache of the shim empty: lookups,"
            " open, fstat, read and close of a file against one read of the pack.",
            ("way", "us a file", "plain / packed"),
            [("plain", spread(found["plain"].us()).text(0), ""),
             ("packed", spread(found["packed"].us()).text(0), gain.text())]))
    section.targets.append(
        Target("packs: a C reader, cold, against plain files", ">= 4 x", f"{gain.text()} x",
               gain.median >= 4))


def scan(root: Path, shim: Shim | None) -> tuple[float, int, str]:
    done = subprocess.run([PYTHON, "-W", "ignore", "-c", SCAN, root], env=child_environment(shim),
                          check=True, capture_output=True, text=True)
    seconds, files, digest = done.stdout.split()
    return float(seconds), int(files), digest


def measure_scan(bench: Bench, section: Section, folder: Path, tree: Path, prefix: Path) -> None:
    ways = ("plain", "packed", "tmpfs")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    seen, operations = set(), dict.fromkeys(ways, 0)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cubeshim-scan-") as memory:
        copy = Path(memory) / tree.name
        shutil.copytree(tree, copy)
        for number in range(bench.rounds(9, 3)):
            # Each way has its own mount, so that the kernel has cached no names yet.
            for way in in_turn(ways, number):
                with bench.mount(folder) as mount:
                    packed = packed_shim(bench, prefix, mount.path /
                                         f"{tree.name}.cube") if way == "packed" else None
                    mount.reset()
                    root = {"plain": mount.path / tree.name, "packed": prefix, "tmpfs": copy}[way]
                    took, files, digest = scan(root, packed)
                    total = mount.counters().get("total")
                    operations[way] = total["count"] if isinstance(total, dict) else 0
                seconds[way].append(took)
                seen.add((files, digest))
    if len(seen) != 1:
        raise BenchError("ImageFolder: not the same files in the tree, in the pack and on tmpfs")
    gain = spread([a / b for a, b in zip(seconds["plain"], seconds["packed"])])
    share = spread([a / b for a, b in zip(seconds["packed"], seconds["tmpfs"])])
    section.data["scan"] = seconds
    files = next(iter(seen))[0]
    beside = {"packed": gain.text(), "tmpfs": share.text()}
    section.tables.append(
        Table(
            "torchvision's ImageFolder: seconds until its files are known",
            f"{files:,} files in {files // 100:,} classes, a fresh mount with {LATENCY_US} us an"
            " operation for each run (lookup, getattr, readdir, read), wall time of the"
            " constructor.",
            ("way", "s", "operations of the mount", "plain / packed; packed / tmpfs"),
            [(way, spread(found).text(), f"{operations[way]:,}", beside.get(way, ""))
             for way, found in seconds.items()]))
    section.targets.append(
        Target("packs: an ImageFolder scan against plain directories", ">= 20 x",
               f"{gain.text()} x", gain.median >= 20))
    section.targets.append(
        Target("packs: an ImageFolder scan against tmpfs", "<= 1.15 x", f"{share.text()} x",
               share.median <= 1.15))


class NewMemory:
    """Unused memory of a tmpfs, as a cache uses it, in pages of 2 MiB if the kernel provides
    them."""

    HUGE = 2 << 20

    def __init__(self, size: int) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
            ctypes.c_long
        ]
        self.libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.fd = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
        self.bytes = (size + self.HUGE - 1) // self.HUGE * self.HUGE
        os.ftruncate(self.fd, self.bytes)
        # Reserves a range of addresses that contains a multiple of 2 MiB to begin at.
        self.room = self.libc.mmap(None, self.bytes + self.HUGE, mmap.PROT_READ,
                                   mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        self.begin = (self.room + self.HUGE - 1) // self.HUGE * self.HUGE
        fixed = 0x10
        self.libc.mmap(self.begin, self.bytes, mmap.PROT_READ | mmap.PROT_WRITE,
                       mmap.MAP_SHARED | fixed, self.fd, 0)

    def make(self, at: int) -> None:
        """Allocates memory for the 2 MiB that begin at `at`."""
        collapse = 25
        os.posix_fallocate(self.fd, at, mmap.PAGESIZE)
        self.libc.madvise(self.begin + at, self.HUGE, collapse)

    def view(self, at: int, size: int) -> memoryview:
        return memoryview((ctypes.c_char * size).from_address(self.begin + at)).cast("B")

    def close(self) -> None:
        self.libc.munmap(self.room, self.bytes + self.HUGE)
        os.close(self.fd)


def read_in_pieces(file: Path, keeps: bool = False) -> float:
    """Returns the MB/s of threads that read the whole file and discard the bytes, which is the most
    that the mount can deliver. With `keeps`, the bytes are put into new memory of a tmpfs."""
    size = file.stat().st_size
    step = NewMemory.HUGE if keeps else PIECE
    offsets = iter(range(0, size, step))
    lock = threading.Lock()
    memory = NewMemory(size) if keeps else None

    def read(fd: int) -> None:
        room = memoryview(bytearray(0 if memory else PIECE))
        while True:
            with lock:
                begin = next(offsets, None)
            if begin is None:
                return
            if memory:
                memory.make(begin)
            for at in range(begin, min(begin + step, size), PIECE):
                os.preadv(fd, [memory.view(at, min(PIECE, size - at)) if memory else room], at)

    fd = os.open(file, os.O_RDONLY)
    threads = [threading.Thread(target=read, args=(fd,)) for _ in range(READERS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    os.close(fd)
    if memory:
        memory.close()
    return size / took / 1e6


def prefetch_list(bench: Bench, prefix: Path, file: Path, listed: Path, files: int) -> float:
    """Returns the MB/s at which `cubeshim warmup` loads a list from the pack into an empty
    cache."""
    shim = packed_shim(bench, prefix, file, CUBESHIM_RAM_KEEP="1")
    environment = child_environment(shim)
    environment.pop("LD_PRELOAD", None)
    try:
        done = subprocess.run([bench.command, "warmup", "-q", "--json", "--filelist", listed],
                              env=environment, check=True, capture_output=True, text=True)
    finally:
        subprocess.run([bench.command, "clear"], env=environment, check=False, capture_output=True)
    summary = json.loads(done.stdout)
    if summary["fetched"] != files:
        raise BenchError(
            f"of {files} files of the list {summary['fetched']} were fetched from the pack")
    return summary["fetched_bytes"] / summary["seconds"] / 1e6


def measure_list(bench: Bench, section: Section, folder: Path, prefix: Path) -> None:
    mix = make_mix(folder, bench.rounds(6000, 2000)).path
    file = folder / f"{mix.name}.cube"
    pack(bench, mix, file)
    paths = sorted(
        os.path.join(prefix, path.relative_to(mix)) for path in mix.rglob("*") if path.is_file())
    listed = write_list(bench.work / "pack-list", paths)
    ways = ("reader", "keeper", "list")
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(bench.rounds(7, 3)):
        # Each way has its own mount.
        for way in in_turn(ways, number):
            with bench.mount(folder, direct=True) as mount:
                there = mount.path / file.name
                rates[way].append(
                    prefetch_list(bench, prefix, there, listed, len(paths)) if way ==
                    "list" else read_in_pieces(there, keeps=way == "keeper"))
    shares = {
        way: spread([a / b
                     for a, b in zip(rates["list"], rates[way])])
        for way in ("reader", "keeper")
    }
    section.data["list"] = rates
    section.tables.append(
        Table(
            "A list in the order of the pack, prefetched: MB/s",
            f"{len(paths):,} files of the mix, a fresh mount with {LATENCY_US} us an operation and"
            " without page cache for each run; `cubeshim warmup` into an empty cache against"
            f" {READERS} threads that read the pack in pieces of {PIECE >> 20} MiB: the reader"
            " throws them away, the keeper puts them into new memory of a tmpfs.",
            ("way", "MB/s", "list / this"),
            [(way, spread(found).text(0), shares[way].text() if way in shares else "")
             for way, found in rates.items()]))
    share = shares["reader"]
    section.targets.append(
        Target("packs: a list prefetched against the mount's bandwidth", f">= {WANTED_SHARE} x",
               f"{share.text()} x", share.median >= WANTED_SHARE))


def measure_packs(bench: Bench) -> Section:
    section = Section("packs")
    folder, mix, tree = make_sources(bench)
    prefix = bench.work / "packed"  # does not exist
    measure_reader(bench, section, folder, mix, prefix)
    measure_scan(bench, section, folder, tree, prefix)
    measure_list(bench, section, folder, prefix)
    return section
