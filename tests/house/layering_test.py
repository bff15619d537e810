"""Checks that includes only point down, in the order of ORDER. Exit status 1 and a line for each
include that does not."""

import re
import sys
from pathlib import Path

# A folder may include itself, its subfolders and the folders of later lines. Folders of the same
# line may not include each other.
ORDER = [["shim/cli"], ["prefetch/object"], ["shim/libc"], ["shim/lifecycle"], ["shim/calls"],
         ["shim/threads"], ["shim/path"], ["shim/fd"], ["shim/process"], ["shim/profile"], ["shim"],
         ["prefetch/work"], ["prefetch/pace"], ["prefetch/order", "prefetch/engine"],
         ["prefetch/threads"], ["cache"], ["cache/report"], ["cache/metadata", "cache/fill"],
         ["cache/origin", "cache/tier"], ["cache/bucket"],
         ["cache/pack", "cache/region", "cache/tier/disk", "cache/tier/cluster"],
         ["cache/record"], ["prefetch/object/s3"], ["cache/base"],]
# The largest allowed number of files that include each other in a circle (a header and its source
# count as one). A reader of one such file must open all of them.
LARGEST_CIRCLE = 2
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# Headers whose functions would call our own hooks, or would load a large runtime into every host.
FORBIDDEN = re.compile(r"#\s*include\s+<(iostream|fstream|filesystem)>")


def folder_of(path: str) -> str | None:
    folder = path.rpartition("/")[0]
    while folder and not any(folder in line for line in ORDER):
        folder = folder.rpartition("/")[0]
    return folder or None


def level(folder: str) -> int:
    return next(i for i, line in enumerate(ORDER) if folder in line)


def points_down(own: str, target: str) -> bool:
    return own == target or level(own) < level(target)


def circles(includes: dict[str, set[str]]) -> list[list[str]]:
    """Returns the sets of at least two files that include each other."""
    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in includes.get(todo.pop(), set()) - seen:
                seen.add(target)
                todo.append(target)
        return seen

    reach = {file: reached(file) for file in includes}
    found = {
        frozenset(b
                  for b in reach[a]
                  if a in reach.get(b, set()))
        for a in includes
        if a in reach[a]
    }
    return sorted(sorted(circle) for circle in found)


def violations(root: Path) -> list[str]:
    found = []
    includes: dict[str, set[str]] = {}
    for source in sorted(p for folder in ("shim", "prefetch", "cache")
                         for p in root.glob(f"{folder}/**/*") if p.suffix in (".c", ".cc", ".h")):
        name = source.relative_to(root).as_posix()
        own, text = folder_of(name), source.read_text()
        if own is None:
            found.append(f"{name}: lies in a folder that is not in the house")
            continue
        stem = name.rpartition(".")[0]
        for include in INCLUDE.findall(text):
            if include.rpartition(".")[0] != stem:
                includes.setdefault(stem, set()).add(include.rpartition(".")[0])
            target = folder_of(include)
            if target is None:
                found.append(f"{name}: includes {include}, which is not in the house")
            elif not points_down(own, target):
                found.append(f"{name}: includes {include}, which does not lie below it")
        if bad := FORBIDDEN.search(text):
            found.append(f"{name}: includes <{bad.group(1)}>, which the library must not use")
    for circle in circles(includes):
        if len(circle) > LARGEST_CIRCLE:
            found.append(
                f"{len(circle)} files include each other in a circle, {LARGEST_CIRCLE} may: "
                f"{' '.join(circle)}"
            )
    return found


def self_check() -> None:
    """Checks that the rule can fail."""
    way = [
        "shim/libc/open.cc", "shim/lifecycle/load.cc", "shim/calls/read_and_seek.cc",
        "shim/threads/own_threads.cc", "shim/path/path_filter.cc", "shim/fd/fd_table.h",
        "shim/process/process.h", "prefetch/work/leader_work.h", "prefetch/order/path_list.h",
        "prefetch/threads/event_count.h", "cache/file_cache.h", "cache/metadata/metadata.h",
        "cache/origin/origin.h", "cache/pack/pack_mount.h", "cache/record/record.h",
        "cache/base/log.h"
    ]
    folders = [folder_of(name) for name in way]
    for upper, lower in zip(folders, folders[1:]):
        assert points_down(upper, lower) and not points_down(lower, upper), (upper, lower)
    assert not points_down(folder_of("cache/pack/pack_listing.h"),
                           folder_of("cache/region/ram/ring.h"))
    assert folder_of("elsewhere/x.h") is None
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]


if __name__ == "__main__":
    self_check()
    problems = violations(Path(sys.argv[1]))
    print("\n".join(problems) if problems else "layering: includes point down only")
    sys.exit(bool(problems))
