"""The chart of packaging/kubernetes, the pods of cases/, and the pods that the policy makes of
them.

expected/NAME.yaml is the pod of cases/NAME.yaml after its admission. A case without such a file is
not changed by the policy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHART = ROOT / "packaging" / "kubernetes"
MANIFEST = CHART / "cubeshim.yaml"
CASES = {file.stem: file for file in sorted((HERE / "cases").glob("*.yaml"))}
STAMP = ("# Made by tests/kubernetes/check.py --write, from a chart and cases with the SHA-256\n"
         "# {}\n")


def stamp() -> str:
    """Returns the first lines of the manifest. They change with each file from which the manifest
    and expected/ are made."""
    files = [
        CHART / "Chart.yaml", CHART / "values.yaml", *sorted((CHART / "templates").iterdir()),
        HERE / "values.yaml", *CASES.values()
    ]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return STAMP.format(digest.hexdigest())


def case(name: str) -> dict:
    return yaml.safe_load(CASES[name].read_text())


def expected_file(name: str) -> Path:
    return HERE / "expected" / f"{name}.yaml"


def expected(name: str) -> dict:
    file = expected_file(name)
    return yaml.safe_load(file.read_text()) if file.exists() else case(name)
