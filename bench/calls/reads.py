"""Measures the C reader (open, fstat, read, close) over sets of files: page cache, hit, miss and
full region. The lower bounds are a bare memcpy, and a reader that does only the work that no cache
can omit."""

from __future__ import annotations

from bench.harness.contest import (Passes, Spread, alternate, alternate_cold, figures, ratios,
                                   spread)
from bench.harness.load import Load
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench

SIZES = ("4k", "64k", "110k", "256k", "mix")
# If other programs use more than this share of the cores, two processes cannot run at the same
# time.
MOST_OTHERS = 0.1
EXT4, HIT, COPY, COPY_16, IDEAL = "ext4", "hit", "memcpy", "memcpy + 16", "ideal"
FULL = "full region"
WAYS = (EXT4, HIT, COPY, COPY_16, IDEAL)
RANGE_OF_HIT = (
    "A hit can be no faster than a copy of its bytes out of memory that no cache holds; it saves"
    " the kernel's share of open, fstat, read and close. So the gain is largest for small files,"
    " and approaches the ratio of the two copies for large ones. Below some 10 KB it is bounded by"
    " cache and TLB misses on the path, index, record and data, one after the other.")


def measure_reads(bench: Bench) -> Section:
    """Measures one process with files of every size."""
    section = Section("reads by one process")
    rows = []
    for name in SIZES:
        data = bench.sets[name].path
        found = alternate([
            bench.reader(EXT4, data),
            bench.reader(HIT, data, bench.shim()),
            bench.reader(COPY, data, reader="copy"),
            bench.reader(COPY_16, data, reader="copy-16"),
            bench.reader(IDEAL, data, reader="ideal")
        ], bench.rounds(25, 9))
        section.data[name] = figures(found)
        rows.append(row_of_reads(name, found))
        section.targets += targets_of_reads(name, found)
    section.tables.append(
        Table(
            "One C reader, warm: microseconds a file",
            "open, fstat, read, close of every file in a seeded random order: kernel page cache on"
            " the local disk; the same files as hits of the shim; the memcpy alone out of one"
            " mapped file in /dev/shm, on huge pages like the shim's region, to a page; the same"
            " memcpy to 16 bytes after the start of a page,"
            " as all readers but that one have it; and an ideal"
            " reader, which hashes the path, reads one slot, compares the path, copies the stat and"
            " has glibc's memcpy copy the bytes. "
            f"{RANGE_OF_HIT}\n" + "; ".join(bench.sets[name].line() for name in SIZES) + ".",
            ("files", *WAYS, "ext4 / hit", "hit / memcpy", "hit / memcpy + 16", "hit / ideal",
             "files/s by wall: ext4", "hit"), rows))
    return section


def row_of_reads(name: str, found: dict[str, Passes]) -> tuple[str, ...]:
    hit = found[HIT]
    return (name, *(spread(found[way].us(True)).text() for way in WAYS),
            ratios(found[EXT4], hit, True).text(),
            *(ratios(hit, found[way], True).text() for way in (COPY, COPY_16, IDEAL)),
            *(f"{spread(found[way].files_per_s()).median:,.0f}" for way in (EXT4, HIT)))


def targets_of_reads(name: str, found: dict[str, Passes]) -> list[Target]:
    gain, over = ratios(found[EXT4], found[HIT], True), ratios(found[HIT], found[COPY], True)
    if name == "4k":
        floor = ratios(found[HIT], found[IDEAL], True)
        return [
            Target("C reader, 4 KB: hit against ext4 warm", ">= 4.0 x", f"{gain.text()} x",
                   gain.median >= 4.0),
            Target("C reader, 4 KB: hit against the ideal reader", "<= 1.25 x", f"{floor.text()} x",
                   floor.median <= 1.25)
        ]
    if name == "mix":
        return [
            Target("C reader, mix: hit against ext4 warm", ">= 2.0 x", f"{gain.text()} x",
                   gain.median >= 2.0),
            Target("C reader, mix: hit against bare memcpy", "<= 1.10 x", f"{over.text()} x",
                   over.median <= 1.10)
        ]
    if name == "256k":
        return [
            Target("C reader, 256 KB: hit against bare memcpy", "<= 0.95 x", f"{over.text()} x",
                   over.median <= 0.95)
        ]
    return []


