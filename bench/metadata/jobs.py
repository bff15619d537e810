"""A job that requests the metadata of a tree and reads no file. For each line of its input, it
makes one pass and reports the time and the results of the pass.

    jobs.py make DIRECTORY         4,000 files in 40 directories, all of them old
    jobs.py look CASE DIRECTORY
"""
import glob
import json
import os
import sys
import time

DIRECTORIES, FILES = 40, 100
OLD = (1e9, 1e9)


def names(root: str) -> list[str]:
    return [f"{root}/class{d:02}/image{f:03}.jpg" for d in range(DIRECTORIES) for f in range(FILES)]


def make(root: str) -> None:
    for name in names(root):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(b"x" * (len(name) * 7 % 100))
        os.utime(name, OLD)
    for top, _, _ in os.walk(root):
        os.utime(top, OLD)


def walk(root: str) -> int:
    return sum(len(files) for _, _, files in os.walk(root))


def search(root: str) -> int:
    return len(glob.glob(root + "/**", recursive=True))


def sizes(root: str) -> int:
    return sum(os.path.getsize(name) for name in names(root))


def walk_and_sizes(root: str) -> int:
    return sum(
        os.path.getsize(os.path.join(top, name))
        for top, _, files in os.walk(root)
        for name in files)


def absent(root: str) -> int:
    return sum(os.path.exists(name + ".txt") for name in names(root))


def refused(root: str) -> int:
    found = 0
    for name in names(root):
        try:
            open(name + ".txt").close()
            found += 1
        except FileNotFoundError:
            pass
    return found


CASES = {
    "walk": walk, "glob": search, "getsize": sizes, "walk, getsize": walk_and_sizes,
    "exists, absent": absent, "open, absent": refused
}


def main() -> None:
    if sys.argv[1] == "make":
        return make(sys.argv[2])
    case, root = CASES[sys.argv[2]], sys.argv[3]
    for _ in sys.stdin:
        began = time.perf_counter_ns()
        found = case(root)
        print(json.dumps({"wall_ns": time.perf_counter_ns() - began, "digest": found}), flush=True)


if __name__ == "__main__":
    main()
