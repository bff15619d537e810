"""Reads the objects of a store as files, through the library and through mounts of rclone and s3fs.
Counts the requests of each way, and times two epochs behind a proxy that adds latency.

    python3 -m bench.object.epochs --build build --server versitygw gofakes3
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.load import Load
from bench.harness.machine import describe_machine
from bench.harness.mount import end
from bench.harness.shim import Shim, child_environment
from bench.object.delay import Delay
from bench.object.servers import BUCKET, KEY, REGION, SECRET, SERVERS, is_installed, running

PYTHON, MOUNT_S = "/usr/bin/python3", 30
# Finds the files, and then reads them twice, in two random orders, like a data loader.
READ = """
import concurrent.futures, hashlib, json, os, random, sys, time
root, threads = sys.argv[1], int(sys.argv[2])
def read(name):
    with open(name, "rb", buffering=0) as file:
        return hashlib.blake2b(file.read(), digest_size=8).digest()
began = time.monotonic()
names = sorted(os.path.join(top, name) for top, _, names in os.walk(root) for name in names)
took = [time.monotonic() - began]
digests = set()
with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    for epoch in range(2):
        order = random.Random(epoch).sample(names, len(names))
        began = time.monotonic()
        found = dict(zip(order, pool.map(read, order)))
        took.append(time.monotonic() - began)
        digests.add(hashlib.sha256(b"".join(found[name] for name in names)).hexdigest())
print(json.dumps({"files": len(names), "took": took, "digests": sorted(digests)}))
"""


def read(root: Path, threads: int, shim: Shim | None = None) -> dict:
    done = subprocess.run([PYTHON, "-c", READ, root, str(threads)],
                          env=child_environment(shim),
                          capture_output=True,
                          text=True)
    if done.returncode != 0 or done.stderr:
        raise BenchError(f"{root}: {done.stderr}")
    return json.loads(done.stdout)


def wait_for_mount(path: Path, child: subprocess.Popen) -> None:
    deadline = time.monotonic() + MOUNT_S
    while not os.path.ismount(path):
        if child.poll() not in (None, 0) or time.monotonic() > deadline:
            raise BenchError(f"{child.args[0]} does not mount")
        time.sleep(0.1)


@contextmanager
def mounted(name: str, work: Path, url: str, prefix: str) -> Iterator[Path]:
    """Mounts the prefix with rclone or s3fs, with that program's cache of metadata."""
    path = work / f"mount-{name}"
    path.mkdir()
    environment = {**os.environ, "AWSACCESSKEYID": KEY, "AWSSECRETACCESSKEY": SECRET}
    remote = (f":s3,provider=Other,endpoint='{url}',access_key_id={KEY},secret_access_key={SECRET},"
              f"region={REGION}:{BUCKET}/{prefix}")
    words = {
        "rclone mount": [
            "rclone", "mount", remote, path, "--config", "/dev/null", "--read-only", "--no-modtime",
            "--dir-cache-time", "1h"
        ],
        "s3fs": [
            "s3fs", f"{BUCKET}:/{prefix}", path, "-f", "-o", f"url={url}", "-o",
            "use_path_request_style,ro,enable_noobj_cache,max_stat_cache_size=100000", "-o",
            f"endpoint={REGION}"
        ],
    }[name]
    child = subprocess.Popen([str(word) for word in words],
                             env=environment,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL,
                             start_new_session=True)
    try:
        wait_for_mount(path, child)
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        end(child)


@contextmanager
def served(build: Path, work: Path, environment: dict[str, str], prefix: str, is_listed: bool,
           names: list[str]) -> Iterator[Shim]:
    mount = Path("/bench-bucket")
    more = {
        "CUBESHIM_BUCKETS": f"{mount}=s3://{BUCKET}/{prefix}",
        "CUBESHIM_PREFIXES": "",
        "CUBESHIM_COMMAND": str(build / "cubeshim"),
        **environment
    }
    if is_listed:
        names_of_order = work / "order"
        names_of_order.write_text("".join(f"{mount}/{name}\n" for name in names))
        more["CUBESHIM_PREFETCH_LIST"] = str(names_of_order)
    shim = Shim(build / "libcubeshim.so",
                mount,
                f"bench-object-{time.monotonic_ns()}",
                "1500M",
                more=tuple(more.items()))
    yield shim
    shim.region.unlink(missing_ok=True)


def measure(chosen: argparse.Namespace, server: str, work: Path) -> None:
    with running(server, work) as store:
        store.put_objects("train", chosen.objects, chosen.size)
        port = int(store.url.rsplit(":", 1)[1])
        names = [f"{i % 10}/{i:06}" for i in range(chosen.objects)]
        order = random.Random(0).sample(names, len(names))
        for latency_ms in chosen.latency:
            proxy = Delay(port, latency_ms / 1000)
            rows: dict[str, list[dict]] = {}
            digests = set()
            for _ in range(chosen.rounds):
                for name in ("cubeshim", "cubeshim, listed", "rclone mount", "s3fs"):
                    if not shutil.which(name.split()[0]) and not name.startswith("cubeshim"):
                        continue
                    proxy.take_counts()
                    if name.startswith("cubeshim"):
                        with served(chosen.build, work, store.environment(proxy.url), "train", name
                                    != "cubeshim", order) as shim:
                            row = read(shim.prefix, chosen.threads, shim)
                    else:
                        try:
                            with mounted(name, work, proxy.url, "train") as path:
                                row = read(path, chosen.threads)
                            (work / f"mount-{name}").rmdir()
                        except BenchError as error:
                            print(f"{server}, {name}: {error}", flush=True)
                            shutil.rmtree(work / f"mount-{name}", ignore_errors=True)
                            continue
                    row["counts"] = dict(proxy.take_counts())
                    digests.add(tuple(row["digests"]))
                    rows.setdefault(name, []).append(row)
            proxy.close()
            if len(digests) != 1 or len(next(iter(digests))) != 1:
                raise BenchError(f"{server}: the readers saw different bytes")
            print_rows(server, latency_ms, rows)


def print_rows(server: str, latency_ms: int, rows: dict[str, list[dict]]) -> None:

    def text(values: list[float]) -> str:
        return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"

    for name, found in rows.items():
        walk, first, second = (text([row["took"][i] for row in found]) for i in range(3))
        counts = ", ".join(
            f"{kind} {number}" for kind, number in sorted(found[-1]["counts"].items()))
        print(f"| {server} | {latency_ms} ms | {name} | {walk} | {first} | {second} | {counts} |",
              flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--server", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--size", type=int, default=58 << 10)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=int, nargs="+", default=[5, 20], help="milliseconds")
    chosen = parser.parse_args()
    chosen.build = chosen.build.resolve()
    with tempfile.TemporaryDirectory(prefix="cubeshim-bench-", dir="/var/tmp") as work:
        print(describe_machine("bench.object.epochs", Path(work)).line())
        print("| server | latency | reader | walk, s | epoch 1, s | epoch 2, s | requests |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        load = Load()
        for server in chosen.server:
            if is_installed(server):
                measure(chosen, server, Path(work))
        print(f"other programs used {load.share_of_others():.0%} of the processors")


if __name__ == "__main__":
    main()
