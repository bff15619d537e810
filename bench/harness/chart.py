#!/usr/bin/env python3
"""Draws the charts of the documents from their tables: the cost of a file (doc/BENCHMARKS.md) and
the gain of a training job (doc/benchmarks/jobs.md).

    chart.py ROOT reports each chart that does not have the figures of its table
    chart.py ROOT --write draws the charts
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

LABELS, BARS, VALUES, TOP = 300, 360, 80, 40  # pixels
OURS, SLOW, OTHERS = "#2f6fc7", "#c7882f", "#8a8f98"


@dataclass(frozen=True)
class Row:
    what: str
    figures: tuple[float, ...]  # one bar for each figure

    @property
    def colour(self) -> str:
        return OURS if "cubeshim" in self.what else SLOW if "slow mount" in self.what else OTHERS


@dataclass(frozen=True)
class Chart:
    picture: str
    document: str
    title: str
    head: str  # the beginning of the table's head
    row: re.Pattern[str]
    length: Callable[[float, float], float]  # the length of a bar, from its figure and the largest
                                             # one


def by_size(figure: float, most: float) -> float:
    return figure / most


def by_logarithm(figure: float, most: float) -> float:
    return math.log(figure) / math.log(most)


CHARTS = (
    Chart("doc/file_cost.svg", "doc/BENCHMARKS.md",
          "What one file costs a reader, microseconds (logarithmic)", "| where the file is |",
          re.compile(r"^\| ([^|]+?) \| \**([\d,.]+)\** \|", re.M), by_logarithm),
    Chart(
        "doc/training.svg", "doc/benchmarks/jobs.md",
        "Second epoch of a torch DataLoader: samples a second (upper bar: cv2, lower bar: PIL)",
        "| samples/s (torch DataLoader) |",
        re.compile(r"^\| ([^|]+workers) \| \d+ / \**(\d+)\** / \**\d+\** \| \d+ / \**(\d+)\** /",
                   re.M), by_size),
)


def rows_of(chart: Chart, text: str) -> list[Row]:
    table = text[text.index(chart.head):].split("\n\n", 1)[0]
    return [
        Row(what, tuple(float(figure.replace(",", ""))
                        for figure in figures))
        for what, *figures in chart.row.findall(table)
    ]


def drawing(chart: Chart, rows: list[Row]) -> str:
    most = max(figure for row in rows for figure in row.figures)
    each = 12 + 19 * max(len(row.figures) for row in rows)
    width, height = LABELS + BARS + VALUES, TOP + each * len(rows) + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="13">', f"  <title>{escape(chart.title)}</title>",
        f'  <rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'  <text x="12" y="22" font-size="15">{escape(chart.title)}</text>'
    ]
    for number, row in enumerate(rows):
        top = TOP + each * number
        lines.append(
            f'  <text x="{LABELS - 10}" y="{top + 19 * len(row.figures) // 2 + 4}"'
            f' text-anchor="end">{escape(row.what)}</text>'
        )
        for below, figure in enumerate(row.figures):
            y, length = top + 19 * below, round(BARS * chart.length(figure, most))
            lines += [
                f'  <rect x="{LABELS}" y="{y}" width="{length}" height="17" fill="{row.colour}"'
                f' fill-opacity="{1 if below == 0 else 0.65}"/>',
                f'  <text x="{LABELS + length + 6}" y="{y + 13}">{figure:,g}</text>'
            ]
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ["--write"]):
        print(f"usage: {__doc__}", file=sys.stderr)
        return 2
    root, status = Path(arguments[0]), 0
    for chart in CHARTS:
        wanted, picture = drawing(chart, rows_of(
            chart, (root / chart.document).read_text())), root / chart.picture
        if arguments[1:]:
            picture.write_text(wanted)
        elif not picture.exists() or picture.read_text() != wanted:
            print(
                f"{chart.picture} has not the figures of {chart.document}: "
                "run bench/harness/chart.py ROOT --write",
                file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
