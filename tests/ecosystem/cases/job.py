"""Runs a case inside its venv: makes its data, or reads the data epoch by epoch. A contender of
bench/harness/contest.py.

    job.py CASE make PICTURES DATA
    job.py CASE read DATA

Before each epoch the job waits for a line on stdin, so that the caller can read the counters of the
mount between two epochs. For each epoch, it prints one JSON object: time, samples, and a checksum
over all data, which does not depend on the order.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from pathlib import Path

MASK = (1 << 64) - 1


def digest(*parts: object) -> int:
    """Returns a 64-bit number for one sample, which consists of bytes, arrays, numbers or texts."""
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(
            str(part).encode() if isinstance(part, (int, float,
                                                    str)) else memoryview(part).cast("B"))
    return int.from_bytes(state.digest(), "little")


class Epoch:
    """The samples of an epoch and the sum of their digests. A sum does not depend on the order."""
    def __init__(self, number: int):
        self.number, self.samples, self.checksum = number, 0, 0

    def add(self, *parts: object) -> None:
        self.add_digest(digest(*parts))

    def add_digest(self, value: int) -> None:
        self.samples += 1
        self.checksum = (self.checksum + value) & MASK

    def add_sums(self, samples: int, checksum: int) -> None:
        """Adds the sums of another process."""
        self.samples += samples
        self.checksum = (self.checksum + checksum) & MASK


def run_epochs(read, turns, out) -> None:
    print(json.dumps({"digest": "", "files": 0}), file=out, flush=True)
    for number, _ in enumerate(turns, 1):
        epoch = Epoch(number)
        wall, cpu = time.monotonic_ns(), time.process_time_ns()
        read(epoch)
        found = {
            "wall_ns": time.monotonic_ns() - wall, "cpu_ns": time.process_time_ns() - cpu,
            "samples": epoch.samples, "checksum": f"{epoch.checksum:016x}"
        }
        print(json.dumps(found), file=out, flush=True)


def main(name: str, step: str, *paths: str) -> None:
    # Only the lines of the protocol may be written to stdout, but frameworks print there, too:
    # their output is sent to stderr. The first rank prints for all ranks.
    out = os.fdopen(os.dup(1), "w") if os.environ.get("RANK", "0") == "0" else open(os.devnull, "w")
    os.dup2(2, 1)
    case = importlib.import_module(name)
    if step == "make":
        case.make(*map(Path, paths))
    else:
        read = case.reader(Path(*paths))
        run_epochs(read, case.turns() if hasattr(case, "turns") else sys.stdin, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
