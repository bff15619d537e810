"""Static checks by clang: clang-tidy on the product, clang's warnings on everything else.

    lint.py BUILD [--jobs N] [--deep]

BUILD has a compile_commands.json. Ten sources of a target are checked as one, because most of the
time goes into the headers that they share. For speed, the limit at which clang's analyzer gives up
on a function is lowered; --deep restores clang's own, which is fifty times higher. Sources that the
sanitizer builds compile (with clang and -Werror) are not compiled again here. Exit status: 0, 1
with clang's text for each finding, 2 if nothing could be checked.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "16"
PRODUCT = ("cache", "prefetch", "shim")
BATCH, SMALL_BATCH = 10, 6
# By this name, clang's analyzer recognizes a file whose includes must be analyzed, too.
UNIFIED = "UnifiedSource"
SHORT_ANALYSIS = [
    "--extra-arg=-Xclang", "--extra-arg=-analyzer-config", "--extra-arg=-Xclang",
    "--extra-arg=max-nodes=4000"
]
LAST_FLAG = "-Wno-unknown-warning-option"
# Folders of tests/ that the sanitizer builds compile.
SANITIZED = ("tests/cache", "tests/cache/disk", "tests/fuzz", "tests/pack", "tests/prefetch",
             "tests/support")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


class Unit:
    """One call of the compiler: real sources, and the flags with which they are compiled."""
    def __init__(self, entry: dict[str, str]) -> None:
        file = Path(entry["directory"], entry["file"])
        self.sources = [Path(s) for s in INCLUDE.findall(file.read_text())
                       ] if "/Unity/unity_" in str(file) else [file]
        self.flags = flags_of(shlex.split(entry["command"]))
        self.target = re.sub(r"\.dir/.*", "",
                             entry.get("output", entry["command"].split(" -o ")[1].split()[0]))

    def folder(self) -> str:
        return self.sources[0].relative_to(ROOT).parts[0]


def flags_of(command: list[str]) -> list[str]:
    """Returns the flags without compiler, input, output, and without the flags of gcc's precompiled
    headers."""
    flags, words = [], iter(command[1:])
    for word in words:
        if word in ("-o", "-c"):
            next(words)
        elif word == "-include":
            header = next(words)
            # A precompiled header is replaced by the header that it includes first.
            for included in included_by(header) if header.endswith("cmake_pch.hxx") else [header]:
                flags += [word, included]
        elif word != "-Winvalid-pch":
            flags.append(word)
    return flags


def included_by(header: str) -> list[str]:
    return INCLUDE.findall(Path(header).read_text())[:1]


def units_of(build: Path) -> list[Unit]:
    entries = json.loads((build / "compile_commands.json").read_text())
    return [
        Unit(e)
        for e in entries
        if Path(e["file"]).suffix in (".c", ".cc", ".cxx") and "cmake_pch" not in e["file"]
    ]


def run(command: list[str]) -> tuple[bool, str]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return done.returncode == 0, done.stdout + done.stderr


def tidy_jobs(units: list[Unit], scratch: Path, deep: bool) -> list[list[str]]:
    """Returns the calls of clang-tidy, each for ten sources of a target of the product."""
    by_target: dict[str, tuple[list[str], list[Path]]] = {}
    for unit in units:
        if unit.folder() in PRODUCT and unit.sources[0].name != "fmt_once.cc":
            by_target.setdefault(unit.target, (unit.flags, []))[1].extend(unit.sources)
    jobs = []
    for flags, sources in by_target.values():
        for begin in range(0, len(sources), BATCH):
            file = scratch / f"{UNIFIED}{len(jobs)}.cpp"
            file.write_text("".join(
                f'#include "{source}"\n' for source in sources[begin:begin + BATCH]))
            jobs.append([
                f"clang-tidy-{VERSION}", "-quiet", f"--config-file={ROOT}/.clang-tidy",
                "--checks=-bugprone-suspicious-include", *([] if deep else SHORT_ANALYSIS),
                str(file), "--", *flags
            ])
    return jobs


def warning_jobs(units: list[Unit]) -> list[list[str]]:
    """Returns the calls of clang for warnings on sources outside the product that no sanitizer
    build compiles."""
    by_flags: dict[tuple[str, str, str], tuple[list[str], list[Path]]] = {}
    for unit in units:
        for source in unit.sources:
            if unit.folder() not in PRODUCT and source.parent.relative_to(
                    ROOT).as_posix() not in SANITIZED:
                by_flags.setdefault((unit.target, source.suffix, " ".join(unit.flags)),
                                    (unit.flags, []))[1].append(source)
    jobs = []
    for (_, suffix, _), (flags, sources) in by_flags.items():
        compiler = f"clang-{VERSION}" if suffix == ".c" else f"clang++-{VERSION}"
        jobs += [[
            compiler, *flags, "-fsyntax-only", "-Werror", LAST_FLAG,
            *map(str, sources[begin:begin + SMALL_BATCH])
        ] for begin in range(0, len(sources), SMALL_BATCH)]
    return jobs


def compile_as_one(job: list[str]) -> tuple[bool, str]:
    """Compiles sources together. If they define a name twice, compiles them one by one."""
    first = job.index(LAST_FLAG) + 1
    flags, sources = job[:first], job[first:]
    if len(sources) > 1 and Path(sources[0]).suffix != ".c":
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write("".join(f'#include "{source}"\n' for source in sources))
            file.flush()
            if run([*flags, file.name])[0]:
                return True, ""
    results = [run([*flags, source]) for source in sources]
    return all(passed for passed, _ in results), "".join(
        text for passed, text in results if not passed)


def findings(check: Callable[[list[str]], tuple[bool, str]], jobs: list[list[str]],
             workers: int) -> list[str]:
    with ThreadPoolExecutor(workers) as pool:
        return [text for passed, text in pool.map(check, jobs) if not passed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--deep", action="store_true")
    options = parser.parse_args()
    units = units_of(options.build.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        parts = {
            "clang-tidy": (run, tidy_jobs(units, Path(scratch), options.deep)),
            "clang's warnings": (compile_as_one, warning_jobs(units))
        }
        if not all(jobs for _, jobs in parts.values()):
            print(
                f"lint: {options.build}/compile_commands.json names no sources of the product or "
                "none of the tests"
            )
            return 2
        failed = False
        for name, (check, jobs) in parts.items():
            begin = time.monotonic()
            found = findings(check, jobs, options.jobs)
            print("".join(found), end="")
            print(
                f"lint: {name}: {len(jobs)} compilations, {len(found)} with findings, "
                f"{time.monotonic() - begin:.0f} s",
                flush=True)
            failed = failed or bool(found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
