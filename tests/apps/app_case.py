"""One case: a script in cases/ with a head that describes it. Tells which of the case's needs this
machine lacks.

    # what: a sentence for the table                    (must be there)
    # needs: command rsync; module h5py; fuse; root     (may be there; ';' between them)
    # variants: fork spawn                              (the case is run once for each, in $VARIANT)
    # serves: no, and why                               (nothing under the prefix is read through
                                                        the library)
    # ignore: out/*.log                                 (files that differ from run to run)
    # heavy: yes                                        (--quick runs it in two ways only)
    # version: rsync --version                          (its first line goes into the table)
    # prepare                                           (what follows, up to the next line, makes
                                                        more data, natively)
    # run

A value goes on in lines that begin with `#   `. A `.sh` is run by bash, a `.py` by Python; both
parts see $DATA (the prefix), $OUT (a directory elsewhere) and $VARIANT.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

CASES = Path(__file__).resolve().parent / "cases"
PYTHON = "/usr/bin/python3"
# The system's programs come first, then the user's own programs.
PATH = (f"/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/go/bin:{os.environ.get('PATH', '')}"
        f":{Path.home()}/.cargo/bin")
KEYS = {"what", "needs", "variants", "serves", "ignore", "version", "heavy"}


@dataclass
class Case:
    path: Path
    variant: str
    head: dict[str, str] = field(default_factory=dict)
    prepare: str = ""
    run: str = ""

    @property
    def name(self) -> str:
        return self.path.stem + (f".{self.variant}" if self.variant else "")

    @property
    def serves(self) -> bool:
        return not self.head.get("serves", "yes").startswith("no")

    @property
    def heavy(self) -> bool:
        return "heavy" in self.head

    @property
    def ignored(self) -> list[str]:
        return self.head.get("ignore", "").split()

    @property
    def needs(self) -> list[tuple[str, str]]:
        words = [need.split() for need in self.head.get("needs", "").split(";") if need.strip()]
        return [(word[0], word[1] if len(word) > 1 else "") for word in words]

    def modules(self) -> list[str]:
        return [what for kind, what in self.needs if kind == "module"]

    def lacks(self, venv: Path | None) -> str:
        """Returns the needs that this machine lacks; empty if there are none."""
        for kind, what in self.needs:
            if kind == "command" and not shutil.which(what, path=PATH):
                return f"no command {what}"
            if kind == "root" and os.geteuid() != 0:
                return "not root"
            if kind == "fuse" and not os.access("/dev/fuse", os.R_OK | os.W_OK):
                return "no /dev/fuse"
        return "" if self.python(venv) else f"no Python module {' '.join(self.modules())}"

    def python(self, venv: Path | None) -> str:
        """Returns the first interpreter that has the modules: the system's or the venv's."""
        candidates = [PYTHON] + ([str(venv / "bin" / "python")] if venv and
                                 (venv / "bin" / "python").exists() else [])
        return next((python for python in candidates if all(
            has_module(python, name) for name in self.modules())), "")

    def version(self, python: str) -> str:
        """Returns a program's version, from the first line with a number. Python modules report
        their own version."""
        found = [f"{name} {module_version(python, name)}" for name in self.modules()]
        if "version" in self.head:
            done = subprocess.run(["/bin/sh", "-c", self.head["version"]], capture_output=True,
                                  text=True, env={**os.environ, "PATH": PATH})
            numbers = re.findall(r"\d+\.\d[\w.+~-]*", done.stdout + done.stderr)
            words = self.head["version"].split()
            name = words[-1] if words[0] == "dpkg-query" else Path(words[0]).name
            found.insert(0, f"{name} {numbers[0] if numbers else '?'}")
        return ", ".join(found)


@lru_cache(maxsize=None)
def has_module(python: str, name: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def module_version(python: str, name: str) -> str:
    code = f"import {name} as module; print(getattr(module, '__version__', '') or module.version())"
    return subprocess.run([python, "-c", code], capture_output=True,
                          text=True).stdout.strip() or "?"


def read_case(path: Path) -> list[Case]:
    """Reads one case for each variant."""
    head: dict[str, str] = {}
    parts = {"head": "", "prepare": "", "run": ""}
    part, last = "head", ""
    for line in path.read_text().splitlines(keepends=True):
        if line.strip() in ("# prepare", "# run"):
            part = line.split()[1]
            continue
        parts[part] += line
        key, colon, value = line.removeprefix("# ").partition(":")
        if part == "head" and line.startswith("#   ") and last:
            head[last] += f" {line[1:].strip()}"
        elif part == "head" and line.startswith("# ") and colon and key in KEYS:
            head[key] = value.strip()
            last = key
    if "what" not in head or not parts["run"].strip():
        raise ValueError(f"{path}: a case has a line '# what:' and a part '# run'")
    return [
        Case(path, variant, head, parts["prepare"], parts["run"])
        for variant in head.get("variants", "").split() or [""]
    ]


def all_cases() -> list[Case]:
    return [
        case for path in sorted(CASES.iterdir()) if path.suffix in (".sh", ".py")
        for case in read_case(path)
    ]
