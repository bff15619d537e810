#!/usr/bin/env python3
"""The jobs of the suite `node`. They continue after a line on stdin, and answer in JSON on stdout.

    jobs.py wait TRIGGER opens a file, so that the library starts working, and waits jobs.py read
    TRIGGER LIST THINK_MS reads the files of a list, each once, and reports the microseconds of each
    jobs.py rank LIST THINK_MS           announces the files of a list, except the first, and reads
                                         them
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Iterable


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def read(path: str) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        return zlib.crc32(os.read(fd, os.fstat(fd).st_size))
    finally:
        os.close(fd)


def read_all(paths: Iterable[str], think_s: float) -> dict[str, object]:
    us, ends, crc, errors = [], [], 0, 0
    for path in paths:
        start = time.monotonic_ns()
        try:
            crc ^= read(path)
        except OSError:
            errors += 1
        end = time.monotonic_ns()
        us.append((end - start) / 1e3)
        ends.append(end)
        if think_s:
            time.sleep(think_s)  # simulates the job's work on the bytes
    return {"us": us, "ends": ends, "crc": crc, "errors": errors}


def paths_of(name: str) -> list[str]:
    with open(name, encoding="utf-8") as file:
        return file.read().splitlines()


def main(kind: str, *words: str) -> None:
    if kind == "wait":
        read(words[0])
        say(ready=True)
        sys.stdin.readline()
    elif kind == "read":
        read(words[0])
        say(ready=True)
        sys.stdin.readline()
        say(**read_all(paths_of(words[1]), float(words[2]) / 1e3))
    elif kind == "rank":
        import cubeshim

        trigger, *paths = paths_of(words[0])
        read(trigger)
        say(ready=True)
        sys.stdin.readline()
        say(**read_all(cubeshim.announce(paths), float(words[1]) / 1e3))
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
