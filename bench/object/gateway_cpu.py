"""Measures the CPU time that the gateway needs for each GET. A job with many threads reads objects
that the gateway has not fetched yet."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.gateways import gateways_of
from bench.harness.pages import have_memory
from bench.harness.shim import Shim, child_environment
from bench.object.servers import BUCKET, SERVERS, ObjectStore, running

READ_IN_THREADS = """
import concurrent.futures, os, sys
root, threads = sys.argv[1], int(sys.argv[2])
names = [os.path.join(top, name) for top, _, names in os.walk(root) for name in names]
print(len(names), flush=True)
sys.stdin.readline()
def read(name):
    fd = os.open(name, os.O_RDONLY)
    size = os.fstat(fd).st_size
    os.close(fd)
    return size
with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    print(sum(pool.map(read, names, chunksize=1)), flush=True)
sys.stdin.readline()
"""


def gateway_pid(command: Path) -> int:
    """Returns the pid of the gateway that a command of this name has started."""
    for pid in gateways_of(command):
        return pid
    raise BenchError("there is no gateway")


def cpu_ns(pid: int) -> int:
    """Returns the user and system time of all threads."""
    return sum(
        int((task / "schedstat").read_text().split()[0])
        for task in Path(f"/proc/{pid}/task").iterdir())


def measure(build: Path, work: Path, store: ObjectStore, prefix: str, threads: int,
            perf: Path | None) -> dict:
    # Uses a new name, because the gateway of the previous round can live for some seconds.
    name = f"bench-object-{os.getpid()}-{time.monotonic_ns()}"
    mount, command = Path("/bench-bucket"), work / name
    command.symlink_to(build / "cubeshim")
    shim = Shim(build / "libcubeshim.so",
                mount,
                name,
                "1500M",
                more=(("CUBESHIM_BUCKETS", f"{mount}=s3://{BUCKET}/{prefix}"),
                      ("CUBESHIM_COMMAND", str(command)), ("CUBESHIM_PREFIXES", ""),
                      ("CUBESHIM_PREFETCH", "0"), *store.environment().items()))
    job = subprocess.Popen(["/usr/bin/python3", "-c", READ_IN_THREADS, mount,
                            str(threads)],
                           env=child_environment(shim),
                           stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE,
                           text=True)
    try:
        objects = int(job.stdout.readline())
        pid = gateway_pid(command)
        recorder = perf and subprocess.Popen(
            ["perf", "record", "-q", "-g", "-F", "2000", "-o", perf, "-p",
             str(pid)])
        if perf:
            time.sleep(1)
        have_memory(512)
        before, began = cpu_ns(pid), time.monotonic()
        job.stdin.write("\n")
        job.stdin.flush()
        size = int(job.stdout.readline())
        took, used = time.monotonic() - began, cpu_ns(pid) - before
        if recorder:
            recorder.terminate()
            recorder.wait()
        return {
            "objects": objects,
            "bytes": size,
            "cpu_us": used / 1e3 / objects,
            "per_s": objects / took
        }
    finally:
        job.stdin.close()
        job.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--server", choices=SERVERS, default="versitygw")
    parser.add_argument("--objects", type=int, default=4000)
    parser.add_argument("--size", type=int, default=58 << 10)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--perf", type=Path, help="record a profile into this file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bcmd-bench-", dir="/var/tmp") as work:
        with running(chosen.server, Path(work)) as store:
            for name, with_checksums in (("checksums", True), ("etags", False)):
                store.put_objects(name, chosen.objects, chosen.size, with_checksums)
                rounds = [
                    measure(chosen.build.resolve(), Path(work), store, name, chosen.threads,
                            chosen.perf and chosen.perf.with_suffix(f".{name}"))
                    for _ in range(chosen.rounds)
                ]
                cpu = [row["cpu_us"] for row in rounds]
                print(
                    f"{chosen.server} {name}: {statistics.median(cpu):.0f} us CPU a GET "
                    f"({min(cpu):.0f}-{max(cpu):.0f}), "
                    f"{statistics.median(row['per_s'] for row in rounds):.0f} GET/s",
                    flush=True)


if __name__ == "__main__":
    main()
