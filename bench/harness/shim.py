"""How a child is run under the library, and what the library says of it at its end. Only children
ever get LD_PRELOAD."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "prefetch" / "python"
ANNOUNCED = {"CUBESHIM_ANNOUNCE": "1"
            }  # the default; a Shim has 0, for most rows measure something else
PREFETCH_OFF = {"CUBESHIM_PREFETCH": "0"}


@dataclass(frozen=True)
class Shim:
    library: Path
    prefix: Path
    name: str
    ram: str | None = "1500M"  # None: the library's default, as is the mode's
    stats: Path | None = None
    mode: str | None = "virtual"
    more: tuple[tuple[str, str], ...] = ()  # of the environment

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
    """Ours, with the settings of this library alone."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name != "LD_PRELOAD" and not name.startswith("CUBESHIM_")
    }
    return {**plain, **(shim.environment() if shim else {})}


def exit_report(stats: Path) -> dict:
    """The report that a job has left in its file of CUBESHIM_STATS (the last one, if there are
    more); the file goes."""
    try:
        text = stats.read_text().strip()
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text.splitlines()[-1])
    finally:
        stats.unlink(missing_ok=True)
