"""Checks that the tables of doc/CONFIG.md agree with cache/base/settings/config.def and
cache/base/settings/stats.def. `--write` updates them."""

import re
import sys
from pathlib import Path

SETTING = re.compile(r"^CUBE_CONFIG\(\s*\w+, \w+,\s(.*?)\)$", re.M | re.S)
FIGURE = re.compile(r"^CUBE_(COUNTER|BYPASSED|FIGURE|TIER_FIGURE)\((.*?\")\)$", re.M | re.S)
TIER = re.compile(r'\{"(\w+)", Counter::(\w+),')


def strings(row: str) -> list[str]:
    """Returns the C strings of a row. Strings with only white space between them count as one
    string."""
    joined = re.sub(r'"\s*\n\s*"', "", row)
    return [s.encode().decode("unicode_escape") for s in re.findall(r'"((?:[^"\\]|\\.)*)"', joined)]


def table(heading: str, rows: list[list[str]]) -> str:
    cells = [heading.split(", "), ["---"] * len(heading.split(", ")), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def settings(definition: str) -> str:
    rows = [strings(row) for row in SETTING.findall(definition)]
    is_whole = len(rows) == len(re.findall(r"^CUBE_CONFIG\(", definition, re.M))
    assert rows and is_whole and all(
        len(row) == 4 for row in rows), "config.def does not read as expected"
    return table("variable, default, takes, meaning",
                 [[f"`{name}`", f"`{default}`" if default else "none", takes, text]
                  for name, default, takes, text in rows])


def figures(definition: str, tier_kinds: str) -> str:
    tiers = TIER.findall(tier_kinds)
    tier_of_hits = {hits: tier for tier, hits in tiers}
    found = FIGURE.findall(definition)
    assert tiers and len(found) == len(re.findall(r"^CUBE_", definition,
                                                  re.M)), "stats.def does not read as expected"
    rows, of_tiers = [], []
    for kind, row in found:
        name, text = re.match(r"\w+", row).group(), strings(row)
        unit = "opens" if kind == "BYPASSED" else re.search(
            r'(\w+),\s*"', row if kind == "TIER_FIGURE" else row.split('",', 1)[1]).group(1)
        if kind == "TIER_FIGURE":
            of_tiers.append((name, unit, text[-1]))
            continue
        rows += of_each(tiers, of_tiers)
        of_tiers = []
        tier = tier_of_hits.get(name)
        rows.append([f"`{text[0]}`", unit, (f"with a {tier}: " if tier else "") + text[-1]])
    return table("field, unit, meaning", rows + of_each(tiers, of_tiers))


def of_each(tiers: list, fields: list) -> list[list[str]]:
    """Returns the rows of a block of fields of tiers. See has_figure in cache/report/figures.h."""
    return [[f"`{tier}.{name}`", unit, f"with a {tier}: {text}"]
            for tier, _ in tiers
            for name, unit, text in fields if (tier, name) != ("cluster", "unwritten")]


def main(root: Path, write: bool) -> int:
    base, document = root / "cache/base/settings", root / "doc/CONFIG.md"
    wanted = {
        "config.def": settings((base / "config.def").read_text()), "stats.def": figures(
            (base / "stats.def").read_text(), (base / "tier_kinds.h").read_text())
    }
    status = 0
    for source, lines in wanted.items():
        begin, end = f"<!-- from {source}: begin -->\n", f"<!-- from {source}: end -->\n"
        before, rest = document.read_text().split(begin)
        current, after = rest.split(end)
        if write:
            document.write_text(before + begin + lines + end + after)
        elif current != lines:
            print(
                f"doc/CONFIG.md is not what {source} says: run tests/house/config_doc_test.py "
                "ROOT --write"
            )
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--write" in sys.argv))
