"""Makes the website of the documents from README.md and doc/, and checks each link and anchor.

    docs.py --out DIR

DIR/site is the website, DIR/venv holds mkdocs-material from PyPI. Exit status: 0; 1 if a link leads
nowhere."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The pages and everything that they link to. The folders keep their names, so links work both in
# the tree and on the website.
CONTENT = ("README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "doc", "packaging/examples",
           "packaging/kubernetes")


def stage(to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    for name in CONTENT:
        source, copy = ROOT / name, to / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy2(source, copy)


def make(out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    mkdocs = out / "venv/bin/mkdocs"
    if not mkdocs.exists():
        subprocess.run([sys.executable, "-m", "venv", out / "venv"], check=True)
        requirements = ROOT / "packaging/requirements-docs.txt"
        subprocess.run([out / "venv/bin/pip", "install", "--quiet", "-r", requirements], check=True)
    stage(out / "pages")
    shutil.copy2(ROOT / "packaging/mkdocs.yml", out / "mkdocs.yml")
    # Suppresses a notice about the future of mkdocs.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--config-file", out / "mkdocs.yml"],
        env=environment, check=False)
    if built.returncode == 0:
        print(f"{out}/site/index.html")
    return int(built.returncode != 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    sys.exit(make(parser.parse_args().out.resolve()))
