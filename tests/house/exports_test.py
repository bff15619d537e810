"""Checks that each call of shim/hooks.def is defined in a file of shim/libc that the heading above
its row names, such as "[open.cc] open, by path".

    exports_test.py ROOT      exit status 1 and a line for each call that is elsewhere
"""

import re
import sys
from pathlib import Path

HEADING = re.compile(r"^// \[([a-z_., ]+)\]")
# Rows that need a definition; all other rows define the function themselves.
ROW = re.compile(r"^CUBE_(?:RAW_)?HOOK\([^,]+, (\w+),")


def rows(text: str) -> list[tuple[str, list[str]]]:
    """Returns each call that needs a definition, with the files of its heading."""
    found, files = [], []
    for line in text.splitlines():
        if heading := HEADING.match(line):
            files = heading.group(1).split(", ")
        elif row := ROW.match(line):
            found.append((row.group(1), files))
    return found


def defines(source: str, call: str) -> bool:
    """Returns True if the call is defined by its own name, or by a macro that has it as an
    argument."""
    by_name = rf"\bexport_{call}\([^;{{]*\)\s*\{{"
    by_macro = rf"^CUBE_\w+\((?:[^()]*, )?{call}\b"
    # A macro that defines NAME and fNAME.
    as_twin = rf"^CUBE_\w+\({call[1:]}\b" if call.startswith(
        "f") and "export_f##" in source else by_macro
    return any(re.search(way, source, re.M) is not None for way in (by_name, by_macro, as_twin))


def problems(hooks: str, sources: dict[str, str]) -> list[str]:
    found = []
    for call, files in rows(hooks):
        if not files:
            found.append(f"{call}: no heading names its file")
        elif not any(defines(sources.get(name, ""), call) for name in files):
            there = [name for name, source in sources.items() if defines(source, call)]
            found.append(
                f"{call}: not in {' or '.join(files)}, but in {' '.join(there) or 'no file'}")
    return found


def self_check() -> None:
    """Checks that the rule can fail."""
    hooks = ("// [a.cc, b.cc] x\nCUBE_HOOK(int, one, (int fd))\n"
             "CUBE_RAW_HOOK(int, two, (int fd))\nCUBE_FD_CALL(int, made, (int fd), (fd))\n")
    right = {"a.cc": "int export_one(int fd) {\n", "b.cc": "CUBE_MAKES(int, two, fd)\n"}
    assert problems(hooks, right) == []
    assert problems(hooks, {**right, "b.cc": "", "c.cc": right["b.cc"]}) == [
        "two: not in a.cc or b.cc, but in c.cc"
    ]
    assert problems("CUBE_HOOK(int, one, ())", right) == ["one: no heading names its file"]


if __name__ == "__main__":
    self_check()
    root = Path(sys.argv[1]) / "shim"
    found = problems((root / "hooks.def").read_text(),
                     {path.name: path.read_text() for path in (root / "libc").rglob("*.cc")})
    print("\n".join(found) if found else "exports: each call is in the file that hooks.def names")
    sys.exit(bool(found))
