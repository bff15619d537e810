"""A page of doc/recipes: its commands, its files, and the output that it promises.

A page has fenced blocks. ```sh contains the commands that the user types, ```LANGUAGE title="NAME"
a file in the user's working directory, and ```text the expected lines, in which each number matches
any number. A comment states the needs of a test:

    <!-- test: data=images venv=torch hits=50 -->

data: a function of data.py. venv: one of tests/ecosystem/venvs; default: Debian's Python. program:
a program that must be in PATH. by: a script that runs the page instead. hits: the least percentage
of the opens below the prefix that the cache must answer, in all runs together; default: no
check."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "doc" / "recipes"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"^<!-- test: (.*) -->$", re.MULTILINE)
NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True)
class Page:
    name: str
    lines: int
    script: str
    files: dict[str, str]
    expected: list[str]
    needs: dict[str, str]

    @property
    def venv(self) -> str:
        return self.needs.get("venv", "system")

    def missing(self, output: str) -> list[str]:
        """Returns the promised lines that the output does not have."""
        return [line for line in self.expected if not pattern(line).search(output)]


def pattern(line: str) -> re.Pattern:
    parts = [re.escape(part) for part in NUMBER.split(line.strip())]
    return re.compile(r"[\d,.]+".join(parts))


def page(name: str) -> Page:
    text = (PAGES / f"{name}.md").read_text()
    blocks = BLOCK.findall(text)
    needs = NEEDS.search(text)
    if not needs:
        raise ValueError(f"doc/recipes/{name}.md does not say what its test needs")
    return Page(name, len(text.splitlines()),
                "".join(body for kind, title, body in blocks if kind == "sh" and not title), {
                    title: body for _, title, body in blocks if title
                }, [
                    line for kind, title, body in blocks if kind == "text" and not title
                    for line in body.splitlines() if line.strip()
                ], dict(word.split("=", 1) for word in needs[1].split()))


def all_pages() -> list[Page]:
    return [page(file.stem) for file in sorted(PAGES.glob("*.md")) if file.stem != "index"]
