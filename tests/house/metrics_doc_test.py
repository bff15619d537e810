"""Checks that doc/deploy/METRICS.md lists the metrics that `cubeshim exporter --list` prints, which
come from cache/base/settings/stats.def. `--write` updates the list. Also checks that the dashboard
and the rules use only these metrics and that no field is missing. Grafana's own schema was compared
by hand.

    metrics_doc_test.py ROOT COMMAND [--write]
"""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

METRIC = re.compile(r"\bcubeshim_[a-z_]+")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \|", re.M)
WIDTH = 24  # of Grafana's grid


def document_problems(root: Path, table: str, write: bool) -> list[str]:
    document = root / "doc/deploy/METRICS.md"
    begin, end = "<!-- from stats.def: begin -->\n", "<!-- from stats.def: end -->\n"
    before, rest = document.read_text().split(begin)
    current, after = rest.split(end)
    if write:
        document.write_text(before + begin + table + end + after)
    elif current != table:
        return [
            "doc/deploy/METRICS.md is not what `cubeshim exporter --list` says: run "
            "tests/house/metrics_doc_test.py ROOT COMMAND --write"
        ]
    return []


def known_names(table: str) -> set[str]:
    names = set()
    for name, kind, _ in ROW.findall(table):
        names |= {name + suffix for suffix in ("_bucket", "_sum", "_count")
                 } if kind == "histogram" else {name}
    return names


def unknown_metrics(file: str, text: str, known: set[str]) -> list[str]:
    return [
        f"{file}: no metric is called {name}" for name in METRIC.findall(text) if name not in known
    ]


def wrong_reasons(root: Path, file: str, text: str) -> list[str]:
    """Checks that a hit ratio, like the report, counts the opens that a cache of unlimited size
    could serve."""
    rows = re.findall(r'^CUBE_BYPASSED\(\w+, "bypassed\.(\w+)", (true|false)',
                      (root / "cache/base/settings/stats.def").read_text(), re.M)
    wanted = "|".join(sorted(reason for reason, is_request in rows if is_request == "true"))
    used = set(re.findall(r'reason=~\\?"([^"\\]+)\\?"', text))
    return [] if used == {wanted} else [f"{file}: reasons of requests are {wanted}, not {used}"]


def panel_problems(board: dict) -> list[str]:
    problems, panels = [], board["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        problems.append("two panels have one id")
    boxes = [(panel["title"], *(panel["gridPos"][key]
                                for key in ("x", "y", "w", "h")))
             for panel in panels]
    problems += [
        f"{title} is wider than the page" for title, x, _, w, _ in boxes if x < 0 or x + w > WIDTH
    ]
    for (one, x1, y1, w1, h1), (other, x2, y2, w2, h2) in itertools.combinations(boxes, 2):
        if x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1:
            problems.append(f"{one} lies on {other}")
    for panel in panels:
        references = [target["refId"] for target in panel["targets"]]
        if not references or len({*references}) != len(references):
            problems.append(f"{panel['title']}: its targets want a refId each")
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        if any(source != {"type": "prometheus", "uid": "${datasource}"} for source in sources):
            problems.append(f"{panel['title']}: its data source is not the one of the page")
        if not all(target["expr"] for target in panel["targets"]):
            problems.append(f"{panel['title']}: a target asks for nothing")
    if {variable["name"] for variable in board["templating"]["list"]
       } != {"datasource", "instance", "cache"}:
        problems.append("the page's variables are not datasource, instance and cache")
    return problems


def self_check(board: dict) -> None:
    """Checks that the rules of panels can fail."""
    def spoiled(change) -> list[str]:
        copy = json.loads(json.dumps(board))
        change(copy["panels"])
        return panel_problems(copy)

    assert spoiled(lambda panels: panels[0].update(id=panels[1]["id"]))
    assert spoiled(lambda panels: panels[0]["gridPos"].update(x=panels[1]["gridPos"]["x"]))
    assert spoiled(lambda panels: panels[0]["targets"][0].update(datasource=None))
    assert spoiled(lambda panels: panels[0]["targets"][0].update(expr=""))


def main(root: Path, command: Path, write: bool) -> int:
    table = subprocess.run([command, "exporter", "--list"], capture_output=True, text=True,
                           check=True).stdout
    problems, known = document_problems(root, table, write), known_names(table)
    assert len(known) > 60, known
    for file in ("grafana.json", "alerts.yaml"):
        text = (root / "doc/deploy" / file).read_text()
        # Leaves out names of rules, which contain a colon or are followed by one.
        problems += unknown_metrics(file, re.sub(r"\bcubeshim\w*:[\w:]+", "", text),
                                    known) + wrong_reasons(root, file, text)
    board = json.loads((root / "doc/deploy/grafana.json").read_text())
    self_check(board)
    problems += panel_problems(board)
    print("\n".join(problems) or f"{len(known)} metrics, {len(board['panels'])} panels")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), "--write" in sys.argv))
