"""Measures the cost of reading a large file: blocks that are present in the region, and a file that
is read only one time."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.harness.contest import Passes, figures, in_turn, ratios, spread
from bench.harness.errors import BenchError
from bench.harness.mount import STOP_SECONDS, SlowMount, end
from bench.harness.pages import forget_pages, have_memory
from bench.harness.report import Section, Table, Target
from bench.harness.shim import Shim, child_environment
from bench.harness.suite import Bench
from bench.large.jobs import MEGABYTE, random_bytes
from bench.large.large import BANDWIDTH_MB, BLOCKS, LATENCY_US

ROUNDS = 5
READ_OFTEN, READ_ONCE = 64 * MEGABYTE, 256 * MEGABYTE
# Maps the bytes of a read to the number of reads in a round, which take some 50 ms.
READS = {4 << 10: 65536, 64 << 10: 8192, MEGABYTE: 512}
MOST = {4 << 10: 1.0, MEGABYTE: 1.15}
MOST_ONCE = 1.03
HIT, BESIDE, WRITTEN = "hit", "local, same process", "local, written"
READ, COPY = "local, read", "memcpy"
COMPARED = (WRITTEN, READ, BESIDE, COPY)
BARE, SHIM = "bare mount", "library"


class Reader:
    """The program cubeshim_large_reads, which executes the commands that its header describes."""
    def __init__(self, program: Path, files: list[Path], shim: Shim | None = None):
        self._child = subprocess.Popen([program, *files], env=child_environment(shim),
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        # Even after an error, the process is not killed, because a killed process would leave its
        # region behind.
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        end(self._child, first_wait=STOP_SECONDS)
        self._child.stdout.close()
        if self._child.returncode and kind is None:
            raise BenchError(f"cubeshim_large_reads ended with {self._child.returncode}")

    def ask(self, *words: object) -> dict:
        # If the process has ended, the missing answer is reported instead.
        with suppress(BrokenPipeError):
            self._child.stdin.write(" ".join(map(str, words)) + "\n")
            self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise BenchError(f"cubeshim_large_reads ended with {self._child.wait()}")
        return json.loads(line)

    def time(self, passes: Passes, *words: object) -> dict:
        answer = self.ask(*words)
        passes.wall_ns.append(answer["wall_ns"])
        passes.cpu_ns.append(answer["cpu_ns"])
        return answer


@dataclass(frozen=True)
class Way:
    reader: Reader
    word: str
    file: int


def program_of(bench: Bench) -> Path:
    program = bench.build / "cubeshim_large_reads"
    if not program.exists():
        raise BenchError(f"{program} is missing: build it first with make")
    return program


def file_of(bench: Bench, size: int) -> Path:
    """Returns a file of random bytes, which is alone in its directory."""
    file = bench.data / f"large-reads-{size // MEGABYTE}" / "file.bin"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".part")
        with half.open("wb") as to:
            for number in range(size // MEGABYTE):
                to.write(random_bytes(number, MEGABYTE))
            # Only pages that are on the disk can be dropped.
            to.flush()
            os.fsync(to.fileno())
        half.rename(file)
    return file


def warm(program: Path, local: Path, written: Path) -> None:
    """Loads the pages of both files, which have the same bytes, into memory: the pages of `local`
    by a read, the pages of `written` by a write. Compared with `local`, a read of `written` takes
    0.8 times as long, and a read of pages that came through the server of a mount takes more than
    twice as long. So both files are prepared again before anything is mounted."""
    forget_pages(local)
    with Reader(program, [local]) as reader:
        reader.ask("digest", 0)
    written.unlink(missing_ok=True)
    with written.open("wb") as to:
        to.write(local.read_bytes())
        to.flush()
        os.fsync(to.fileno())


def slow_mount(bench: Bench, source: Path) -> SlowMount:
    return SlowMount(bench.lagfs, source, bench.work, LATENCY_US, bandwidth_mb=BANDWIDTH_MB)


def time_reads(ways: dict[str, Way], size: int, rounds: int) -> dict[str, Passes]:
    found = {name: Passes(name, READS[size]) for name in ways}
    for number in range(rounds):
        for name in in_turn(ways, number):
            way = ways[name]
            way.reader.time(found[name], way.word, way.file, size, READS[size])
    return found


def check_same_bytes(digests: set[str]) -> None:
    if len(digests) != 1:
        raise BenchError("large-reads: not the same bytes in all ways")


def measure_present(bench: Bench, local: Path,
                    rounds: int = ROUNDS) -> dict[int, dict[str, Passes]]:
    """Measures each read size. All bytes were read twice before: the first read fetches the bytes,
    the second maps them."""
    program, written = program_of(bench), bench.work / "written.bin"
    warm(program, local, written)
    with slow_mount(bench, local.parent) as mount:
        shim = bench.shim(mount.path, more=BLOCKS)
        with Reader(program, [mount.path / local.name, written],
                    shim) as shimmed, Reader(program, [written, local]) as plain:
            ways = {
                HIT: Way(shimmed, "pread", 0), BESIDE: Way(shimmed, "pread", 1),
                WRITTEN: Way(plain, "pread", 0), READ: Way(plain, "pread",
                                                           1), COPY: Way(plain, "copy", 0)
            }
            check_same_bytes({
                way.reader.ask("digest", way.file)["digest"]
                for _ in range(2)
                for way in ways.values()
            })
            mount.reset()
            found = {size: time_reads(ways, size, rounds) for size in READS}
            if mount.bytes_read():
                raise BenchError(
                    f"large-reads: {mount.bytes_read()} bytes of the origin, where all are present")
    written.unlink()
    return found


def row_of_present(size: int, found: dict[str, Passes]) -> tuple[str, ...]:
    return (f"{size >> 10} KiB", *(spread(passes.us(True)).text() for passes in found.values()),
            *(ratios(found[HIT], found[way], True).text() for way in COMPARED),
            ratios(found[HIT], found[WRITTEN]).text())


def targets_of_present(size: int, found: dict[str, Passes]) -> list[Target]:
    if size not in MOST:
        return []
    over = ratios(found[HIT], found[WRITTEN], True)
    return [
        Target(
            f"large file, pread of {size >> 10} KiB that are present: against a warm local file",
            f"<= {MOST[size]} x", f"{over.text()} x", over.median <= MOST[size],
            f"by wall time {ratios(found[HIT], found[WRITTEN]).text()}; against one that was read,"
            f" by CPU time {ratios(found[HIT], found[READ], True).text()}")
    ]


def measure_once(bench: Bench, local: Path,
                 rounds: int = ROUNDS) -> tuple[dict[str, Passes], dict[str, list[float]]]:
    """Returns the times, and the megabytes read from the mount. Each job has its own mount and
    region."""
    program = program_of(bench)
    found = {name: Passes(name, 1) for name in (BARE, SHIM)}
    megabytes = {name: [] for name in found}
    digests = set()
    for number in range(rounds):
        for name in in_turn(found, number):
            forget_pages(local)
            have_memory(2 * local.stat().st_size // MEGABYTE)
            with slow_mount(bench, local.parent) as mount:
                shim = bench.shim(mount.path, more=BLOCKS) if name == SHIM else None
                with Reader(program, [mount.path / local.name], shim) as reader:
                    digests.add(reader.time(found[name], "stream", 0, MEGABYTE)["digest"])
                megabytes[name].append(mount.bytes_read() / 1e6)
    check_same_bytes(digests)
    return found, megabytes


def row_of_once(name: str, found: dict[str, Passes],
                megabytes: dict[str, list[float]]) -> tuple[str, ...]:
    return (name,
            *(spread([us / 1e6 for us in found[name].us(cpu)]).text(3) for cpu in (False, True)),
            spread(megabytes[name]).text(1),
            ratios(found[name], found[BARE]).text(3) if name != BARE else "-")


def targets_of_once(found: dict[str, Passes]) -> list[Target]:
    over = ratios(found[SHIM], found[BARE])
    return [
        Target("large file that is read once: time against the bare mount", f"<= {MOST_ONCE} x",
               f"{over.text(3)} x", over.median <= MOST_ONCE)
    ]


def measure_large_reads(bench: Bench) -> Section:
    section = Section("reads of large files")
    present = measure_present(bench, file_of(bench, READ_OFTEN))
    rows = []
    for size, found in present.items():
        section.data[f"{size >> 10} KiB"] = figures(found)
        rows.append(row_of_present(size, found))
        section.targets += targets_of_present(size, found)
    section.tables.append(
        Table(
            "Reads of a large file that are answered from memory: microseconds of CPU time a read",
            "pread at random places that are multiples of its size, the same in all columns, of a"
            f" file of {READ_OFTEN // MEGABYTE} MiB. `{HIT}`: on the mount, all of it present in"
            f" the region. `{WRITTEN}`: a copy on the local disk, in the page cache since it was"
            f" written, read by a process without the library. `{READ}`: the file itself, in the"
            f" page cache since one plain read of it. `{BESIDE}`: the copy, read by the process of"
            f" `{HIT}`, whose library has no part in it. `{COPY}`: the same bytes out of huge"
            " pages, 64 KiB at a time, the floor.",
            ("read", HIT, BESIDE, WRITTEN, READ, COPY, *(f"{HIT} / {way}" for way in COMPARED),
             f"{HIT} / {WRITTEN}, by wall"), rows))
    once, megabytes = measure_once(bench, file_of(bench, READ_ONCE))
    section.data["once"] = figures(once) | {"megabytes": megabytes}
    section.targets += targets_of_once(once)
    section.tables.append(
        Table(
            f"A file of {READ_ONCE // MEGABYTE} MiB that is read once: seconds",
            f"open, read(2) of 1 MiB from beginning to end, close. The origin takes {LATENCY_US}"
            f" us an operation and gives {BANDWIDTH_MB} MB/s, so it alone takes"
            f" {READ_ONCE / 1e6 / BANDWIDTH_MB:.2f} s. Each time is of a new process, with a mount"
            " and a region of its own; the making of the region is part of it.",
            ("way", "wall time", "CPU time of the process", "origin MB", "against bare"),
            [row_of_once(name, once, megabytes) for name in once]))
    return section
