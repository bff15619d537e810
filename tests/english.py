#!/usr/bin/env python3
"""Finds sentences of comments and documents that begin with What, Who, Where, Of, Those and the like: riddles to a reader who meets
them first. A question may begin with them.

    english.py [--list] [--most PERCENT] [PATH ...]    PATH: files or folders below the root, as cache/pack; default: all

Exit status: 0; 1 where more than PERCENT (default 0.5) of the sentences are such."""
import argparse
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIDDLE = re.compile(r"(What|Whatever|Who|Whoever|Whose|Whom|Where|Wherever|Of|Those)\b")
COMMENT = {".cc": r"\s*//+ ?(.*)", ".h": r"\s*//+ ?(.*)", ".def": r"\s*//+ ?(.*)", ".py": r"\s*# ?(.*)", ".txt": r"\s*# ?(.*)", ".sh": r"\s*# ?(.*)"}
TRAILING = re.compile(r"[;{}),].*?\s//+ ?(.*)")


def sources():
    """All files below the root but those of builds, which have a folder build*, and hidden ones."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith(("build", ".", "__"))]
        yield from (Path(folder, f).relative_to(ROOT) for f in files)


def paragraphs(path):
    """(line, text) of each run of comment lines, or of each paragraph of a document."""
    lines = path.read_text(errors="replace").splitlines()
    comment = re.compile(COMMENT[path.suffix]) if path.suffix in COMMENT else None
    first, text, is_code = 0, [], False
    for number, line in enumerate([*lines, ""], 1):
        if comment is None:
            is_code ^= line.startswith("```")
            found = None if is_code or line.startswith(("```", "|", "    ", "#")) or not line.strip() else line.strip()
            if found is not None and re.match(r"([-*] |\d+\. )", found) and text:
                yield first, " ".join(text)
                text = []
            if found is not None:
                found = re.sub(r"^([-*] |\d+\. )", "", found)
        else:
            match = comment.fullmatch(line)
            found = match[1] if match else None
            if found is None and comment.pattern.startswith(r"\s*//") and (trailing := TRAILING.search(line)):
                yield number, trailing[1]
        if found:
            first = first if text else number
            text.append(found)
        elif text:
            yield first, " ".join(text)
            text = []


def sentences(text):
    return [s for s in re.split(r"(?<=[.!?:])\s+(?=[\"'*`(]*[A-Z])", text) if re.search(r"[a-z]{2}", s)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="say where each of them is")
    parser.add_argument("--most", type=float, default=0.5, help="percent")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    wanted = [Path(p) for p in options.paths] or [Path(".")]
    names = sorted(n for n in sources() if any(w == Path(".") or w == n or w in n.parents for w in wanted))
    count, riddles = 0, []
    for name in names:
        path = ROOT / name
        if not path.is_file() or (path.suffix not in COMMENT and path.suffix != ".md"):
            continue
        for line, text in paragraphs(path):
            for sentence in sentences(text):
                count += 1
                if RIDDLE.match(sentence.lstrip("\"'*`(")) and not sentence.endswith("?"):
                    riddles.append(f"{name}:{line}: {sentence}")
    if options.list:
        print("\n".join(riddles))
    share = 100 * len(riddles) / max(count, 1)
    print(f"{len(riddles)} of {count} sentences begin as a riddle: {share:.2f} %; at most {options.most} %")
    return 1 if share > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
