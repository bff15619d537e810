"""Checks that the library never calls a function that it interposes, because its own hooks would
answer.

    own_calls_test.py HOOKS.DEF ARCHIVE ...     exit status 1 and a line for each such call
"""

import re
import subprocess
import sys
from pathlib import Path

HOOK = re.compile(r"^CUBE_\w+\([^,]+,\s*(\w+)", re.M)
UNDEFINED = re.compile(r"^\s+U (\w+)", re.M)


def calls(archive: str) -> set[str]:
    return set(
        UNDEFINED.findall(
            subprocess.run(["nm", archive], check=True, capture_output=True, text=True).stdout))


def main(hooks_def: str, *archives: str) -> int:
    hooks = set(HOOK.findall(Path(hooks_def).read_text()))
    found = {archive: calls(archive) for archive in archives}
    # Checks that neither list is empty.
    assert {"open", "read", "mmap"} <= hooks, "the rows of hooks.def are not understood"
    assert all(found.values()), "an archive that calls nothing"
    bad = [
        f"{archive}: calls {name}, which is a hook" for archive in archives
        for name in sorted(found[archive] & hooks)
    ]
    print("\n".join(bad)
          or f"{len(hooks)} hooks, {len(set().union(*found.values()))} calls, none of them a hook")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
