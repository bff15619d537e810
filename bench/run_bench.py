#!/usr/bin/env python3
"""`make bench`: compares cubeshim with the ways to read that it replaces, and with the fastest
possible way.

    run_bench.py --build DIR [--quick] [--work DIR] [--markdown FILE] [--only SUITE ...]

Only equal work is compared: the same files, in the same order, with the bytes verified, timed
alternately (A B A B ...) in one run. LD_PRELOAD is set only for the measured children. The figures
are also written to BUILD/bench.json. The last table shows which targets are reached."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the root
from bench.calls.calls import measure_calls, measure_start, measure_system_calls  # noqa: E402
from bench.calls.memory import measure_memory  # noqa: E402
from bench.calls.reads import (  # noqa: E402
    measure_full_region, measure_miss, measure_reads, measure_two_processes)
from bench.cluster.cluster import (  # noqa: E402
    measure_faults, measure_half, measure_hit, measure_one_order, measure_shares)
from bench.data.sets import make_sets  # noqa: E402
from bench.disk.hits import measure_hits  # noqa: E402
from bench.disk.jobs import measure_larger_than_memory, measure_second_job  # noqa: E402
from bench.harness.errors import BenchError  # noqa: E402
from bench.harness.load import Load  # noqa: E402
from bench.harness.machine import describe_machine  # noqa: E402
from bench.harness.report import (  # noqa: E402
    Section, as_json, markdown, section_text, targets_table)
from bench.harness.suite import Bench  # noqa: E402
from bench.jobs.data_loader import measure_data_loader  # noqa: E402
from bench.jobs.planned import measure_plan  # noqa: E402
from bench.jobs.real_loaders import measure_loaders  # noqa: E402
from bench.large.disk import measure_large_disk  # noqa: E402
from bench.large.large import measure_large_files  # noqa: E402
from bench.large.reads import measure_large_reads  # noqa: E402
from bench.metadata.metadata import measure_names  # noqa: E402
from bench.origin.epochs import (  # noqa: E402
    measure_first_epoch, measure_second_epoch, measure_unannounced)
from bench.packs.packs import measure_packs  # noqa: E402
from bench.prefetch.engines import measure_prefetch  # noqa: E402
from bench.prefetch.node.demand import measure_demand  # noqa: E402
from bench.prefetch.node.full_memory import measure_full_memory  # noqa: E402
from bench.prefetch.node.leader import measure_exit, measure_takeover  # noqa: E402
from bench.prefetch.node.long_list import measure_memory_of_list  # noqa: E402
from bench.prefetch.node.ranks import measure_ranks  # noqa: E402
from bench.prefetch.sidecar import measure_first_epochs, measure_large_data  # noqa: E402
from bench.threads.suite import measure_threads  # noqa: E402


def of_parts(title: str, *parts: Callable[[Bench, Section], None]) -> Callable[[Bench], Section]:
    def measure_parts(bench: Bench) -> Section:
        section = Section(title)
        for part in parts:
            part(bench, section)
        return section

    return measure_parts


SUITES: dict[str, Callable[[Bench], Section]] = {
    "reads": measure_reads, "two": measure_two_processes, "threads": measure_threads,
    "miss": measure_miss, "full": measure_full_region, "syscalls": measure_system_calls,
    "calls": measure_calls, "start": measure_start, "loaders": measure_loaders,
    "memory": measure_memory, "epoch2": measure_second_epoch, "epoch1": measure_first_epoch,
    "unannounced": measure_unannounced, "dataloader": measure_data_loader,
    "plan": measure_plan,
    "prefetch": measure_prefetch, "packs": measure_packs, "sidecar": of_parts(
        "the sidecar", measure_first_epochs,
        measure_large_data), "node": of_parts("the sidecar on a node", measure_demand,
                                              measure_ranks, measure_full_memory, measure_takeover,
                                              measure_exit,
                                              measure_memory_of_list), "large": measure_large_files,
    "large-disk": measure_large_disk, "large-reads": measure_large_reads, "names": measure_names,
    "cluster": of_parts("nodes that share", measure_hit, measure_half, measure_one_order,
                        measure_shares,
                        measure_faults), "disk": of_parts("the disk tier", measure_hits,
                                                          measure_larger_than_memory,
                                                          measure_second_job),
}


def measure(name: str, bench: Bench) -> Section:
    load, start = Load(), time.monotonic()
    section = SUITES[name](bench)
    section.seconds, section.others = time.monotonic() - start, load.share_of_others()
    print(section_text(section), flush=True)
    return section


def check(bench: Bench) -> None:
    for file in (bench.library, bench.program, bench.lagfs):
        if not file.exists():
            raise BenchError(f"{file} is missing: build it first with make")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True, metavar="DIR",
                        help="where the library and the programs are")
    parser.add_argument("--work", type=Path, metavar="DIR",
                        help="for the data sets; on a local disk (default: BUILD/bench)")
    parser.add_argument("--quick", action="store_true", help="fewer files and rounds")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--only", nargs="+", choices=SUITES, default=list(SUITES), metavar="SUITE",
                        help=f"some of: {' '.join(SUITES)}")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, command: str) -> int:
    build = options.build.resolve()
    bench = Bench(build, (options.work or build / "bench").resolve(), options.quick)
    check(bench)
    bench.data.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(command, bench.data)
    print(f"{machine.line()}\n{command}\n", flush=True)
    bench.sets = make_sets(bench.data, options.quick)
    sections = [measure(name, bench) for name in SUITES if name in options.only]
    print(targets_table(sections).text(), flush=True)
    (build / "bench.json").write_text(json.dumps(as_json(machine, sections), indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(machine, sections))
    return 0


def main(arguments: list[str]) -> int:
    signal.signal(
        signal.SIGTERM,
        lambda *_: sys.exit(143))  # as an exception, so that mounts and children end, too
    options = parse_arguments(arguments)
    command = shlex.join(["bench/run_bench.py", *arguments])
    if os.environ.get("LD_PRELOAD"):
        print("run_bench: LD_PRELOAD is set; children get a clean one", file=sys.stderr)
    try:
        return run(options, command)
    except (BenchError, OSError, subprocess.CalledProcessError) as error:
        print(f"run_bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
