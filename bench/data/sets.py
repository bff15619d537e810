"""Makes the files that `make bench` reads, and keeps them for later runs: sets of files of equal
size, the ImageNet mix, and a filler.

Every set is larger than a processor's caches, like the sets of a real job (the figures state the
size). So data that is read again comes from memory, not from L2."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
SEED = 20240501
FILES_PER_DIRECTORY = 500
MAKE_DATASET = Path(__file__).resolve().with_name("make_dataset.py")


@dataclass(frozen=True)
class SetPlan:
    name: str
    size: int  # bytes of each file; 0: the ImageNet mix
    count: int
    quick_count: int

    def files(self, quick: bool) -> int:
        return self.quick_count if quick else self.count


PLANS = (SetPlan("4k", 4 * KIB, 16000, 8000), SetPlan("64k", 64 * KIB, 3000,
                                                      1000), SetPlan("110k", 110 * KIB, 2500, 800),
         SetPlan("256k", 256 * KIB, 1500,
                 400), SetPlan("mix", 0, 4000, 2000), SetPlan("filler", 64 * KIB, 320, 320),
        )


@dataclass(frozen=True)
class FileSet:
    name: str
    path: Path
    count: int
    bytes: int

    def line(self) -> str:
        mean = self.bytes / self.count / 1e3
        return f"{self.name}: {self.count} files, {self.bytes / 1e6:.0f} MB, mean {mean:.1f} KB"


def make_sets(root: Path, quick: bool) -> dict[str, FileSet]:
    """Makes the sets below `root`; existing ones are reused."""
    return {plan.name: make_set(root, plan, plan.files(quick)) for plan in PLANS}


def make_mix(root: Path, count: int) -> FileSet:
    """Makes the mix with another number of files than in make_sets."""
    return make_set(root, next(plan for plan in PLANS if plan.name == "mix"), count)


def make_set(root: Path, plan: SetPlan, count: int) -> FileSet:
    path = root / f"{plan.name}-{count}"
    if plan.size:
        make_files(path, plan.size, count)
    else:
        subprocess.run(
            [sys.executable, MAKE_DATASET, path, "--count",
             str(count), "--seed",
             str(SEED)], check=True, stdout=subprocess.DEVNULL)
    sizes = [file.stat().st_size for file in data_files(path)]
    return FileSet(plan.name, path, len(sizes), sum(sizes))


def make_files(path: Path, size: int, count: int) -> None:
    done = path / ".complete"
    if done.exists():
        return
    numbers = random.Random(f"{SEED} {size}")
    for first in range(0, count, FILES_PER_DIRECTORY):
        directory = path / f"dir_{first // FILES_PER_DIRECTORY:03d}"
        directory.mkdir(parents=True, exist_ok=True)
        for index in range(first, min(first + FILES_PER_DIRECTORY, count)):
            (directory / f"file_{index:06d}.bin").write_bytes(numbers.randbytes(size))
    done.touch()


def data_files(path: Path) -> list[Path]:
    """Returns all files of a set except hidden ones, sorted by name."""
    return sorted(
        Path(directory, name)
        for directory, _, names in os.walk(path)
        for name in names
        if not name.startswith("."))


def write_list(path: Path, files: Iterable[Path | str]) -> Path:
    """Writes a list of files, one per line, in the format of readers and CUBESHIM_PREFETCH_LIST."""
    path.write_text("".join(f"{file}\n" for file in files))
    return path
