"""Checks that the targets of links in documents exist, headings included, that the documents named
in sources exist, and that no document is longer than 480 lines. Also checks that the rows of .def
files, which no formatter formats, have at most 100 columns."""

import re
import sys
from pathlib import Path

MOST_LINES = 480
MOST_COLUMNS = 100
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"\bdoc/[\w/]+\.(?:md|svg)\b")
SOURCES = {".cc", ".h", ".def", ".py", ".md", ".txt", ".toml", ".svg", ".sh"}


def anchors(text: str) -> set[str]:
    """Returns the anchors that the usual hosts generate for the headings of a page."""
    headings = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    found = []
    for target in LINK.findall(re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", document.read_text())):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (document.parent / name).resolve() if name else document
        if not file.exists():
            found.append(f"{document}: no {target}")
        elif anchor and anchor not in anchors(file.read_text()):
            found.append(f"{document}: {name or document.name} has no heading {anchor}")
    return found


def folders(root: Path) -> list[Path]:
    return [
        path for path in root.iterdir()
        if path.is_dir() and not path.name.startswith(("build", ".", "__"))
    ]


def main(root: Path) -> int:
    documents = [*root.glob("*.md"), *(root / "doc").rglob("*.md")]
    problems = [problem for document in documents for problem in broken_links(document)]
    problems += [
        f"{document}: {lines} lines, at most {MOST_LINES}" for document in documents
        if (lines := document.read_text().count("\n")) > MOST_LINES
    ]
    sources = [path for folder in folders(root) for path in folder.rglob("*")] + [*root.glob("*")]
    for source in sources:
        if source.suffix in SOURCES and source.is_file():
            problems += [
                f"{source}: names {name}"
                for name in NAMED.findall(source.read_text(errors="replace"))
                if not (root / name).exists()
            ]
        if source.suffix == ".def":
            problems += [
                f"{source}:{number}: more than {MOST_COLUMNS} columns"
                for number, line in enumerate(source.read_text().splitlines(), 1)
                if len(line) > MOST_COLUMNS
            ]
    print("\n".join(problems) or f"{len(documents)} documents")
    return int(bool(problems) or len(documents) < 5)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
