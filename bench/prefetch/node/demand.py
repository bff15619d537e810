"""The sidecar among other processes: what demand waits, how ranks share it, what a leader's death and a long list cost."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import contextmanager, ExitStack
from collections.abc import Iterator
from pathlib import Path

from bench.data.sets import data_files, make_mix
from bench.harness.contest import BenchError, Shim, child_environment, spread
from bench.harness.report import Section, Table, Target
from bench.harness.suite import Bench, have_memory
from bench.origin.epochs import LATENCY_US, Mount, mounted

JOBS = Path(__file__).resolve().with_name("jobs.py")
PACKAGE = Path(__file__).resolve().parents[3] / "prefetch" / "python"
PATIENCE_S = 60.0
MB = 1 << 20


class Job:
    """One of bench/prefetch/node/jobs.py, under the library."""

    def __init__(self, shim: Shim, *words: object, rank: int = 0, world: int = 1):
        environment = child_environment(shim) | {"PYTHONPATH": str(PACKAGE), "RANK": str(rank), "WORLD_SIZE": str(world)}
        self._child = subprocess.Popen([sys.executable, str(JOBS), *map(str, words)], env=environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        self.pid = self._child.pid

    def answer(self) -> dict:
        text = self._child.stdout.readline()
        if not text:
            raise BenchError(f"a job of the sidecar's suite ended with {self._child.wait()}")
        return json.loads(text)

    def go_on(self) -> None:
        self._child.stdin.write("\n")
        self._child.stdin.flush()

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        self.close()

    def end(self) -> None:
        self._child.stdin.close()
        if self._child.wait():
            raise BenchError(f"a job of the sidecar's suite ended with {self._child.returncode}")
        self.close()

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            pipe.close()


@contextmanager
def jobs(*made: Job) -> Iterator[tuple[Job, ...]]:
    try:
        yield made
    finally:
        for job in made:
            job.close()


def wait_until(condition: Callable[[], object], what: str, nap_s: float = 0.005) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"after {PATIENCE_S:.0f} s: not {what}")
        time.sleep(nap_s)


def counts(bench: Bench, shim: Shim, what: str = "fetched") -> int:
    """Of the sum over the jobs of a cache, so far."""
    done = subprocess.run([bench.build / "cubeshim", "stats", "--json"], env={"CUBESHIM_NAME": shim.name}, capture_output=True)
    if done.returncode:
        return 0
    return sum(job["report"]["prefetch"][what] for job in json.loads(done.stdout)["jobs"])


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def write_list(path: Path, files: list[Path] | list[str]) -> Path:
    path.write_text("".join(f"{file}\n" for file in files))
    return path


def on_mount(bench: Bench, mount: Mount, names: tuple[str, ...]) -> list[str]:
    """The files of these sets as seen through a mount of all sets, listed on the local disk. Their pages are there: the
    origin is to be as slow as its latency says, not as the disk below it."""
    files = [file for name in names for file in data_files(bench.sets[name].path)]
    for file in files:
        file.read_bytes()
    return [str(mount.path / file.relative_to(bench.data)) for file in files]


# ---- what a demand miss waits -----------------------------------------------------------------------------------------

# With the mix less than 20,000 files: each costs the mount an fd.
PLAN = ("64k", "110k", "256k")


def demand_us(bench: Bench, prefetch: bool, think_ms: float, limit: int) -> tuple[list[float], int]:
    """Microseconds of each miss, and how much of the plan was not fetched yet at the end."""
    with mounted(bench, bench.data, LATENCY_US) as mount:
        plan = on_mount(bench, mount, PLAN)
        others = on_mount(bench, mount, ("mix",))
        random.Random(1).shuffle(others)
        shim = bench.shim(mount.path, more={"CUBESHIM_PREFETCH_LIST": str(write_list(bench.work / "plan", plan)),
                                            "CUBESHIM_PREFETCH": "1" if prefetch else "0"})
        demand = write_list(bench.work / "demand", others[:limit])
        have_memory(3000)
        with jobs(Job(shim, "wait", others[-1]), Job(shim, "read", others[-2], demand, think_ms)) as (leader, reader):
            for job in (leader, reader):
                job.answer()
            if prefetch:
                wait_until(lambda: counts(bench, shim) > 0, "a file is prefetched")
            reader.go_on()
            found = reader.answer()
            left = len(plan) - counts(bench, shim) if prefetch else 0
            reader.end()
            leader.go_on()
            leader.end()
    if found["errors"]:
        raise BenchError(f"{found['errors']} reads failed")
    return found["us"], left


def measure_demand(bench: Bench, section: Section) -> None:
    limit = bench.rounds(800, 400)
    rows = []
    for think_ms in (0.0, 3.0):
        us: dict[bool, list[list[float]]] = {False: [], True: []}
        left = []
        for number in range(bench.rounds(7, 3)):
            for prefetch in ((False, True) if number % 2 == 0 else (True, False)):
                found, rest = demand_us(bench, prefetch, think_ms, limit)
                us[prefetch].append(found)
                left += [rest] if prefetch else []
        ratio = {share: spread([percentile(on, share) / percentile(off, share) for on, off in zip(us[True], us[False])])
                 for share in (0.5, 0.99)}
        for prefetch in (False, True):
            per_round = {share: spread([percentile(found, share) for found in us[prefetch]]) for share in ratio}
            rows.append((f"{think_ms:.0f} ms", "on" if prefetch else "off", per_round[0.5].text(0), per_round[0.99].text(0),
                         ratio[0.5].text() if prefetch else "", ratio[0.99].text() if prefetch else "",
                         f"{min(left)}" if prefetch else ""))
        pooled = percentile(sum(us[True], []), 0.99) / percentile(sum(us[False], []), 0.99)
        section.targets.append(Target(f"demand miss with prefetch on, {think_ms:.0f} ms between reads: p99", "<= 1.2 x",
                                      f"{ratio[0.99].text()} x", ratio[0.99].median <= 1.2,
                                      f"all rounds together {pooled:.2f} x; p50 {ratio[0.5].text()} x"))
        section.data[f"demand, {think_ms} ms"] = {"on": us[True], "off": us[False], "left": left}
    section.tables.append(Table(
        "A demand miss while other files are prefetched",
        f"A process opens, reads and closes {limit} files of the mix, each once and none of them in the list, while another"
        f" process of the node prefetches a list of {sum(bench.sets[name].count for name in PLAN)} others; on and off in turn, a"
        " fresh mount and cache each. Microseconds a file, of each round; ratios round by round. `left`: the fewest files of the"
        " list that were still to be fetched when the reader ended, so it had the sidecar beside it all the time.",
        ("between reads", "prefetch", "p50", "p99", "p50 against off", "p99 against off", "left"), rows))


# ---- ranks ------------------------------------------------------------------------------------------------------------

RANKS = 8
THERE_US = 150.0  # an open, read and close that waited for the mount takes twice its latency at least


def measure_ranks(bench: Bench, section: Section) -> None:
    # Long enough that the head start of whoever announces first, some 200 files, is not most of it.
    each = bench.rounds(1900, 150)
    rows, slowest = [], []
    for think_ms in (0.0, 5.0):
        for number in range(bench.rounds(3, 2)):
            progress, there, seconds = run_ranks(bench, each, think_ms)
            slowest.append(max(progress) / max(1, min(progress)))
            rows.append((f"{think_ms:.0f} ms", str(number + 1), f"{min(progress)}-{max(progress)} of {each}",
                         f"{slowest[-1]:.2f}", f"{min(there):.0%}-{max(there):.0%}", f"{min(seconds):.2f}-{max(seconds):.2f}"))
    section.targets.append(Target(f"{RANKS} ranks announcing at once: progress, most against least", "<= 1.25 x",
                                  f"{max(slowest):.2f} x", max(slowest) <= 1.25, "the worst round"))
    section.tables.append(Table(
        f"{RANKS} ranks announce at once, each {each} files of its own, and read them in that order",
        "Progress: files that each has read when the first has read all. There: the share of its reads that took less than"
        f" {THERE_US:.0f} us, so that nobody waited for the mount. All are processes of their own on the same cores.",
        ("between reads", "round", "progress", "most / least", "there", "seconds to the end"), rows))


def rank_set(bench: Bench) -> str:
    if bench.quick:
        return "mix"
    bench.sets["mix-16000"] = make_mix(bench.data, 16_000)
    return "mix-16000"


def run_ranks(bench: Bench, each: int, think_ms: float) -> tuple[list[int], list[float], list[float]]:
    with mounted(bench, bench.data, LATENCY_US) as mount, ExitStack() as stack:
        files = on_mount(bench, mount, (rank_set(bench),))
        random.Random(2).shuffle(files)
        shim = bench.shim(mount.path)
        lists = [write_list(bench.work / f"rank{rank}", files[rank * (each + 1): (rank + 1) * (each + 1)])
                 for rank in range(RANKS)]
        ranks = [stack.enter_context(jobs(Job(shim, "rank", name, think_ms, rank=rank, world=RANKS)))[0]
                 for rank, name in enumerate(lists)]
        for rank in ranks:
            rank.answer()
        start = time.monotonic_ns()
        for rank in ranks:
            rank.go_on()
        found = [rank.answer() for rank in ranks]
        for rank in ranks:
            rank.go_on()
            rank.end()
    if any(rank["errors"] for rank in found):
        raise BenchError("a rank could not read")
    first = min(rank["ends"][-1] for rank in found)
    return ([sum(end <= first for end in rank["ends"]) for rank in found],
            [sum(us < THERE_US for us in rank["us"]) / each for rank in found],
            [(rank["ends"][-1] - start) / 1e9 for rank in found])


# ---- the leader's end -------------------------------------------------------------------------------------------------

def leader_of(shim: Shim) -> int:
    """The process that listens on the cache's socket; 0: none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        try:
            client.connect(f"/dev/shm/cubeshim-{os.geteuid()}-{shim.name}.sock")
        except OSError:
            return 0
        return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def measure_takeover(bench: Bench, section: Section) -> None:
    seconds, errors = [], 0
    for _ in range(bench.rounds(7, 3)):
        took, failed = kill_leader(bench)
        seconds.append(took)
        errors += failed
    section.targets += [Target("leader killed: until the next fetch", "<= 1 s", f"{max(seconds):.2f} s", max(seconds) <= 1.0,
                               f"the longest of {len(seconds)}, median {statistics.median(seconds):.2f} s"),
                        Target("leader killed: errors", "0", str(errors), errors == 0)]
    section.data["takeover s"] = seconds