def measure_two_processes(bench: Bench) -> Section:
    """Measures two processes, each of which reads the whole set in a different order."""
    section = Section("reads by two processes")
    rows = []
    for name in ("4k", "mix"):
        data, load = bench.sets[name].path, Load()
        contenders = []
        for count in (1, 2):
            contenders += [
                bench.reader(f"{EXT4} {count}", data, processes=count, loops=2),
                bench.reader(f"{HIT} {count}", data, bench.shim(), processes=count, loops=2),
                bench.reader(f"{COPY} {count}", data, reader="copy", processes=count, loops=2)
            ]
        found = alternate(contenders, bench.rounds(15, 7))
        section.data[name] = figures(found)
        for way in (EXT4, HIT, COPY):
            one, two = found[f"{way} 1"], found[f"{way} 2"]
            by_wall, by_cpu = ratios(one, two), doubled(one, two)
            rows.append((name, way, f"{spread(one.files_per_s()).median:,.0f}",
                         f"{spread(two.files_per_s()).median:,.0f}", by_wall.text(), by_cpu.text()))
        section.targets.append(target_of_scaling(name, found, load.share_of_others()))
    section.tables.append(
        Table(
            "Two C readers at the same time",
            "Both processes are forked before the first file is read, and each reads the whole set"
            " in its own order, so they meet on index, records and data. files/s is of both"
            " together by wall time; \"scaling\" is that against one process. With other work on"
            " the machine two processes cannot have both cores, and the wall figure falls for"
            " every row alike; the figure by CPU time (2 x CPU a file alone / CPU a file together)"
            " then flatters, because the processes take turns. The memcpy row is the limit that"
            " the memory bus sets.",
            ("files", "way", "files/s, 1 process", "files/s, 2 processes", "scaling by wall",
             "scaling by CPU"), rows))
    return section


def target_of_scaling(name: str, found: dict[str, Passes], others: float) -> Target:
    """Uses wall time only. On a busy machine, the CPU time is too low: two processes that run
    alternately do not disturb each other."""
    hit, limit = (ratios(found[f"{way} 1"], found[f"{way} 2"]) for way in (HIT, COPY))
    by_cpu = doubled(found[f"{HIT} 1"], found[f"{HIT} 2"])
    note = f"memcpy alone scales {limit.text()}; by CPU time {by_cpu.text()}"
    if others > MOST_OTHERS:
        note += f"; others took {others:.0%} of the cores, so this says nothing of the shim"
    return Target(f"two processes, {name}: scaling of hits", ">= 1.8 x", f"{hit.text()} x",
                  hit.median >= 1.8, note)


def doubled(one: Passes, two: Passes) -> Spread:
    """Returns the speed of two processes that work at the same time, compared with the same work
    done sequentially."""
    return spread([2 * a / b for a, b in zip(one.us(True), two.us(True))])


def measure_miss(bench: Bench) -> Section:
    """Measures the first read of every file, with an empty region."""
    section = Section("misses")
    rows = []
    for name in ("4k", "110k", "mix"):
        data = bench.sets[name].path
        limit = 1000
        cold = ("--cold",)
        found = alternate_cold([
            lambda: bench.reader(EXT4, data, limit=limit, options=cold),
            lambda: bench.reader("miss", data, bench.shim(), limit=limit, options=cold)
        ], bench.rounds(9, 5))
        ext4, miss = found[EXT4], found["miss"]
        more = spread([b - a for a, b in zip(ext4.us(True), miss.us(True))])
        section.data[name] = figures(found)
        rows.append((name, spread(ext4.us(True)).text(), spread(miss.us(True)).text(), more.text(),
                     f"{spread(ext4.us()).median:.2f}", f"{spread(miss.us()).median:.2f}"))
    section.tables.append(
        Table(
            "The price of a miss: microseconds a file",
            "First pass of a new process over 1,000 files whose pages the kernel has: without the"
            " shim, and with an empty region. A miss does the plain read and then fills memory: it"
            " asks for the file's full stat, takes the flight of its path, reserves and clears new"
            " pages in /dev/shm, hashes the data and publishes it. So it costs more the larger the"
            " file is; on a slow origin the same microseconds come on top of some hundred of"
            " waiting.",
            ("files", "plain", "miss", "difference", "plain, wall", "miss, wall"), rows))
    return section


def measure_full_region(bench: Bench) -> Section:
    """Measures a full region, with which every open is passed to the mount."""
    section = Section("full region")
    rows = []
    for name in ("4k", "mix"):
        data = bench.sets[name].path
        found = alternate([bench.reader(EXT4, data), bench.full(FULL, data)], bench.rounds(41, 15))
        more = ratios(found[FULL], found[EXT4], True)
        section.data[name] = figures(found)
        rows.append(
            (name, *(spread(found[way].us(True)).text() for way in (EXT4, FULL)), more.text(3)))
        section.targets.append(
            Target(f"full region, {name}: pass-through against plain", "<= 1.05 x",
                   f"{more.text(3)} x", more.median <= 1.05))
    section.tables.append(
        Table(
            "A region that is full: microseconds a file",
            "The region has its least size and other files fill it, so every open of the set looks"
            " it up in vain and goes to the kernel. The lookup costs the same for every file, so"
            " its share is largest for small ones.",
            ("files", "plain", "full region", "ratio"), rows))
    return section
