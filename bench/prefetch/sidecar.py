"""Measures the sidecar in training: the first epoch from a slow mount compared with local files,
and data larger than the memory."""

from __future__ import annotations

import os
from contextlib import nullcontext

from bench.data.sets import data_files, make_mix
from bench.harness.contest import in_turn, spread
from bench.harness.errors import BenchError
from bench.harness.load import Load
from bench.harness.mount import SlowMount
from bench.harness.pages import forget_pages, have_memory, warm_pages
from bench.harness.report import Section, Table, Target
from bench.harness.shim import ANNOUNCED, PREFETCH_OFF, exit_report
from bench.harness.suite import LATENCY_US, Bench
from bench.jobs.training import train
from bench.prefetch.engines import run_engines

PAUSE_S = 0.1  # between epochs, to read the mount's counters; the pause is not timed
LEAST_RING = 8 << 20
PARTS = 4  # of the data; one part is as large as the memory


def demand_misses(report: dict) -> int:
    return report["misses"] + report["bypassed"]["full"] + report["bypassed"]["busy"]


def summary(report: dict) -> str:
    found = report["prefetch"]
    return (f"{found['early']}/{found['late']}/{demand_misses(report)}/{found['wasted']}"
            f"/{found['duplicate']}")


def origin_rate(bench: Bench, mount: SlowMount) -> float:
    """Returns the files per second of 32 plain threads, which is the most that the mount can
    deliver."""
    rows = run_engines(bench, mount.path, ("--depths", "64"))
    return max(
        float(row[1].split()[0].replace(",", "")) for row in rows if row[0].startswith("plain"))


def measure_first_epochs(bench: Bench, section: Section) -> None:
    local = bench.sets["mix"].path
    per_class = bench.rounds(400, 60)
    listed = bench.work / "list"
    stats = bench.work / "report.json"
    rows, shares = [], {}
    with bench.mount(local) as mount:
        rate = origin_rate(bench, mount)
    section.data["origin files/s"] = rate
    for loader in ("cv2", "PIL"):
        for steps in (False, True):
            kind = "decode and step" if steps else "decode only"
            speeds, loads, served, reports, sums = {}, {}, {}, {}, set()
            ways = ("local, pages dropped", "local, pages warm", "mount, announced", "mount, list",
                    "mount, no prefetch")
            for number in range(bench.rounds(2, 2)):
                for way in in_turn(ways, number):
                    if way == "local, pages warm":
                        warm_pages(local)
                    else:
                        # Also drops the pages below the mount, so that the mount is as slow as its
                        # latency and the disk together.
                        forget_pages(local)
                    with (bench.mount(local)
                          if way.startswith("mount") else nullcontext()) as mount:
                        shim = None
                        if mount:
                            listed.write_text(f"{mount.path}\n")
                            more = {
                                "announced": ANNOUNCED,
                                "list": {"CUBESHIM_PREFETCH_LIST": str(listed)},
                                "no prefetch": PREFETCH_OFF
                            }[way.partition(", ")[2]]
                            shim = bench.shim(mount.path, stats=stats, more=more)
                        have_memory(3000)
                        load = Load(mount.cpu_seconds if mount else None)
                        epochs, _ = train(bench, mount.path if mount else local, loader, per_class,
                                          shim, mount, pause=PAUSE_S, steps=steps)
                        loads.setdefault(way, []).append(load.share_of_others())
                        if mount:
                            served.setdefault(way,
                                              []).append(mount.cpu_seconds() / (per_class * 10))
                            reports[way] = exit_report(stats)
                    speeds.setdefault(way, []).append(epochs[0]["samples_per_s"])
                    sums.add(epochs[0]["checksum"])
            if len(sums) != 1:
                raise BenchError(f"{loader}, {kind}: the checksums differ")
            for way in ways:
                against = {
                    base: spread([a / b
                                  for a, b in zip(speeds[way], speeds[base])])
                    for base in ways[:2]
                }
                shares[loader, kind, way] = against
                rows.append(
                    (loader, kind, way,
                     spread(speeds[way]).text(0), *(share.text() for share in against.values()),
                     summary(reports[way]) if way in reports else "-",
                     f"{spread(loads[way]).median:.0%}"))
            local_speed = spread(speeds[ways[0]]).median
            for way, wanted in ((ways[2], 0.95), (ways[3], 0.90)):
                # The first epoch cannot be faster than the mount, whose server runs on the job's
                # own cores. The local job has all of these cores, so no cache can make up for the
                # time that the server takes.
                per_sample = spread(served[way]).median
                bound = min(1.0,
                            rate / local_speed) / (1 + per_sample * local_speed / os.cpu_count())
                share = shares[loader, kind, way][ways[0]]
                warm = shares[loader, kind, way][ways[1]].text()
                section.targets.append(
                    Target(
                        f"first epoch, {loader}, {kind}: {way} against local files, pages dropped",
                        f">= {wanted} x", f"{share.text()} x", share.median >= wanted,
                        f"bound {bound:.2f} x: the mount gives {rate:.0f} files/s, and its server"
                        f" takes {per_sample * 1e6:.0f} us of the same cores for a file; {warm} x"
                        " with pages warm"
                    ))
            section.data[f"first epoch, {loader}, {kind}"] = {
                "samples_per_s": speeds, "reports": reports, "server s a file": served
            }
    listed.unlink()
    section.tables.append(
        Table(
            "First epoch of a DataLoader with 2 workers: samples a second",
            f"bench/jobs/train.py, {per_class * 10} files in random order, the data fits; lagfs"
            f" with {LATENCY_US} us an operation. The same pixels everywhere (checksums agree)."
            " Yardstick: the same files on the local disk, their pages dropped first, as a first"
            " epoch finds them; with warm pages it is a later epoch's. The pages below the mount"
            " are dropped too. `announced`: as by `cubeshim run`; `list`: CUBESHIM_PREFETCH_LIST"
            " names the directory, so the order is not the sampler's. Files: early / late / demand"
            " misses / wasted / duplicate, of the last round.",
            ("loader", "job", "way", "samples/s", "of local, dropped", "of local, warm", "files",
             "others' CPU"), rows))


