"""Measures how long a node has no leader after the death of a leader, and how long a program takes
to end while all fetches hang."""

from __future__ import annotations

import socket
import statistics
import struct
import time
import zlib
from pathlib import Path

from bench.data.sets import write_list
from bench.harness.contest import in_turn
from bench.harness.errors import BenchError
from bench.harness.report import Section, Target
from bench.harness.shim import Shim
from bench.harness.suite import Bench
from bench.prefetch.node.processes import Job, counts, jobs, on_mount, plan_of, planned, wait_until


def leader_of(shim: Shim) -> int:
    """Returns the pid of the process that listens on the cache's socket, or 0 if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        try:
            client.connect(f"{shim.region}.sock")
        except OSError:
            return 0
        return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def measure_takeover(bench: Bench, section: Section) -> None:
    seconds, errors = [], 0
    for _ in range(bench.rounds(7, 3)):
        took, failed = kill_leader(bench)
        seconds.append(took)
        errors += failed
    section.targets += [
        Target("leader killed: until the next fetch", "<= 1 s", f"{max(seconds):.2f} s",
               max(seconds) <= 1.0,
               f"the longest of {len(seconds)}, median {statistics.median(seconds):.2f} s"),
        Target("leader killed: errors", "0", str(errors), errors == 0)
    ]
    section.data["takeover s"] = seconds


def kill_leader(bench: Bench) -> tuple[float, int]:
    """Returns the seconds from the kill to the first file that the next leader requests from the
    mount, and the number of files that survivors read incorrectly."""
    with bench.mount(bench.data) as mount:
        plan = plan_of(bench, mount)
        checked = plan[::40]
        shim = bench.shim(mount.path, more=planned(bench, plan, CUBESHIM_PREFETCH_DEPTH="8"))
        names = write_list(bench.work / "checked", checked)
        trigger = on_mount(bench, mount, ("mix",))[0]
        with jobs(*(Job(shim, "read", trigger, names, 0) for _ in range(4))) as readers:
            for job in readers:
                job.answer()
            # All processes take part in the election, and none reads planned files before the
            # election is over.
            wait_until(lambda: counts(bench, shim) > 200, "200 files fetched")
            pid = leader_of(shim)
            victim = next((job for job in readers if job.pid == pid), None)
            if victim is None:
                raise BenchError("nobody leads")
            victim.kill()
            died, before = time.monotonic(), mount.on_data("open")
            wait_until(lambda: mount.on_data("open") > before, "another leader fetches",
                       nap_s=0.001)
            took = time.monotonic() - died
            crc = 0
            for path in checked:
                crc ^= zlib.crc32((bench.data / Path(path).relative_to(mount.path)).read_bytes())
            failed = 0
            for job in readers:
                if job is victim:
                    continue
                job.go_on()
                found = job.answer()
                failed += found["errors"] + (found["crc"] != crc)
                job.end()
    return took, failed


def measure_exit(bench: Bench, section: Section) -> None:
    """Measures how long a job takes to end after its last line, while all fetches hang."""
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(bench.rounds(15, 5)):
        for prefetch in in_turn((False, True), number):
            took[prefetch].append(exit_ms(bench, prefetch))
    more = statistics.median(took[True]) - statistics.median(took[False])
    section.targets.append(
        Target(
            "end of a program while the origin hangs: longer than without prefetch", "< 50 ms",
            f"{more:.1f} ms", more < 50,
            f"median of {len(took[True])}; the longest {max(took[True]) - min(took[False]):.1f} ms")
    )
    section.data["exit ms"] = {"on": took[True], "off": took[False]}


def exit_ms(bench: Bench, prefetch: bool) -> float:
    with bench.mount(bench.data) as mount:
        plan = plan_of(bench, mount)
        shim = bench.shim(mount.path, more=planned(bench, plan,
                                                   CUBESHIM_PREFETCH="1" if prefetch else "0"))
        with jobs(Job(shim, "wait", on_mount(bench, mount, ("mix",))[0])) as (job,):
            job.answer()
            script = mount.path / ".lagfs" / "script"
            if prefetch:
                script.write_text("hold open 1 100000\n")
                (mount.path / ".lagfs" / "held").read_text()
            start = time.monotonic()
            job.go_on()
            job.end()
            took = (time.monotonic() - start) * 1e3
            script.write_text("clear\n")
    return took