def kill_leader(bench: Bench) -> tuple[float, int]:
    """Seconds from the kill to the first file that the mount is asked for by the next leader; what survivors read wrong."""
    with mounted(bench, bench.data, LATENCY_US) as mount:
        plan = on_mount(bench, mount, PLAN)
        checked = plan[::40]
        shim = bench.shim(mount.path, more={"CUBESHIM_PREFETCH_LIST": str(write_list(bench.work / "plan", plan)),
                                            "CUBESHIM_PREFETCH_DEPTH": "8"})
        names = write_list(bench.work / "checked", checked)
        trigger = on_mount(bench, mount, ("mix",))[0]
        with jobs(*(Job(shim, "read", trigger, names, 0) for _ in range(4))) as readers:
            for job in readers:
                job.answer()
            # All take part in the election, and nobody reads what is planned before it is over.
            wait_until(lambda: counts(bench, shim) > 200, "200 files fetched")
            pid = leader_of(shim)
            victim = next((job for job in readers if job.pid == pid), None)
            if victim is None:
                raise BenchError("nobody leads")
            victim.kill()
            died, before = time.monotonic(), mount.on_data("open")
            wait_until(lambda: mount.on_data("open") > before, "another leader fetches", nap_s=0.001)
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


# ---- memory -----------------------------------------------------------------------------------------------------------

