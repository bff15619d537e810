"""Loads small objects of a store into a cache (`cubeshim warmup`) and into a pack (`cubeshim
pack`). Compares the times with curl, which makes the same number of requests at a time and keeps
nothing."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from bench.harness.gateways import gateways_of
from bench.harness.pages import have_memory
from bench.object.servers import BUCKET, KEY, REGION, SECRET, SERVERS, ObjectStore, running

IN_FLIGHT = 64


def curl_list(store: ObjectStore, keys: list[str], folder: Path) -> Path:
    """Writes a list of presigned requests for curl."""
    rows = []
    for key in keys:
        request = AWSRequest("GET", f"{store.url}/{BUCKET}/{key}")
        S3SigV4QueryAuth(Credentials(KEY, SECRET), "s3", REGION).add_auth(request)
        rows.append(f'url = "{request.url}"\noutput = "/dev/null"\n')
    path = folder / "urls"
    path.write_text("".join(rows))
    return path


def seconds(words: list[str | Path], environment: dict[str, str] | None = None) -> float:
    began = time.monotonic()
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def by_curl(urls: Path) -> float:
    return seconds([
        "curl", "-sS", "--fail", "--no-progress-meter", "--parallel", "--parallel-immediate",
        "--parallel-max",
        str(IN_FLIGHT), "--config", urls
    ])


def by_warmup(build: Path, store: ObjectStore, prefix: str, work: Path) -> float:
    # Uses a new name, because the gateway of the previous round can live for some seconds.
    name = f"bench-warmup-{os.getpid()}-{time.monotonic_ns()}"
    command = work / name
    command.symlink_to(build / "cubeshim")
    settings = {
        "CUBESHIM_NAME": name,
        "CUBESHIM_COMMAND": str(command),
        "CUBESHIM_RAM": "1500M",
        "CUBESHIM_RAM_KEEP": "1",
        "CUBESHIM_BUCKETS": f"/bench-bucket=s3://{BUCKET}/{prefix}",
        "CUBESHIM_PREFETCH_DEPTH": str(IN_FLIGHT)
    }
    try:
        return seconds([command, "warmup", f"s3://{BUCKET}/{prefix}"],
                       os.environ | store.environment() | settings)
    finally:
        for pid in gateways_of(command):
            os.kill(pid, signal.SIGTERM)
        while gateways_of(command):
            time.sleep(0.05)
        subprocess.run([command, "clear", "--name", name],
                       check=False,
                       stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)


def by_pack(build: Path, store: ObjectStore, prefix: str, work: Path) -> float:
    pack = work / "pack.cube"
    pack.unlink(missing_ok=True)
    return seconds([build / "cubeshim", "pack", f"s3://{BUCKET}/{prefix}", pack],
                   os.environ | store.environment())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--server", choices=SERVERS, default="versitygw")
    parser.add_argument("--objects", type=int, default=4000)
    parser.add_argument("--size", type=int, default=58 << 10)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    build = chosen.build.resolve()
    with tempfile.TemporaryDirectory(prefix="bcmd-bench-", dir="/var/tmp") as folder, \
            running(chosen.server, Path(folder)) as store:
        work, prefix = Path(folder), "objects"
        store.put_objects(prefix, chosen.objects, chosen.size)
        keys = [f"{prefix}/{number % 10}/{number:06}" for number in range(chosen.objects)]
        urls = curl_list(store, keys, work)
        rows: dict[str, list[float]] = {"curl": [], "warmup": [], "pack": []}
        for _ in range(chosen.rounds):
            rows["curl"].append(by_curl(urls))
            have_memory(2 * chosen.objects * chosen.size >> 20)
            rows["warmup"].append(by_warmup(build, store, prefix, work))
            rows["pack"].append(by_pack(build, store, prefix, work))
        for name, took in rows.items():
            ratios = [mine / theirs for mine, theirs in zip(took, rows["curl"])]
            print(
                f"{chosen.server} {name}: {statistics.median(took):.2f} s "
                f"({min(took):.2f}-{max(took):.2f}), {statistics.median(ratios):.2f} x of curl "
                f"({min(ratios):.2f}-{max(ratios):.2f})",
                flush=True)


if __name__ == "__main__":
    main()
