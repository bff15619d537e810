"""Includes point down only: shim -> prefetch -> cache -> cache/base. Exit status 1 and a line for each that does not."""

import re
import sys
from pathlib import Path

# A folder may include itself and what stands to its right.
ORDER = ["shim", "prefetch", "cache", "cache/base"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# They would call our own hooks, or drag a runtime into every host.
FORBIDDEN = re.compile(r"#\s*include\s+<(iostream|fstream|filesystem)>")


def layer(path: str) -> int | None:
    if path.startswith("cache/base/"):
        return ORDER.index("cache/base")
    head = path.split("/", 1)[0]
    return ORDER.index(head) if head in ORDER else None


def violations(root: Path) -> list[str]:
    found = []
    for source in sorted(p for folder in ("shim", "prefetch", "cache") for p in root.glob(f"{folder}/**/*") if p.suffix in (".c", ".cc", ".h")):
        name = source.relative_to(root).as_posix()
        own, text = layer(name), source.read_text()
        if own is None:
            continue
        for include in INCLUDE.findall(text):
            target = layer(include)
            if target is None:
                found.append(f"{name}: includes {include}, which is not in the house")
            elif target < own:
                found.append(f"{name}: includes {include}, which lies above it")
        if bad := FORBIDDEN.search(text):
            found.append(f"{name}: includes <{bad.group(1)}>, which the library must not use")
    return found


def self_check() -> None:
    """The rule must be able to fail."""
    assert layer("cache/base/log.h") > layer("cache/record.h") > layer("shim/process.h")


if __name__ == "__main__":
    self_check()
    problems = violations(Path(sys.argv[1]))
    print("\n".join(problems) if problems else "layering: includes point down only")
    sys.exit(bool(problems))
