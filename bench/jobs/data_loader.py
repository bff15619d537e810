"""Measures a DataLoader on the slow mount, with and without the shim, compared with the page cache
of a local disk."""

from __future__ import annotations

from bench.harness.contest import spread
from bench.harness.errors import BenchError
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench
from bench.jobs.training import train


def measure_data_loader(bench: Bench) -> Section:
    section = Section("DataLoader")
    per_class = bench.rounds(80, 30)
    local = bench.sets["mix"].path
    rows = []
    with bench.mount(local) as mount:
        for loader in ("cv2", "PIL"):
            ways = {
                "ext4, 2 workers": (local, 2, False),
                "mount with the shim, 2 workers": (mount.path, 2, True),
                "mount alone, 2 workers": (mount.path, 2, False),
                "mount alone, 8 workers": (mount.path, 8, False)
            }
            speeds: dict[str, list[float]] = {way: [] for way in ways}
            sums = set()
            for number in range(bench.rounds(3, 1)):
                order = list(ways) if number % 2 == 0 else list(ways)[::-1]
                for way in order:
                    data, workers, shimmed = ways[way]
                    shim = bench.shim(mount.path) if shimmed else None
                    epochs, _ = train(bench, data, loader, per_class, shim, epochs=3,
                                      workers=workers)
                    speeds[way] += [epoch["samples_per_s"] for epoch in epochs[1:]]
                    sums.add(tuple(epoch["checksum"] for epoch in epochs))
            if len(sums) != 1:
                raise BenchError(f"DataLoader with {loader}: the epochs' checksums differ")
            section.data[loader] = speeds
            base = speeds["ext4, 2 workers"]
            for way, found in speeds.items():
                rows.append((loader, way, spread(found).text(0),
                             spread([a / b for a, b in zip(found, base)]).text()))
            share = spread([a / b for a, b in zip(speeds["mount with the shim, 2 workers"], base)])
            section.targets.append(
                Target(f"DataLoader, {loader}: shim on the mount against ext4", ">= 0.95 x",
                       f"{share.text()} x", share.median >= 0.95))
    section.tables.append(
        Table(
            "DataLoader: samples a second, second and later epochs",
            f"bench/jobs/train.py --no-train (decode, crop, normalise), {per_class * 10} files;"
            " the same pixels in the same order (checksums agree). Decoding takes most of the time"
            " on two cores, so the page cache of a local disk is the best that any file layer can"
            " reach here. 8 workers on the mount alone are the honest baseline: more requests at a"
            " time hide its latency, at the price of memory and of start-up.",
            ("loader", "way", "samples/s", "against ext4"), rows))
    return section
