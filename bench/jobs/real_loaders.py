"""Measures the loaders that programs really use, without decoding and with warm caches. Compares
files under the prefix with the local disk's page cache."""

from __future__ import annotations

from bench.harness.contest import Passes, alternate, figures, ratios, spread
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench
from bench.jobs.loaders import TWIN

PYTHON = ("open().read()", "np.fromfile", "torchvision.io.read_file", "np.memmap")
C = {"std::ifstream": "ifstream", "fopen+fread": "fread"}
WANTED = 1.3


def measure_loaders(bench: Bench) -> Section:
    section = Section("real loaders")
    data, limit = bench.sets["mix"].path, 1000
    rows = []
    for loader in PYTHON:
        found = alternate([
            bench.loader("ext4", data, loader, limit=limit),
            bench.loader("hit", data, loader, bench.shim(), limit=limit),
            bench.loader("interpreter", data, loader + TWIN, limit=limit)
        ], bench.rounds(21, 9))
        add(section, rows, loader, found)
    for loader, reader in C.items():
        found = alternate([
            bench.reader("ext4", data, reader=reader, limit=limit),
            bench.reader("hit", data, bench.shim(), reader=reader, limit=limit)
        ], bench.rounds(21, 9))
        add(section, rows, loader, found)
    section.tables.append(
        Table(
            "Real loaders, bytes only, warm: microseconds a file",
            "The first 1,000 files of the mix, each loader in a process of its own, alternately;"
            " every page of a mapped file is touched. \"interpreter\" is the same loop without the"
            " file calls (bytes that are in memory, io.BytesIO, np.frombuffer): no file layer can"
            " save that time, so \"ext4 / hit\" approaches 1 as its share grows. \"without"
            " interpreter\" is the ratio of the remaining times. Loaders also allocate a fresh"
            " buffer for each file, which the kernel must clear, on both sides alike.",
            ("loader", "ext4 warm", "hit", "interpreter", "ext4 / hit", "without interpreter"),
            rows))
    return section


def add(section: Section, rows: list[tuple[str, ...]], loader: str, found: dict[str,
                                                                                Passes]) -> None:
    ext4, hit, alone = found["ext4"], found["hit"], found.get("interpreter")
    gain = ratios(ext4, hit, True)
    own = spread(alone.us(True)).median if alone else 0.0
    rest = spread([(a - own) / max(b - own, 1e-3) for a, b in zip(ext4.us(True), hit.us(True))])
    rows.append((loader, spread(ext4.us(True)).text(), spread(hit.us(True)).text(),
                 f"{own:.2f}" if alone else "-", gain.text(), rest.text() if alone else "-"))
    section.data[loader] = figures(found)
    note = f"the interpreter alone takes {own:.1f} us; without it {rest.text()} x" if alone else ""
    section.targets.append(
        Target(f"{loader}: hit against ext4 warm", f">= {WANTED} x", f"{gain.text()} x", gain.median
               >= WANTED, note))
