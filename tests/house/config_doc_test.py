"""The table of settings in doc/CONFIG.md says what cache/base/config.def says. `--write` makes it so."""

import re
import sys
from pathlib import Path

BEGIN, END = "<!-- from config.def: begin -->\n", "<!-- from config.def: end -->\n"
ROW = re.compile(r"^CUBE_CONFIG\(\w+, \w+, (.*?)\)$", re.M | re.S)


def strings(row: str) -> list[str]:
    """The four C strings of a row; neighbours with nothing but white space between are one."""
    joined = re.sub(r'"\s*\n\s*"', "", row)
    return [s.encode().decode("unicode_escape") for s in re.findall(r'"((?:[^"\\]|\\.)*)"', joined)]


def table(definition: str) -> str:
    lines = ["| variable | default | takes | meaning |", "| --- | --- | --- | --- |"]
    rows = [strings(row) for row in ROW.findall(definition)]
    assert rows and all(len(row) == 4 for row in rows), "config.def does not read as expected"
    lines += [f"| `{name}` | {f'`{default}`' if default else 'none'} | {takes} | {text} |" for name, default, takes, text in rows]
    return "\n".join(lines) + "\n"


def main(root: Path, write: bool) -> int:
    document = root / "doc/CONFIG.md"
    text = document.read_text()
    before, rest = text.split(BEGIN)
    current, after = rest.split(END)
    wanted = table((root / "cache/base/config.def").read_text())
    if write:
        document.write_text(before + BEGIN + wanted + END + after)
    elif current != wanted:
        print("doc/CONFIG.md is not what config.def says: run tests/house/config_doc_test.py ROOT --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--write" in sys.argv))
