#!/usr/bin/env python3
"""Draws the first table of doc/BENCHMARKS.md, what a file costs, as doc/file_cost.svg.

    chart.py ROOT            says whether the drawing has the figures of the table
    chart.py ROOT --write    draws it
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROW = re.compile(r"^\| ([^|]+?) \| \**([\d,.]+)\** \|", re.M)
TITLE = "What one file costs a reader, microseconds (logarithmic)"
LABELS, BARS, HEIGHT, TOP, VALUES = 300, 360, 30, 40, 80  # pixels
LEAST = 1.0  # microseconds, at the left end of all bars
OURS, OTHERS = "#2f6fc7", "#8a8f98"


def rows_of(document: str) -> list[tuple[str, float]]:
    """The rows before the first heading of the second level: what, and its microseconds."""
    page = document.split("\n## ", 1)[0]
    table = page[page.index("| where the file is |"):].split("\n\n", 1)[0]
    return [(what, float(figure.replace(",", ""))) for what, figure in ROW.findall(table)]


def drawing(rows: list[tuple[str, float]]) -> str:
    most = max(figure for _, figure in rows)
    width, height = LABELS + BARS + VALUES, TOP + HEIGHT * len(rows) + 10
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
             ' font-family="sans-serif" font-size="13">',
             f"  <title>{escape(TITLE)}</title>",
             f'  <rect width="{width}" height="{height}" fill="#ffffff"/>',
             f'  <text x="12" y="22" font-size="15">{escape(TITLE)}</text>']
    for number, (what, figure) in enumerate(rows):
        y = TOP + HEIGHT * number
        length = round(BARS * math.log(figure / LEAST) / math.log(most / LEAST))
        colour = OURS if what.startswith("cubeshim") else OTHERS
        lines += [f'  <text x="{LABELS - 10}" y="{y + 15}" text-anchor="end">{escape(what)}</text>',
                  f'  <rect x="{LABELS}" y="{y}" width="{length}" height="20" fill="{colour}"/>',
                  f'  <text x="{LABELS + length + 6}" y="{y + 15}">{figure:,g}</text>']
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ["--write"]):
        print(f"usage: {__doc__}", file=sys.stderr)
        return 2
    root = Path(arguments[0])
    picture = root / "doc/file_cost.svg"
    wanted = drawing(rows_of((root / "doc/BENCHMARKS.md").read_text()))
    if arguments[1:]:
        picture.write_text(wanted)
    elif not picture.exists() or picture.read_text() != wanted:
        print("doc/file_cost.svg has not the figures of doc/BENCHMARKS.md: run bench/harness/chart.py ROOT --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
