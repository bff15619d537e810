"""Makes the wheel: the Python package, and in the folder `prefix` beside it all files that `make
install` installs."""

import re
import shutil
import subprocess
from pathlib import Path

from targets import ROOT, Target, version

# The first line of the wheel's page on PyPI, and of the descriptions of the deb and the rpm.
SUMMARY = ("Serves training data of slow mounts from memory and local NVMe, "
           "to unchanged programs (LD_PRELOAD)")


def metadata() -> str:
    readme = (ROOT / "README.md").read_text()
    return f"""Metadata-Version: 2.1
Name: cubeshim
Version: {version()}
Summary: {SUMMARY}
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.7
Description-Content-Type: text/markdown

{for_a_page_that_stands_alone(readme)}"""


def for_a_page_that_stands_alone(readme: str) -> str:
    """Replaces a link to a document by the command that prints it, and removes other links into the
    tree."""
    def by_command(link: re.Match) -> str:
        text, name = link[1], link[2].lower()
        command = f"`cubeshim docs {name}`"
        return command if text == f"doc/{link[2]}.md" else f"{text} ({command})"

    readme = re.sub(r"^!\[[^\]]*\]\((?!http)[^)]*\)\n", "", readme, flags=re.M)
    readme = re.sub(r"\[([^\]]*)\]\(doc/([\w/]+)\.md[^)]*\)", by_command, readme)
    return re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", readme)


def make(stage: Path, work: Path, out: Path, target: Target, programs: Path) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    package = work / "cubeshim"
    shutil.copytree(ROOT / "prefetch/python/cubeshim", package,
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(stage, package / "prefix")
    # An installer puts the man page into a folder beside the command's, which man searches.
    manual = Path("share/man/man1/cubeshim.1.gz")
    installed = work / f"cubeshim-{version()}.data/data" / manual
    installed.parent.mkdir(parents=True)
    (package / "prefix" / manual).rename(installed)
    information = work / f"cubeshim-{version()}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(metadata())
    # One line for each tag that an installer may look for; `wheel pack` sorts them.
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in target.wheel.split("."))
    (information / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: cubeshim {version()}\nRoot-Is-Purelib: false\n{tags}")
    (information /
     "entry_points.txt").write_text("[console_scripts]\ncubeshim = cubeshim.__main__:main\n")
    shutil.copy2(ROOT / "LICENSE", information)
    before = set(out.glob("*.whl"))
    subprocess.run([programs / "wheel", "pack", work, "--dest-dir", out], check=True,
                   stdout=subprocess.DEVNULL)
    made = (set(out.glob("*.whl")) - before).pop()
    subprocess.run([programs / "twine", "check", "--strict", made], check=True)
    shown = subprocess.run([programs / "auditwheel", "show", made], check=True, capture_output=True,
                           text=True).stdout
    if f"manylinux_2_17_{target.cpu}" not in shown:
        raise SystemExit(
            f"{made.name}: auditwheel does not find it fit for manylinux_2_17: {shown}")
    return made
