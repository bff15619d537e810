"""Measures nodes that read the same shards at the same time, with and without a cluster, on a slow
mount.

    /usr/bin/python3 bench/cluster/shards.py --build build [--rounds N] [--nodes N] [--library FILE]

The mount has a limited bandwidth. A node is a process with its own CUBESHIM_NAME and a memcached;
all nodes are on this machine. Prints the table of doc/benchmarks/cluster.md: the median of the
rounds, and all rounds."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "tests" / "preload"):
    sys.path.insert(0, str(folder))

from bench.harness.machine import describe_machine  # noqa: E402
from bench.harness.mount import SlowMount  # noqa: E402
from cluster_servers import Memcached  # noqa: E402

SHARDS, MB, LATENCY_US = 2, 64, 300
# Waits for a line, reads each file in reads of the given size (0: one read for the whole file), and
# then reports the end.
READER = """
import os, sys
print('ready', flush=True)
sys.stdin.readline()
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDONLY)
    step = int(sys.argv[1]) or os.fstat(fd).st_size
    while os.read(fd, step):
        pass
    os.close(fd)
print('read', flush=True)
sys.stdin.readline()
"""


def read_together(options: argparse.Namespace, source: Path, work: Path, step: int, cap: int,
                  has_cluster: bool) -> tuple[float, int]:
    """Returns the MB/s of all nodes together, and the MB read from the origin."""
    with ExitStack() as stack:
        mount = stack.enter_context(
            SlowMount(options.build / "lagfs", source, work, LATENCY_US, direct=True,
                      bandwidth_mb=cap, keeps_names=False))
        servers = [
            stack.enter_context(Memcached(memory_mb=2 * SHARDS * MB)) for _ in range(options.nodes)
        ]
        reports = [Path(tempfile.mkdtemp(dir=work)) / "report" for _ in servers]
        readers = []
        for number, report in enumerate(reports):
            environment = {
                name: value
                for name, value in os.environ.items()
                if not name.startswith("CUBESHIM_")
            }
            environment |= {
                "CUBESHIM_NAME": f"shards-{os.getpid()}-{number}",
                "CUBESHIM_RAM": f"{4 * SHARDS * MB}M", "CUBESHIM_ANNOUNCE": "0",
                "CUBESHIM_PREFIXES": str(mount.path), "CUBESHIM_STATS": str(report),
                "CUBESHIM_STATS_FORMAT": "json",
                "LD_PRELOAD": str(options.library or options.build / "libcubeshim.so")
            }
            if has_cluster:
                environment["CUBESHIM_CLUSTER"] = "memcached://" + ",".join(
                    server.name for server in servers)
            words = [
                sys.executable, "-c", READER,
                str(step), *(str(mount.path / f"shard{shard}") for shard in range(SHARDS))
            ]
            readers.append(
                subprocess.Popen(words, env=environment, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True))
        for reader in readers:
            reader.stdout.readline()
        began = time.monotonic()
        for reader in readers:
            print(file=reader.stdin, flush=True)
        for reader in readers:
            reader.stdout.readline()
        took = time.monotonic() - began
        for reader in readers:
            reader.communicate("\n")
        fetched = sum(
            json.loads(report.read_text().splitlines()[-1])["blocks"]["origin"]
            for report in reports)
    return options.nodes * SHARDS * MB / took, fetched >> 20


def text(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({', '.join(f'{value:.0f}' for value in values)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--library", type=Path, help="another one than the build's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cubeshim-shards-") as name:
        work = Path(name)
        # The library does not share a file if some users may not enter its directory.
        work.chmod(0o755)
        source = work / "source"
        source.mkdir()
        for shard in range(SHARDS):
            (source / f"shard{shard}").write_bytes(os.urandom(1 << 20) * MB)
            os.utime(source / f"shard{shard}", (1e9, 1e9))
        print(describe_machine(" ".join(sys.argv), source).line() + "\n")
        print(
            f"| {options.nodes} nodes, {SHARDS} shards of {MB} MB | alone: MB/s | MB of the origin "
            "| cluster: MB/s | MB of the origin |\n"
            "| --- | --- | --- | --- | --- |")
        for cap in (100, 0):
            for step in (128 << 10, 0):
                found: dict[bool, list[tuple[float, int]]] = {False: [], True: []}
                for turn in range(options.rounds):
                    for has_cluster in (False, True) if turn % 2 else (True, False):
                        found[has_cluster].append(
                            read_together(options, source, work, step, cap, has_cluster))
                reads = "reads of 128 KiB" if step else "one read a shard"
                what = f"{reads}, {f'{cap} MB/s' if cap else 'no cap'}"
                columns = [
                    text([row[column]
                          for row in found[has_cluster]])
                    for has_cluster in (False, True)
                    for column in (0, 1)
                ]
                print(f"| {what} | " + " | ".join(columns) + " |", flush=True)


if __name__ == "__main__":
    main()
