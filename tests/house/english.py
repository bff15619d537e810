#!/usr/bin/env python3
"""Finds sentences of comments and documents that begin with What, Who, Where, Of, Those and the
like, which are hard to read. A question may begin with them. Finds paragraphs of more than 80 words
in README.md, CHANGELOG.md and doc/, too. A list item is a paragraph; tables, code blocks and
headings are none.

    english.py [--list] [--most PERCENT] [PATH ...]    PATH: files or folders below the root, as
                                                       cache/pack; default: all

Exit status: 0, or 1 if more than PERCENT (default 0.5) of the sentences begin like this, or if a
paragraph is too long."""
import argparse
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RIDDLE = re.compile(r"(What|Whatever|Who|Whoever|Whose|Whom|Where|Wherever|Of|Those)\b")
COMMENT = {
    ".cc": r"\s*//+ ?(.*)", ".h": r"\s*//+ ?(.*)", ".def": r"\s*//+ ?(.*)", ".py": r"\s*# ?(.*)",
    ".txt": r"\s*# ?(.*)", ".sh": r"\s*# ?(.*)"
}
TRAILING = re.compile(r"[;{}),].*?\s//+ ?(.*)")
ITEM = re.compile(r"([-*+]|\d+[.)]) ")
MOST_WORDS = 80


def sources():
    """Yields all files below the root, except hidden files and files in build folders (build*)."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith(("build", ".", "__"))]
        yield from (Path(folder, f).relative_to(ROOT) for f in files)


def document_paragraphs(lines):
    """Yields (line, text) for each paragraph of a document."""
    first, text, is_code, is_list = 0, [], False, False
    for number, line in enumerate([*lines, ""], 1):
        found = line.strip()
        is_fence = found.startswith("```")
        is_code ^= is_fence
        is_item = ITEM.match(found) is not None and not is_code
        if found and not line.startswith(" "):
            is_list = is_item
        # Four spaces make code, but not in a paragraph or a list.
        is_indented_code = line.startswith("    ") and not text and not is_list
        if is_code or is_fence or is_indented_code or found.startswith(("|", "#", "<!--")):
            found = ""
        if text and (is_item or not found):
            yield first, " ".join(text)
            text = []
        if found:
            first = first if text else number
            text.append(ITEM.sub("", found, count=1) if is_item else found)


def paragraphs(path):
    """Yields (line, text) for each run of comment lines, or for each paragraph of a document."""
    lines = path.read_text(errors="replace").splitlines()
    if path.suffix not in COMMENT:
        yield from document_paragraphs(lines)
        return
    comment = re.compile(COMMENT[path.suffix])
    first, text = 0, []
    for number, line in enumerate([*lines, ""], 1):
        match = comment.fullmatch(line)
        found = match[1] if match else None
        if found is None and comment.pattern.startswith(r"\s*//") and (trailing :=
                                                                       TRAILING.search(line)):
            yield number, trailing[1]
        if found:
            first = first if text else number
            text.append(found)
        elif text:
            yield first, " ".join(text)
            text = []


def is_for_readers(name):
    return name.suffix == ".md" and (Path("doc") in name.parents
                                     or name in (Path("README.md"), Path("CHANGELOG.md")))


def self_check():
    """Checks that the rule of long paragraphs can fail, and counts correctly."""
    most, more = " ".join(["word"] * MOST_WORDS), " ".join(["word"] * (MOST_WORDS + 1))
    halves = [" ".join(["word"] * (MOST_WORDS // 2))] * 2

    def long(*lines):
        return [line for line, text in document_paragraphs(lines) if len(text.split()) > MOST_WORDS]

    assert long("# Title", "", more) == [3] and long(*halves, "word") == [1]
    assert long("- " + more) == [1] and long("- a", "  - b", "    " + more) == [2] and long(
        "- a", "", "    " + more) == [3]
    assert long("| " + more + " |", "```", more, "```", "# " + more, "", "    " + more) == []
    assert long(most, "", most, "- " + most, "1. " + most, "| a |", most) == []


def sentences(text):
    return [
        s for s in re.split(r"(?<=[.!?:])\s+(?=[\"'*`(]*[A-Z])", text) if re.search(r"[a-z]{2}", s)
    ]


def main():
    self_check()
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="say where each of them is")
    parser.add_argument("--most", type=float, default=0.5, help="percent")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    wanted = [Path(p) for p in options.paths] or [Path(".")]
    names = sorted(
        n for n in sources() if any(w == Path(".") or w == n or w in n.parents for w in wanted))
    count, riddles, long = 0, [], []
    for name in names:
        path = ROOT / name
        if not path.is_file() or (path.suffix not in COMMENT and path.suffix != ".md"):
            continue
        for line, text in paragraphs(path):
            words = len(text.split())
            if words > MOST_WORDS and is_for_readers(name):
                long.append(
                    f"{name}:{line}: a paragraph of {words} words, at most {MOST_WORDS}: "
                    f"{text[:60]}..."
                )
            for sentence in sentences(text):
                count += 1
                if RIDDLE.match(sentence.lstrip("\"'*`(")) and not sentence.endswith("?"):
                    riddles.append(f"{name}:{line}: {sentence}")
    if options.list:
        print("\n".join(riddles))
    if long:
        print("\n".join(long))
    share = 100 * len(riddles) / max(count, 1)
    print(
        f"{len(riddles)} of {count} sentences begin as a riddle: {share:.2f} %; at most "
        f"{options.most} %"
    )
    return 1 if share > options.most or long else 0


if __name__ == "__main__":
    sys.exit(main())
