"""Finds gateways of object stores by the path of the command that started them."""

from __future__ import annotations

import os
from pathlib import Path


def gateways_of(command: Path) -> list[int]:
    """Returns the pids of the gateways that a command with this path has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [os.fsencode(command), b"gateway"]:
            found.append(int(folder.name))
    return found
