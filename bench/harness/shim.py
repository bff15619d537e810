"""Runs a child under the library, and reads the library's report at the child's end. LD_PRELOAD is
set only for children."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "prefetch" / "python"
# The library's default. A Shim has 0, because most rows measure something else.
ANNOUNCED = {"CUBESHIM_ANNOUNCE": "1"}
PREFETCH_OFF = {"CUBESHIM_PREFETCH": "0"}


@dataclass(frozen=True)
class Shim:
    library: Path
    prefix: Path
    name: str
    ram: str | None = "1500M"  # None: the library's defaults for the size and the mode
    stats: Path | None = None
    mode: str | None = "virtual"
    more: tuple[tuple[str, str], ...] = ()  # additional environment

    @property
    def region(self) -> Path:
        return Path(f"/dev/shm/cubeshim-{os.geteuid()}-{self.name}")

    def environment(self) -> dict[str, str]:
        chosen = {"CUBESHIM_RAM": self.ram, "CUBESHIM_MODE": self.mode}
        return {
            "LD_PRELOAD": str(self.library), "CUBESHIM_PREFIXES": str(self.prefix),
            "CUBESHIM_NAME": self.name, "CUBESHIM_ANNOUNCE": "0",
            "CUBESHIM_STATS": str(self.stats) if self.stats else "off",
            "CUBESHIM_STATS_FORMAT": "json",
            **{name: value for name, value in chosen.items() if value is not None},
            **dict(self.more)
        }


def child_environment(shim: Shim | None) -> dict[str, str]:
    """Returns our environment without settings of this library, except the settings of `shim`."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name != "LD_PRELOAD" and not name.startswith("CUBESHIM_")
    }
    return {**plain, **(shim.environment() if shim else {})}


def exit_report(stats: Path) -> dict:
    """Reads the last report that a job has written to its file of CUBESHIM_STATS, and removes the
    file."""
    try:
        text = stats.read_text().strip()
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text.splitlines()[-1])
    finally:
        stats.unlink(missing_ok=True)
