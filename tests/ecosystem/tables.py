"""The Markdown page of the table."""

from __future__ import annotations

from statistics import median

from bench.harness.report import Table
from measure import EPOCHS, LOCAL, NATIVE, SHIM, Found

MARK = "<!-- made by tests/ecosystem/run.py: from here on -->"
LEAST_SPEED = 0.95
MB = 1e6


def three(found: Found, way: str, what: str, unit: float = 1) -> str:
    texts = [found.middle(way, what, i) / unit for i in range(EPOCHS)]
    return " / ".join(f"{value:.1f}" if unit > 1 else f"{value:.0f}" for value in texts)


def misses(found: Found) -> str:
    """Returns the figures of the last run under the library: opens that fetched, opens that were
    not served, and all opens."""
    report = found.runs[SHIM][-1].report
    not_served = sum(report["bypassed"][reason] for reason in ("size", "full", "links", "busy"))
    return f"{report['misses']} + {not_served} of {report['opens']}"


def faults(found: Found) -> list[str]:
    """The rules that the row breaks."""
    if found.error:
        return [found.error]
    broken = [] if found.equal() else ["bytes differ"]
    if median(found.ratios(LOCAL)) < LEAST_SPEED:
        broken.append("slower than the local disk")
    if found.middle(SHIM, "bytes", 0) > found.middle(NATIVE, "bytes", 0):
        broken.append("more bytes than natively")
    return broken


def speed_row(found: Found) -> tuple[str, ...]:
    if found.error:
        return (found.case.title, ", ".join(found.versions), *["-"] * 10, found.error)
    rates = [f"{found.per_s(way, epoch):.0f}" for epoch in (0, 1) for way in (NATIVE, SHIM, LOCAL)]
    ratios = found.ratios(LOCAL)
    return (found.case.title, ", ".join(found.versions), "equal" if found.equal() else "DIFFER",
            *rates, f"{median(found.ratios(NATIVE)):.2f}",
            f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
            f"{found.cpu_ratio():.2f}", ", ".join(faults(found)) or "none")


def origin_row(found: Found) -> tuple[str, ...]:
    return (found.case.title, str(found.runs[SHIM][0].samples[0]), misses(found),
            three(found, NATIVE, "operations"), three(found, SHIM, "operations"),
            three(found, NATIVE, "bytes", MB), three(found, SHIM, "bytes", MB))


def speed_table(rows: list[Found]) -> Table:
    return Table("Samples a second", "",
                 ("framework", "versions", "bytes", "epoch 1: native", "shim", "local",
                  "epoch 2: native", "shim", "local", "epochs 2, 3: shim / native", "shim / local",
                  "CPU time: local / shim", "rules broken"), [speed_row(found) for found in rows])


def origin_table(rows: list[Found]) -> Table:
    return Table("At the origin", "", ("framework", "samples", "misses + not served of opens",
                                       "operations of epochs 1 / 2 / 3: native", "shim",
                                       "MB of epochs 1 / 2 / 3: native", "shim"),
                 [origin_row(found) for found in rows if not found.error])


def verdict(rows: list[Found]) -> str:
    count = sum(1 for found in rows if not faults(found))
    return f"{count} of {len(rows)} frameworks keep all rules."
