"""Checks every symbol that a library or a program imports: the oldest supported libc must have the
symbol."""

import re
import subprocess
import sys
from pathlib import Path

# Symbols without a version belong to another library, or may be missing (weak).
IMPORT = re.compile(
    r"\s(?P<bind>GLOBAL|WEAK)\s+\w+\s+UND\s+(?P<name>[^@\s]+)(?:@+(?P<version>\S+))?")
LIBRARIES = {
    "libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6", "libutil.so.1",
    "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"
}


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def too_young(symbol_table: str, oldest: str) -> list[str]:
    """`symbol_table`: the output of readelf."""
    found = []
    for match in IMPORT.finditer(symbol_table):
        version = match["version"] or ""
        if version == "" and match["bind"] == "GLOBAL":
            found.append(f"{match['name']} (no version: nobody may have it)")
        elif version.startswith("GLIBC_") and (version == "GLIBC_PRIVATE"
                                               or number(version[6:]) > number(oldest)):
            found.append(f"{match['name']} ({version})")
    return found


def check(binary: Path, oldest: str) -> None:
    def read(*words: str) -> str:
        return subprocess.run(["readelf", "-W", *words, binary], check=True, capture_output=True,
                              text=True).stdout

    table = read("--dyn-syms")
    if not IMPORT.search(table):
        raise SystemExit(f"{binary.name}: imports nothing, so nothing was looked at")
    if found := too_young(table, oldest):
        raise SystemExit(f"{binary.name}: does not run with glibc {oldest}: {', '.join(found)}")
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", read("-d")))
    if foreign := needed - LIBRARIES:
        raise SystemExit(
            f"{binary.name}: needs {', '.join(sorted(foreign))}, which a machine may not have")


def self_check() -> None:
    """Checks that the rule can fail."""
    row = "     7: 0000000000000000     0 FUNC    {} DEFAULT  UND {} (2)\n"
    assert too_young(
        row.format("GLOBAL", "read@GLIBC_2.2.5") + row.format("WEAK  ", "strerrordesc_np"),
        "2.17") == []
    assert too_young(row.format("GLOBAL", "statx@GLIBC_2.28"), "2.17") == ["statx (GLIBC_2.28)"]
    assert too_young(row.format("GLOBAL", "arc4random"),
                     "2.17") == ["arc4random (no version: nobody may have it)"]
    assert too_young(row.format("GLOBAL", "_dl_x@GLIBC_PRIVATE"),
                     "2.17") == ["_dl_x (GLIBC_PRIVATE)"]


self_check()
if __name__ == "__main__":
    check(Path(sys.argv[1]), sys.argv[2])
