"""On the slow mount: what the second epoch asks of it, what the first epoch of cv2 asks, and the DataLoader."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.harness.contest import BenchError, Contender, Shim, child_environment, spread
from bench.harness.load import process_seconds
from bench.harness.mount import check_fuse, count_data_operations, end, is_mounted, unmount
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench

LATENCY_US = 300
START_SECONDS = 15.0
TRAIN = Path(__file__).resolve().parents[1] / "jobs" / "train.py"
PYTHON = ("PIL", "cv2.imread", "open().read()", "np.fromfile")
C = {"std::ifstream": "ifstream", "fopen+fread": "fread"}


@dataclass(frozen=True)
class Mount:
    path: Path
    server: int  # pid

    def server_seconds(self) -> float:
        """CPU seconds that the mount's server has taken so far."""
        return process_seconds(self.server)

    def reset(self) -> None:
        (self.path / ".lagfs" / "reset").write_text("1\n")

    def counters(self) -> dict:
        return json.loads((self.path / ".lagfs" / "counters.json").read_text())

    def data_operations(self) -> int:
        return count_data_operations(self.counters())

    def bytes_read(self) -> int:
        return self.counters()["read"]["bytes"]

    def on_data(self, operation: str) -> int:
        return self.counters().get(operation, {}).get("data_files", 0)


@contextmanager
def mounted(bench: Bench, source: Path, latency_us: int, direct: bool = False, at: Path | None = None) -> Iterator[Mount]:
    """`at`: where, for one that is to come again in the same place."""
    check_fuse()
    path = at or Path(tempfile.mkdtemp(prefix="mount-", dir=bench.work))
    path.mkdir(exist_ok=True)
    delays = [word for name in ("lookup", "open", "read", "getattr") for word in (f"--{name}-us", str(latency_us))]
    child = subprocess.Popen([bench.lagfs, "--foreground", *(["--direct"] if direct else []), *delays, source, path],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_mounted(path):
            if child.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"lagfs did not mount {path}")
            time.sleep(0.02)
        yield Mount(path, child.pid)
    finally:
        unmount(path)
        end(child)
        if not is_mounted(path):
            path.rmdir()


def starters(bench: Bench, data: Path, names: Path, limit: int) -> dict[str, Callable[[Shim | None], Contender]]:
    found: dict[str, Callable[[Shim | None], Contender]] = {}
    for loader in PYTHON:
        found[loader] = lambda shim, loader=loader: bench.loader(loader, data, loader, shim, limit, names)
    for loader, reader in C.items():
        found[loader] = lambda shim, reader=reader: bench.reader(reader, data, shim, reader, limit=limit, names=names)
    return found


def measure_second_epoch(bench: Bench) -> Section:
    """A contender's first look at the set, for the digest, is the first epoch; its pass is the second."""
    section = Section("second epoch on the slow mount")
    limit = bench.rounds(200, 100)
    rows = []
    local = bench.sets["mix"].path
    with mounted(bench, local, LATENCY_US) as mount:
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
            section.targets.append(Target(f"second epoch, {loader}: operations on data files", "0", str(second),
                                          second == 0))
    section.tables.append(Table(
        f"Operations on data files of a mount with {LATENCY_US} us an operation, for each file",
        f"{limit} files of the mix, read twice by one process: LOOKUP, OPEN, READ, GETATTR and the like that reached the"
        " mount, counted by the mount itself (names are listed elsewhere). Without the shim the kernel keeps pages and asks"
        " again for names and opens;"
        " microseconds are wall time of the second epoch.",
        ("loader", "plain: epoch 1", "epoch 2", "us, epoch 2", "shim: epoch 1", "epoch 2", "us, epoch 2"), rows))
    return section


def operations_of(mount: Mount, contender: Contender) -> tuple[int, int, float, str]:
    """Operations of the first and of the second epoch, microseconds a file of the second, the digest."""
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
        with mounted(bench, local, 0, direct=True) as mount:
            shim = bench.shim(mount.path) if name == "shim" else None
            mount.reset()
            with bench.loader(name, mount.path, "cv2.imread", shim, limit, local) as contender:
                contender.wait_until_ready()
                found[name] = {key: mount.on_data(key) / limit for key in ("lookup", "getattr", "open", "read")}
        rows.append((name, *(f"{count:.2f}" for count in found[name].values())))
    section.data.update(found)
    section.targets.append(Target("first epoch of cv2.imread, --direct: OPENs and READs a file", "at most 1 and 2",
                                  f"{found['shim']['open']:.2f} and {found['shim']['read']:.2f}",
                                  found["shim"]["open"] <= 1.0 and found["shim"]["read"] <= 2.0,
                                  f"plain {found['plain']['open']:.2f} and {found['plain']['read']:.2f}"))
    section.tables.append(Table(
        "First epoch of cv2.imread on a mount without page cache: operations for each file",
        f"{limit} files, lagfs --direct. cv2 opens a file twice and reads it in pieces of 4 KB; the shim opens it once and"
        " reads it whole.", ("way", "LOOKUP", "GETATTR", "OPEN", "READ"), rows))
    return section


