"""Reads one large object of a store from beginning to end, through a proxy that delays each
request. A program under the library reads it, and curl, with 32 range requests at a time. The store
must be running already; its keys are in the environment (AWS_ACCESS_KEY_ID ...).

    python3 -m bench.object.large_object --library build/libcubeshim.so --command build/cubeshim \\
        --port 7070 --bucket bench --key large
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from bench.harness.pages import have_memory

RANGE, IN_FLIGHT = 8 << 20, 32
READ = """
import os, sys, time
began, buffer, size = time.monotonic(), bytearray(1 << 20), 0
with open(sys.argv[1], "rb", buffering=0) as file:
    while n := file.readinto(buffer): size += n
print(size, time.monotonic() - began)
"""


@contextmanager
def late_proxy(port: int, delay_ms: int, megabytes: int, work: Path) -> Iterator[int]:
    source = Path(__file__).with_name("late_proxy.c")
    subprocess.run(["cc", "-O2", "-pthread", "-o", work / "late_proxy", source, "-lm"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    proxy = subprocess.Popen(
        [work / "late_proxy",
         str(own), str(port),
         str(delay_ms), str(megabytes)])
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", own)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield own
    finally:
        proxy.kill()
        proxy.wait()


def by_curl(url: str, size: int) -> float:
    """Returns the seconds that parallel range requests take."""
    environment = os.environ
    request = AWSRequest("GET", url)
    keys = Credentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
    S3SigV4QueryAuth(keys, "s3", environment.get("AWS_REGION", "us-east-1")).add_auth(request)
    words = [
        "curl", "-sS", "--fail", "--parallel", "--no-progress-meter", "--parallel-immediate",
        "--parallel-max",
        str(IN_FLIGHT)
    ]
    for begin in range(0, size, RANGE):
        end = min(begin + RANGE, size) - 1
        words += [
            *(["--next"] if begin else []), "--fail", "-r", f"{begin}-{end}", "-o", "/dev/null",
            request.url
        ]
    began = time.monotonic()
    subprocess.run(words, check=True)
    return time.monotonic() - began


def by_program(options: argparse.Namespace, port: int, work: Path) -> tuple[int, float]:
    """Returns the object's size, and the seconds that a program takes to read it."""
    settings = {
        "LD_PRELOAD": str(options.library.resolve()),
        "CUBESHIM_COMMAND": str(options.command.resolve()),
        "CUBESHIM_STATS": "off",
        "CUBESHIM_NAME": f"bench-large-{os.getpid()}-{time.monotonic_ns()}",
        "CUBESHIM_RAM": options.ram,
        "CUBESHIM_BUCKETS": f"{work}/bucket=s3://{options.bucket}",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"
    }
    done = subprocess.run([sys.executable, "-c", READ, f"{work}/bucket/{options.key}"],
                          env=os.environ | settings,
                          check=True,
                          stdout=subprocess.PIPE,
                          text=True)
    size, seconds = done.stdout.split()
    return int(size), float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--command", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--ram", default="3G")
    parser.add_argument("--memory-mb", type=int, default=1024, help="made available beforehand")
    parser.add_argument("--delay-ms", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=0, help="of bandwidth a second; 0: all")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            late_proxy(options.port, options.delay_ms, options.megabytes, Path(folder)) as port:
        ratios = []
        for _ in range(options.rounds):
            have_memory(options.memory_mb)
            size, seconds = by_program(options, port, Path(folder))
            other = by_curl(f"http://127.0.0.1:{port}/{options.bucket}/{options.key}", size)
            ratios.append(other / seconds)
            print(
                f"{size / seconds / 1e6:.0f} MB/s, curl {size / other / 1e6:.0f} MB/s, "
                f"ratio {ratios[-1]:.2f}",
                flush=True)
        print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
