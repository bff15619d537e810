"""Measures, on the slow mount, the operations of a second epoch and of the first epoch of cv2, and
the time of a first epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.harness.contest import Contender, in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.mount import SlowMount
from bench.harness.report import Section, Table, Target
from bench.harness.shim import Shim
from bench.harness.suite import LATENCY_US, Bench

PYTHON = ("PIL", "cv2.imread", "open().read()", "np.fromfile")
C = {"std::ifstream": "ifstream", "fopen+fread": "fread"}


def starters(bench: Bench, data: Path, names: Path,
             limit: int) -> dict[str, Callable[[Shim | None], Contender]]:
    found: dict[str, Callable[[Shim | None], Contender]] = {}
    for loader in PYTHON:
        found[loader] = lambda shim, loader=loader: bench.loader(loader, data, loader, shim, limit,
                                                                 names)
    for loader, reader in C.items():
        found[loader] = lambda shim, reader=reader: bench.reader(reader, data, shim, reader, limit=
                                                                 limit, names=names)
    return found


def measure_second_epoch(bench: Bench) -> Section:
    """Measures the second epoch. The first epoch is the contender's read for the digest, the second
    is its pass."""
    section = Section("second epoch on the slow mount")
    limit = bench.rounds(200, 100)
    rows = []
    local = bench.sets["mix"].path
    with bench.mount(local) as mount:
        for loader, start in starters(bench, mount.path, local, limit).items():
            cells, digests = [], set()
            for shim in (None, bench.shim(mount.path)):
                first, second, us, digest = operations_of(mount, start(shim))
                digests.add(digest)
                cells += [f"{first / limit:.2f}", f"{second / limit:.2f}", f"{us:.0f}"]
            if len(digests) != 1:
                raise BenchError(f"{loader}: not the same bytes with and without the shim")
            rows.append((loader, *cells))
            section.data[loader] = cells
            section.targets.append(
                Target(f"second epoch, {loader}: operations on data files", "0", str(second),
                       second == 0))
    section.tables.append(
        Table(
            f"Operations on data files of a mount with {LATENCY_US} us an operation, for each file",
            f"{limit} files of the mix, read twice by one process: LOOKUP, OPEN, READ, GETATTR and"
            " the like that reached the mount, counted by the mount itself (names are listed"
            " elsewhere). Without the shim the kernel keeps pages and asks again for names and"
            " opens; microseconds are wall time of the second epoch.",
            ("loader", "plain: epoch 1", "epoch 2", "us, epoch 2", "shim: epoch 1", "epoch 2",
             "us, epoch 2"), rows))
    return section


def operations_of(mount: SlowMount, contender: Contender) -> tuple[int, int, float, str]:
    """Returns the operations of the first and of the second epoch, the microseconds per file of the
    second epoch, and the digest."""
    with contender:
        mount.reset()
        contender.wait_until_ready()
        first = mount.data_operations()
        mount.reset()
        contender.run()
        second = mount.data_operations()
        return first, second, contender.passes.us()[0], contender.digest


def measure_first_epoch(bench: Bench) -> Section:
    section = Section("first epoch of cv2.imread without page cache")
    limit = bench.rounds(200, 100)
    rows = []
    found: dict[str, dict[str, float]] = {}
    local = bench.sets["mix"].path
    for name in ("plain", "shim"):
        with bench.mount(local, 0, direct=True) as mount:
            shim = bench.shim(mount.path) if name == "shim" else None
            mount.reset()
            with bench.loader(name, mount.path, "cv2.imread", shim, limit, local) as contender:
                contender.wait_until_ready()
                found[name] = {
                    key: mount.on_data(key) / limit for key in ("lookup", "getattr", "open", "read")
                }
        rows.append((name, *(f"{count:.2f}" for count in found[name].values())))
    section.data.update(found)
    section.targets.append(
        Target("first epoch of cv2.imread, --direct: OPENs and READs a file", "at most 1 and 2",
               f"{found['shim']['open']:.2f} and {found['shim']['read']:.2f}",
               found["shim"]["open"] <= 1.0 and found["shim"]["read"] <= 2.0,
               f"plain {found['plain']['open']:.2f} and {found['plain']['read']:.2f}"))
    section.tables.append(
        Table(
            "First epoch of cv2.imread on a mount without page cache: operations for each file",
            f"{limit} files, lagfs --direct. cv2 opens a file twice and reads it in pieces of 4 KB;"
            " the shim opens it once and"
            " reads it whole.", ("way", "LOOKUP", "GETATTR", "OPEN", "READ"), rows))
    return section


def measure_unannounced(bench: Bench) -> Section:
    """Measures a first epoch without announcements, in which each open asks the origin, as without
    the shim."""
    section = Section("unannounced first epoch")
    limit = bench.rounds(500, 200)
    rows = []
    for name in ("4k", "110k", "256k", "mix"):
        local = bench.sets[name].path
        us: dict[str, list[float]] = {"bare": [], "shim": []}
        operations: dict[str, float] = {}
        for number in range(bench.rounds(12, 6)):
            for way in in_turn(us, number):
                # Uses a new mount each time, because the kernel keeps names and pages of an old
                # mount.
                with bench.mount(local) as mount:
                    mount.reset()
                    shim = bench.shim(mount.path) if way == "shim" else None
                    with bench.reader(way, mount.path, shim, limit=limit, options=("--cold",),
                                      names=local) as contender:
                        contender.run()
                        operations[way] = mount.data_operations() / limit
                        contender.finish()
                    us[way] += contender.passes.us()
        share = spread([bare / shim for bare, shim in zip(us["bare"], us["shim"])])
        rows.append((name, *(spread(found).text(0) for found in us.values()), share.text(),
                     *(f"{count:.2f}" for count in operations.values())))
        section.data[name] = us
        section.targets.append(
            Target(f"unannounced first epoch, {name}: speed against the bare mount", ">= 0.98",
                   share.text(), share.median >= 0.98))
    section.tables.append(
        Table(
            f"First epoch of a plain reader, nothing announced, {LATENCY_US} us an operation",
            f"open, fstat, read, close of {limit} files in random order, a new mount and a new"
            " process for each pass, alternately. Operations are those on data files that wait for"
            " the origin. The shim asks for one more GETATTR if a file is larger than 128 KiB or"
            " was changed less than a minute ago.",
            ("files", "bare, us a file", "shim", "shim's speed / bare", "operations, bare", "shim"),
            rows))
    return section
