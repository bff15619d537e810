"""Reads the constants of a case from its source text. The case cannot be imported here, because
only its venv has the modules that it imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from bench.harness.errors import BenchError

HERE = Path(__file__).resolve().parent
CASES = HERE / "cases"


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    venv: str
    packages: tuple[str, ...]  # the row gives their versions
    launch: tuple[str,
                  ...] = ()  # arguments of Python in front of the job, such as a launcher of ranks
    data: str = ""  # another case, whose data this one reads
    makes: bool = False  # False: the case reads the pictures themselves


def constants_of(tree: ast.Module) -> dict:
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("TITLE", "VENV", "PACKAGES", "LAUNCH", "DATA")
    }


def case_of(file: Path) -> Case | None:
    """Returns the case in a file, or None for a module that cases share."""
    tree = ast.parse(file.read_text())
    found = constants_of(tree)
    if "TITLE" not in found:
        return None
    makes = any(isinstance(node, ast.FunctionDef) and node.name == "make" for node in tree.body)
    return Case(file.stem, found["TITLE"], found["VENV"], found["PACKAGES"],
                found.get("LAUNCH", ()), found.get("DATA", ""), makes)


def all_cases() -> dict[str, Case]:
    cases = [case for file in sorted(CASES.glob("*.py")) if (case := case_of(file))]
    return {case.name: case for case in sorted(cases, key=lambda case: (case.venv, case.name))}


def chosen(names: list[str]) -> list[Case]:
    cases = all_cases()
    if unknown := [name for name in names if name not in cases]:
        raise BenchError(
            f"--only {unknown[0]}: there is no such case; known are: {' '.join(cases)}")
    return [case for case in cases.values() if not names or case.name in names]
