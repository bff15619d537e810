"""Runs train.py: builds its command line, prints its epochs as they end, and reads its results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.mount import SlowMount, end
from bench.harness.shim import Shim, child_environment
from bench.harness.suite import Bench

TRAIN = Path(__file__).resolve().with_name("train.py")
EPOCH_LINE = re.compile(r"epoch \d+ ")
QUIET = {"PYTHONWARNINGS": "ignore:This DataLoader will create"}


def train_command(data: Path, out: Path, loader: str, epochs: int, workers: int = 2,
                  per_class: int = 0, pause: float = 0.0, steps: bool = False) -> list[str]:
    """`per_class`: files of each class, 0 for all. `pause`: seconds between epochs, which are not
    timed. `steps`: whether the run also trains."""
    return [
        sys.executable,
        str(TRAIN), "--data",
        str(data), "--workers",
        str(workers), "--loader",
        loader.lower(), "--epochs",
        str(epochs), "--per-class",
        str(per_class), "--pause",
        str(pause), "--json",
        str(out), *([] if steps else ["--no-train"])
    ]


def run_epochs(command: list[str], environment: Mapping[str, str], on_epoch: Callable[[str],
                                                                                      None]) -> int:
    """Runs the command, passes on the line of each epoch as it is printed, and returns the exit
    status."""
    with subprocess.Popen(command, env={**environment, **QUIET}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            for line in child.stdout:
                if EPOCH_LINE.match(line):
                    on_epoch(line)
            return child.wait()
        except BaseException:
            end(child, first_wait=0.0)
            raise


def epochs_of(out: Path) -> list[dict]:
    """Returns the figures of each epoch, and removes the file."""
    try:
        return json.loads(out.read_text())["epochs"]
    finally:
        out.unlink(missing_ok=True)


def train(bench: Bench, data: Path, loader: str, per_class: int, shim: Shim | None,
          mount: SlowMount | None = None, epochs: int = 1, workers: int = 2, pause: float = 0.0,
          steps: bool = False) -> tuple[list[dict], list[int]]:
    """Runs train.py one time. Returns its epochs, and the bytes that each epoch has read from the
    mount."""
    out = bench.work / "train.json"
    read = [mount.bytes_read()] if mount else []
    command = train_command(data, out, loader, epochs, workers, per_class, pause, steps)
    status = run_epochs(command, child_environment(shim), lambda _: read.append(mount.bytes_read())
                        if mount else None)
    if status:
        raise BenchError(f"train.py ended with {status}")
    return epochs_of(out), [after - before for before, after in zip(read, read[1:])]
