"""The targets of a release: the architectures, the oldest glibc, and the names that each kind of
package uses for them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.17"


@dataclass(frozen=True)
class Target:
    cpu: str  # the name that the kernel, wheels and rpm use
    deb: str

    @property
    def zig(self) -> str:
        return f"{self.cpu}-linux-gnu.{GLIBC}"

    @property
    def wheel(self) -> str:
        """The manylinux tags: the tag with the version of glibc, and the tag that older versions of
        pip know."""
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.cpu}.manylinux2014_{self.cpu}"


TARGETS = {target.cpu: target for target in (Target("x86_64", "amd64"), Target("aarch64", "arm64"))}


def version() -> str:
    """Reads the version from the only file that contains it."""
    found = re.search(r"^project\(cubeshim VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(),
                      re.M)
    if found is None:
        raise SystemExit("dist: CMakeLists.txt names no version")
    return found[1]