def private_bytes(pid: int) -> int:
    """What a process has in memory but for the region."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssFile")) * 1024


def measure_memory_of_list(bench: Bench, section: Section) -> None:
    """Local files: what a list takes does not depend on how slow the origin is, and ten million absent names would take
    an hour there."""
    lines = bench.rounds(10_000_000, 1_000_000)
    existing = data_files(bench.sets["4k"].path)[:2000]
    listed = bench.work / "long-list"
    every = lines // len(existing)
    directory = existing[0].parent
    with open(listed, "w", encoding="utf-8") as file:
        for number, path in enumerate(existing):
            file.writelines(f"{directory}/a-name-that-no-file-has-{number * every + k}.jpg\n" for k in range(every - 1))
            file.write(f"{path}\n")
    most, seconds = {}, 0.0
    for prefetch in (False, True):
        shim = bench.shim(bench.data, more={"CUBESHIM_PREFETCH_LIST": str(listed), "CUBESHIM_PREFETCH": str(int(prefetch))})
        with jobs(Job(shim, "wait", data_files(bench.sets["mix"].path)[0])) as (job,):
            start = time.monotonic()
            job.answer()
            samples = [private_bytes(job.pid)]
            for tick in itertools.count():
                samples.append(private_bytes(job.pid))
                # `stats` is dear beside a look at /proc.
                if not prefetch or (tick % 50 == 0 and counts(bench, shim) >= len(existing)):
                    break
                if time.monotonic() - start > 20 * PATIENCE_S:
                    raise BenchError(f"the list is not read to its end: {counts(bench, shim)} of {len(existing)} fetched")
                time.sleep(0.02)
            seconds = time.monotonic() - start
            most[prefetch] = max(samples)
            job.go_on()
            job.end()
    size = listed.stat().st_size
    listed.unlink()
    more = most[True] - most[False]
    section.targets.append(Target(
        f"memory of the sidecar with a list of {lines} paths", "< 64 MB", f"{more / MB:.1f} MB", more < 64 * MB,
        f"{len(existing)} of them exist, the others would lie beside these; local files; {size / 1e6:.0f} MB of list in"
        f" {seconds:.0f} s, {lines / seconds / 1e3:.0f} thousand lines/s"))
    section.data["memory of a list"] = {"lines": lines, "with": most[True], "without": most[False], "seconds": seconds}


# ---- the end of a program ---------------------------------------------------------------------------------------------


def measure_exit(bench: Bench, section: Section) -> None:
    """From the line that lets a job end to its end, while all fetches hang."""
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(bench.rounds(15, 5)):
        for prefetch in ((False, True) if number % 2 == 0 else (True, False)):
            took[prefetch].append(exit_ms(bench, prefetch))
    more = statistics.median(took[True]) - statistics.median(took[False])
    section.targets.append(Target(
        "end of a program while the origin hangs: longer than without prefetch", "< 50 ms", f"{more:.1f} ms", more < 50,
        f"median of {len(took[True])}; the longest {max(took[True]) - min(took[False]):.1f} ms"))
    section.data["exit ms"] = {"on": took[True], "off": took[False]}


def exit_ms(bench: Bench, prefetch: bool) -> float:
    with mounted(bench, bench.data, LATENCY_US) as mount:
        plan = on_mount(bench, mount, PLAN)
        shim = bench.shim(mount.path, more={"CUBESHIM_PREFETCH_LIST": str(write_list(bench.work / "plan", plan)),
                                            "CUBESHIM_PREFETCH": "1" if prefetch else "0"})
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


def measure_node(bench: Bench) -> Section:
    section = Section("the sidecar on a node")
    measure_demand(bench, section)
    measure_ranks(bench, section)
    measure_takeover(bench, section)
    measure_exit(bench, section)
    measure_memory_of_list(bench, section)
    return section
