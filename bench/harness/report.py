"""The results of `make bench`: tables and targets. Writes them to the terminal, as Markdown and as
JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.harness.machine import Machine


@dataclass(frozen=True)
class Table:
    title: str
    what: str  # the comparison, and the reason for the range
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

    def text(self) -> str:
        widths = [
            max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))
        ]
        return "\n".join("  ".join(cell.ljust(width)
                                   for cell, width in zip(row, widths)).rstrip()
                         for row in (self.header, *self.rows))


@dataclass(frozen=True)
class Target:
    name: str
    wanted: str
    found: str
    passed: bool
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        return ("yes" if self.passed else "NO", self.name, self.wanted, self.found, self.note)


@dataclass
class Section:
    """The results of one suite."""

    name: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    others: float = 0.0  # the share of all cores that other programs used


def targets_table(sections: list[Section]) -> Table:
    rows = [target.cells() for section in sections for target in section.targets]
    return Table("Targets", "", ("reached", "target", "wanted", "found", "remark"), rows)


def section_text(section: Section) -> str:
    parts = [
        f"== {section.name}  ({section.seconds:.0f} s; others took {section.others:.0%}"
        " of the cores)"
    ]
    parts += [f"\n{table.title}\n{table.what}\n\n{table.text()}" for table in section.tables]
    return "\n".join(parts) + "\n"


def markdown(machine: Machine, sections: list[Section]) -> str:
    parts = [
        f"Machine: {machine.line()}.\nCommand: `{machine.command}`.\n\n"
        "Medians, with the quartiles in brackets. Microseconds are CPU time of the reading process"
        " per file, unless wall time is named; ratios are taken round by round, of neighbours in"
        " time."
    ]
    parts.append("## Targets\n\n" + targets_table(sections).markdown())
    for section in sections:
        for table in section.tables:
            parts.append(f"## {table.title}\n\n{table.what}\n\n{table.markdown()}\n\n"
                         f"(Others took {section.others:.0%} of the cores meanwhile.)")
    return "\n\n".join(parts) + "\n"


def as_json(machine: Machine, sections: list[Section]) -> dict[str, Any]:
    return {
        "machine": vars(machine),
        "targets": [vars(target) for section in sections for target in section.targets],
        "sections": {
            section.name: {
                "seconds": section.seconds, "others": section.others,
                **section.data, "tables": [vars(table) for table in section.tables]
            } for section in sections
        }
    }