def measure_large_data(bench: Bench, section: Section) -> None:
    # So many files that the ring's minimum size, four segments, is a small part of the data.
    count = bench.rounds(16_000, 2000)
    local = make_mix(bench.data, count).path
    per_class = count // 10
    epochs = 3
    chosen = sum(file.stat().st_size
                 for directory in sorted(path
                                         for path in local.iterdir()
                                         if path.is_dir())
                 for file in data_files(directory)[:per_class])
    ram = chosen // PARTS
    stats = bench.work / "report.json"
    rows, speeds = [], {}
    ways = {
        "mount, announced": ANNOUNCED, "mount, no prefetch": PREFETCH_OFF,
        "local, pages dropped": None
    }
    for number in range(bench.rounds(2, 1)):
        for way in (list(ways) if number % 2 == 0 else list(ways)[::-1]):
            forget_pages(local)
            with (bench.mount(local) if ways[way] is not None else nullcontext()) as mount:
                shim = bench.shim(mount.path, ram=str(ram), stats=stats,
                                  more=ways[way]) if mount else None
                have_memory(2000)
                load = Load()
                found, read = train(bench, mount.path if mount else local, "cv2", per_class, shim,
                                    mount, epochs, pause=PAUSE_S)
                others = load.share_of_others()
                report = exit_report(stats) if mount else None
            rates = [epoch["samples_per_s"] for epoch in found]
            speeds.setdefault(way, []).append(rates)
            row = [way, " ".join(f"{rate:.0f}" for rate in rates)]
            if report:
                asked = epochs * per_class * 10
                late = [bytes_ / chosen for bytes_ in read]
                row += [
                    " ".join(f"{share:.3f}" for share in late),
                    f"{demand_misses(report) / asked:.2%}",
                    f"{report['prefetch']['wasted'] / max(1, report['prefetch']['fetched']):.2%}",
                    summary(report)
                ]
                if way == "mount, announced":
                    add_large_targets(section, report, late, asked, ram, chosen)
            else:
                row += ["-"] * 4
            rows.append((*row, f"{others:.0%}"))
    section.data["data 4 x the memory"] = {"samples_per_s": speeds, "data": chosen, "ram": ram}
    section.tables.append(
        Table(
            "Data 4 x the memory, 3 epochs of a DataLoader with 2 workers",
            f"bench/jobs/train.py --no-train, cv2, {per_class * 10} files, {chosen / 1e6:.0f} MB,"
            f" CUBESHIM_RAM={ram / 1e6:.0f} MB (that is all of the region: its control part, the"
            " resident pool and the ring); one run a row. Bytes read from the mount are its own"
            " count, epoch by epoch, against the data. Misses and wasted are of all epochs.",
            ("way", "samples/s, epochs 1 2 3", "origin bytes / data", "demand misses", "wasted",
             "files", "others' CPU"), rows))


def add_large_targets(section: Section, report: dict, late: list[float], asked: int, ram: int,
                      data: int) -> None:
    """The cache share c is the share of the data that can stay: the region without its control part
    and the ring, which has at least 8 MB."""
    share = (report["ram"]["capacity"] - max(LEAST_RING, ram * 6 // 100)) / data
    found = report["prefetch"]
    misses, wasted = demand_misses(report) / asked, found["wasted"] / max(1, found["fetched"])
    section.targets += [
        Target("data 4 x the memory: demand misses", "< 1 %", f"{misses:.2%}", misses < 0.01),
        Target("data 4 x the memory: wasted fetches", "< 1 %", f"{wasted:.2%}", wasted < 0.01,
               f"{found}"),
        Target("data 4 x the memory: origin bytes of epochs 2 and 3",
               f"<= {1 - share + 0.02:.3f} x data", f"{max(late[1:]):.3f} x",
               max(late[1:]) <= 1 - share + 0.02,
               f"c = {share:.3f} without the ring; all of CUBESHIM_RAM is {ram / data:.3f}")
    ]