def measure_unannounced(bench: Bench) -> Section:
    """Nobody says what will be read: each open asks the origin, as it would without the shim."""
    section = Section("unannounced first epoch")
    limit = bench.rounds(500, 200)
    rows = []
    for name in ("4k", "110k", "256k", "mix"):
        local = bench.sets[name].path
        us: dict[str, list[float]] = {"bare": [], "shim": []}
        operations: dict[str, float] = {}
        for number in range(bench.rounds(12, 6)):
            for way in list(us)[::1 if number % 2 == 0 else -1]:
                # A new mount each time, for the kernel keeps names and pages of the last one.
                with mounted(bench, local, LATENCY_US) as mount:
                    mount.reset()
                    shim = bench.shim(mount.path) if way == "shim" else None
                    with bench.reader(way, mount.path, shim, limit=limit, options=("--cold",), names=local) as contender:
                        contender.run()
                        operations[way] = mount.data_operations() / limit
                        contender.finish()
                    us[way] += contender.passes.us()
        share = spread([bare / shim for bare, shim in zip(us["bare"], us["shim"])])
        rows.append((name, *(spread(found).text(0) for found in us.values()), share.text(),
                     *(f"{count:.2f}" for count in operations.values())))
        section.data[name] = us
        section.targets.append(Target(f"unannounced first epoch, {name}: speed against the bare mount", ">= 0.98",
                                      share.text(), share.median >= 0.98))
    section.tables.append(Table(
        f"First epoch of a plain reader, nothing announced, {LATENCY_US} us an operation",
        f"open, fstat, read, close of {limit} files in random order, a new mount and a new process for each pass, in turn."
        " Operations are those on data files that wait for the origin. The shim asks for one GETATTR more where a file is"
        " larger than 128 KiB or was changed less than a minute ago.",
        ("files", "bare, us a file", "shim", "shim's speed / bare", "operations, bare", "shim"), rows))
    return section


def measure_data_loader(bench: Bench) -> Section:
    section = Section("DataLoader")
    per_class = bench.rounds(80, 30)
    local = bench.sets["mix"].path
    rows = []
    with mounted(bench, local, LATENCY_US) as mount:
        for loader in ("cv2", "PIL"):
            ways = {"ext4, 2 workers": (local, 2, False), "mount with the shim, 2 workers": (mount.path, 2, True),
                    "mount alone, 2 workers": (mount.path, 2, False), "mount alone, 8 workers": (mount.path, 8, False)}
            speeds: dict[str, list[float]] = {way: [] for way in ways}
            sums = set()
            for number in range(bench.rounds(3, 1)):
                order = list(ways) if number % 2 == 0 else list(ways)[::-1]
                for way in order:
                    data, workers, shimmed = ways[way]
                    epochs = train(bench, data, workers, loader.lower(), per_class, bench.shim(mount.path) if shimmed else None)
                    speeds[way] += [epoch["samples_per_s"] for epoch in epochs[1:]]
                    sums.add(tuple(epoch["checksum"] for epoch in epochs))
            if len(sums) != 1:
                raise BenchError(f"DataLoader with {loader}: the epochs' checksums differ")
            section.data[loader] = speeds
            base = speeds["ext4, 2 workers"]
            for way, found in speeds.items():
                rows.append((loader, way, spread(found).text(0), spread([a / b for a, b in zip(found, base)]).text()))
            share = spread([a / b for a, b in zip(speeds["mount with the shim, 2 workers"], base)])
            section.targets.append(Target(f"DataLoader, {loader}: shim on the mount against ext4", ">= 0.95 x",
                                          f"{share.text()} x", share.median >= 0.95))
    section.tables.append(Table(
        "DataLoader: samples a second, second and later epochs",
        f"bench/jobs/train.py --no-train (decode, crop, normalise), {per_class * 10} files; the same pixels in the same order"
        " (checksums agree). Decoding takes most of the time on two cores, so the page cache of a local disk is the best that"
        " any file layer can reach here. 8 workers on the mount alone are the honest baseline: more requests at a time hide its"
        " latency, at the price of memory and of start-up.",
        ("loader", "way", "samples/s", "against ext4"), rows))
    return section


def train(bench: Bench, data: Path, workers: int, loader: str, per_class: int, shim: Shim | None) -> list[dict]:
    out = bench.work / "train.json"
    command = [sys.executable, TRAIN, "--data", data, "--workers", workers, "--loader", loader, "--epochs", 3, "--per-class",
               per_class, "--no-train", "--json", out]
    environment = {**child_environment(shim), "PYTHONWARNINGS": "ignore:This DataLoader will create"}
    subprocess.run(list(map(str, command)), env=environment, check=True, stdout=subprocess.DEVNULL)
    epochs = json.loads(out.read_text())["epochs"]
    out.unlink()
    return epochs
