"""Makes the venvs of the cases from PyPI, with the pinned versions of venvs/NAME.txt. A venv is
reused while these stay the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from plan import HERE

DEFAULT_PYTHON = "python3.11"
STAMP = "ecosystem.txt"
VERSIONS = (
    "import importlib.metadata as m, json, platform, sys; "
    "print(json.dumps([f'{n} {m.version(n)}' for n in sys.argv[1:]] or [f'Python "
    "{platform.python_version()}']))"
)


class NotInstalled(Exception):
    """Carries the installer's own line."""


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def python_for(wanted: str) -> str:
    """Returns the Python for a venv. A first line like `# python3.10` names the last Python that
    has the wheels."""
    name = wanted.partition("\n")[0][2:] if wanted.startswith("# python") else DEFAULT_PYTHON
    if not shutil.which(name):
        raise NotInstalled(f"{name} is not in PATH")
    return name


def is_plain(wanted: str) -> bool:
    return all(line.startswith("#") for line in wanted.splitlines())


def ready_venv(name: str, venvs: Path) -> Path:
    wanted, venv = (HERE / "venvs" / f"{name}.txt").read_text(), venvs / name
    stamp = venv / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return venv
    print(f"installing the venv {name}", flush=True)
    make = [python_for(wanted), "-m", "venv", "--clear", venv]
    install = [
        python_of(venv), "-m", "pip", "install", "-q", "--no-cache-dir", "-r",
        HERE / "venvs" / f"{name}.txt"
    ]
    # A Python without ensurepip can only make a plain venv.
    commands = [[*make, "--without-pip"]] if is_plain(wanted) else [make, install]
    for command in commands:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            text = (done.stderr or done.stdout).strip() or f"status {done.returncode}"
            lines = [line for line in text.splitlines() if "ERROR" in line] or text.splitlines()
            raise NotInstalled(lines[-1])
    stamp.write_text(wanted)
    return venv


def versions(venv: Path, packages: tuple[str, ...]) -> list[str]:
    done = subprocess.run([python_of(venv), "-c", VERSIONS, *packages], capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)
