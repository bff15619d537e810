"""Includes point down only, in the order of ORDER. Exit status 1 and a line for each include that does not keep to it."""

import re
import sys
from pathlib import Path

# A folder may include itself and the folders of later lines. Folders of one line do not include each other.
ORDER = [
    ["shim/cli"], ["shim/exports"], ["shim", "shim/calls"], ["shim/profile"], ["prefetch"], ["prefetch/order", "prefetch/engine"], ["prefetch/threads"], ["cache"],
    ["cache/report"], ["cache/names", "cache/fill"], ["cache/origin", "cache/tier"],
    ["cache/pack", "cache/region", "cache/tier/disk", "cache/tier/cluster"], ["cache/record"], ["cache/base"],
]
# These two are one layer in two folders.
ONE_LAYER = {"shim", "shim/calls"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# They would call our own hooks, or drag a runtime into every host.
FORBIDDEN = re.compile(r"#\s*include\s+<(iostream|fstream|filesystem)>")


def folder_of(path: str) -> str | None:
    folder = path.rpartition("/")[0]
    return folder if any(folder in line for line in ORDER) else None


def level(folder: str) -> int:
    return next(i for i, line in enumerate(ORDER) if folder in line)


def points_down(own: str, target: str) -> bool:
    return own == target or {own, target} == ONE_LAYER or level(own) < level(target)


def violations(root: Path) -> list[str]:
    found = []
    for source in sorted(p for folder in ("shim", "prefetch", "cache") for p in root.glob(f"{folder}/**/*") if p.suffix in (".c", ".cc", ".h")):
        name = source.relative_to(root).as_posix()
        own, text = folder_of(name), source.read_text()
        if own is None:
            found.append(f"{name}: lies in a folder that is not in the house")
            continue
        for include in INCLUDE.findall(text):
            target = folder_of(include)
            if target is None:
                found.append(f"{name}: includes {include}, which is not in the house")
            elif not points_down(own, target):
                found.append(f"{name}: includes {include}, which does not lie below it")
        if bad := FORBIDDEN.search(text):
            found.append(f"{name}: includes <{bad.group(1)}>, which the library must not use")
    return found


def self_check() -> None:
    """The rule must be able to fail."""
    way = ["shim/cli/run.cc", "prefetch/lead.h", "prefetch/order/path_list.h", "prefetch/threads/event_count.h", "cache/file_cache.h", "cache/names/names.h", "cache/origin/origin.h", "cache/pack/pack_mount.h", "cache/record/record.h", "cache/base/log.h"]
    folders = [folder_of(name) for name in way]
    for upper, lower in zip(folders, folders[1:]):
        assert points_down(upper, lower) and not points_down(lower, upper), (upper, lower)
    assert not points_down(folder_of("cache/pack/pack_listing.h"), folder_of("cache/region/ring.h"))
    assert folder_of("cache/elsewhere/x.h") is None


if __name__ == "__main__":
    self_check()
    problems = violations(Path(sys.argv[1]))
    print("\n".join(problems) if problems else "layering: includes point down only")
    sys.exit(bool(problems))
