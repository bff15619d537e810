"""Checks that sources and documents use the words of the glossary (doc/ARCHITECTURE.md), not those
that it replaces. Exit status 1 and a line for each old word.

    words_test.py ROOT
"""

import re
import sys
from pathlib import Path

from english import sources

# The words that the tree must not use, and those that replace them.
OLD = {
    r"CUBESHIM_NAMES|cubeshim_names_|\bnames_(?:ttl|ram)\b": "metadata",
    r"\b(?:All|Mount|Pack)Names\b|\bNames(?:Ttl|Room|Scout|Limits|Load)\b": "metadata",
    r"\b(?:Absence|absence)[A-Z_]\w*|\bAbsenceTrial\b": "negative entry",
    r"\bOwnNumbers\b|\bnumber_was_freed\b|\bnumber_leaves\b|\bStatNumber\b": "fd",
    r"\b[Tt]akes? anew\b|\btaken anew\b|\btake_anew\b": "reclaim",
    r"\bclaim_turn\b|\bset_turn\b|\bopen_in_turn\b|\bSingleFlight::Turn\b": "flight",
    r"\bFillBudget\b": "token bucket",
    r"\bbecomes? real\b|\bbecome_real\b": "materialize",
    r"\b[Mm]aterialis": "materialize",
}
SUFFIXES = {".cc", ".h", ".c", ".S", ".def", ".py", ".md", ".txt", ".toml"}


def old_words(text: str) -> list[tuple[str, str]]:
    return [(found.group(0), word) for pattern, word in OLD.items()
            for found in re.finditer(pattern, text)]


def main(root: Path) -> int:
    assert old_words("export CUBESHIM_NAMES=0") and not old_words("names of files, absence of")
    paths = [root / path for path in sources()]
    found = 0
    for path in paths:
        if path.suffix not in SUFFIXES or not path.is_file() or path.name == Path(__file__).name:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for old, word in old_words(line):
                print(f"{path.relative_to(root)}:{number}: \"{old}\"; the word is {word}")
                found += 1
    print(f"{len(paths)} files, {found} old words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
