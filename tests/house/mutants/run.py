"""Deliberate faults of the sources, one at a time: a test that `make test` runs must find each. A part of `make test-long`.

    run.py [--only N,N] [--folder shim] [--short] [--jobs N] [--work DIR] [--again] [--likely]
    run.py --check     each fault of the list still fits the sources (a second; the test house.mutants)
    run.py --list      the faults with their numbers, the short ones marked with *

list.toml has the faults; its head says what a row holds. The tool works in DIR (default: build-mutants), on a copy of the
tree that holds what git knows and what is new; it never writes to the sources. It builds the copy once. For each fault it
builds the programs of the tests that the row names, and runs these tests until one fails; if none fails, all tests of the short
run but those of whole programs (--likely leaves them out). At the end the tests that found faults run without a fault: they
must pass, or they have found nothing.
DIR/results.json keeps what was found, so that a run that was ended goes on. A result holds as long as the fault and its source
are the same; --again begins anew. Tests run in namespaces of their own (as root), so that no process, mount or file of theirs stays.
Exit status: 0; 1 where a fault survives that is not marked as known, where one does not build, or where the list is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONGEST_BUILD = 3600  # seconds
MOST_KNOWN_SURVIVORS = 3
# The first two compare the list with the sources, which a fault has changed, and try this tool.
NEVER = r"^house\.mutants"
WHOLE_PROGRAMS = r"^(apps|company|bench|cpython)\."
FLAGS = ["-DCUBESHIM_TESTS=ON", "-DCUBESHIM_BENCH=OFF", "-DCUBESHIM_LAGFS=ON", "-DCUBESHIM_WERROR=OFF",
         "-DCUBESHIM_UNITY=OFF"]  # a fault then costs one source's compilation, not ten
# A /dev/shm and a /tmp of its own, in which the work directory ($1) is where it was. The shell stays, as init. $2: the /tmp.
IN_ROOM = """
mount -t tmpfs tmpfs /dev/shm || exit 125
case "$1" in /tmp/*) mkdir -p "$2${1#/tmp}" && mount --rbind "$1" "$2${1#/tmp}" || exit 125;; esac
mount --rbind "$2" /tmp || exit 125
cd "$3" && shift 3 && "$@"
exit $?
"""
# Ends with the tool, and all in it with it.
UNSHARE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]


@dataclass
class Mutant:
    number: int
    file: str
    old: str
    new: str
    wrong: str
    tests: str = ""
    parity: str = ""
    short: bool = False
    survives: str = ""

    @property
    def title(self) -> str:
        return f"{self.number:3}{'*' if self.short else ' '} {self.file}: {self.wrong}"


class ListError(Exception):
    pass


def read_list(path: Path) -> list[Mutant]:
    mutants = []
    for number, row in enumerate(tomllib.loads(path.read_text()).get("mutant", []), 1):
        try:
            mutants.append(Mutant(number, **row))
        except TypeError as error:
            raise ListError(f"{path.name}: row {number}: {error}") from None
    if not mutants:
        raise ListError(f"{path.name}: no rows")
    return mutants


def complaints(root: Path, mutants: list[Mutant]) -> list[str]:
    found = []
    texts: dict[str, str] = {}
    for m in mutants:
        source = root / m.file
        if m.file not in texts:
            texts[m.file] = source.read_text() if source.is_file() else ""
        times = texts[m.file].count(m.old) if m.old else 0
        if times != 1:
            found.append(f"{m.title}\n    its old text is there {times} times, not once")
        if m.old == m.new:
            found.append(f"{m.title}\n    its old and its new text are the same")
        if not m.wrong:
            found.append(f"{m.title}\n    the row does not say what goes wrong")
        if not m.tests and not m.parity:
            found.append(f"{m.title}\n    the row names no test")
        try:
            re.compile(m.tests)
        except re.error as error:
            found.append(f"{m.title}\n    tests: {error}")
    places = [(m.file, m.old, m.new) for m in mutants]
    found += [f"{m.title}\n    is in the list twice" for m, place in zip(mutants, places) if places.count(place) > 1]
    known = sum(bool(m.survives) for m in mutants)
    if known > MOST_KNOWN_SURVIVORS:
        found.append(f"{known} faults are known to survive; at most {MOST_KNOWN_SURVIVORS} may")
    return found


def run(command: list[str], seconds: float, **more) -> tuple[int | None, str]:
    """Exit status and output. The status is None where the time was over; nothing of the command runs on then."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", start_new_session=True, **more) as process:
        try:
            output, _ = process.communicate(timeout=max(seconds, 1))
            return process.returncode, output
        except BaseException as error:
            # unshare ends its namespace of processes as it dies.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                return None, ""
            raise


def as_cmake_regex(name: str) -> str:
    return re.sub(r"([\\^$.*+?()\[\]|])", r"\\\1", name)


def can_unshare() -> bool:
    return os.geteuid() == 0 and shutil.which("setpriv") is not None and run([*UNSHARE, "true"], 60)[0] == 0


class Scratch:
    """A copy of the tree, and its build."""

    def __init__(self, root: Path, work: Path, jobs: int) -> None:
        self.root, self.work, self.tree, self.build, self.jobs = root, work, work / "tree", work / "build", jobs
        self.programs: dict[str, str] = {}  # of each test: what it runs, if that is built
        # The tests are those of the short run.
        self.environment = {name: value for name, value in os.environ.items() if name != "CUBESHIM_TEST_LONG"}
        self.room = UNSHARE if can_unshare() else []

    def copy(self) -> None:
        """Only what differs is written, so that a second run builds little."""
        git = ["git", "-c", "safe.directory=*", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = [name for name in subprocess.check_output(git, text=True).split("\0") if name and (self.root / name).is_file()]
        self.tree.mkdir(parents=True, exist_ok=True)
        known = set(names)
        for path in [p for p in self.tree.rglob("*") if p.is_file() and str(p.relative_to(self.tree)) not in known]:
            path.unlink()
        for name in names:
            source, copy = self.root / name, self.tree / name
            if copy.is_file() and copy.read_bytes() == source.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)

    def configure(self) -> tuple[int | None, str]:
        if (self.build / "build.ninja").exists():
            return 0, ""
        launcher = []
        if shutil.which("ccache"):
            launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        return run(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja", *FLAGS, *launcher], LONGEST_BUILD,
                   env=self.environment)

    def make(self, *targets: str) -> tuple[int | None, str]:
        chosen = ["--target", *targets] if targets else []
        return run(["cmake", "--build", str(self.build), "-j", str(self.jobs), *chosen], LONGEST_BUILD, env=self.environment)

    def find_tests(self) -> None:
        listing = subprocess.run(["ctest", "--test-dir", str(self.build), "--show-only=json-v1", "-LE", "^long$"],
                                 stdout=subprocess.PIPE, text=True, env=self.environment, check=True)
        for test in json.loads(listing.stdout)["tests"]:
            program = Path(test.get("command", [""])[0])
            inside = program.is_relative_to(self.build) or program.is_relative_to(self.build.resolve())
            base = self.build if program.is_relative_to(self.build) else self.build.resolve()
            self.programs[test["name"]] = str(program.relative_to(base)) if inside else ""

    def tests_of(self, m: Mutant) -> list[str]:
        return [name for name in self.programs if m.tests and re.search(m.tests, name)]

    def targets_of(self, m: Mutant) -> list[str]:
        """What the likely tests need; nothing, which is all, where one of them is a script."""
        programs = {self.programs[name] for name in self.tests_of(m)}
        if "" in programs:
            return []
        return sorted(programs | ({"cubeshim", "parity_tests"} if m.parity else set()))

    def contained(self, command: list[str], seconds: float) -> tuple[int | None, str]:
        if not self.room:
            return run(command, seconds, env=self.environment, cwd=self.build)
        room = self.work / "tmp"
        room.mkdir(mode=0o777, exist_ok=True)
        room.chmod(0o1777)
        inside = ["sh", "-c", IN_ROOM, "room", str(self.work), str(room), str(self.build), *command]
        try:
            return run([*self.room, *inside], seconds, env=self.environment)
        finally:
            shutil.rmtree(room, ignore_errors=True)

    def failing(self, seconds: float, *which: str, without: str = "") -> list[str]:
        """The names of the tests that fail."""
        report = self.build / "mutants.xml"
        report.unlink(missing_ok=True)
        # One more than there are processors, as in the short run.
        command = ["ctest", "--test-dir", str(self.build), "-j", str(self.jobs + 1), "-LE", "^long$",
                   "-E", "|".join(filter(None, [NEVER, without])), "--output-junit", str(report), *which]
        status, output = self.contained(command, seconds)
        if status is None:
            return [f"(no end within {seconds:.0f} s)"]
        cases = xml.parse(report).getroot().iter("testcase") if report.exists() else []
        failed = [case.get("name", "") for case in cases if case.get("status") == "fail"]
        # A test program that cannot even tell its tests.
        if status != 0 and not failed and "No tests were found" not in output:
            failed = ["(ctest: " + " ".join(output.split())[-160:] + ")"]
        return failed

    def parity_fails(self, m: Mutant, seconds: float) -> list[str]:
        """The tests of parity.disk that the row names."""
        status, output = self.contained(["/usr/bin/python3", str(self.tree / "tests/parity/run_parity.py"), "--build", str(self.build),
                                         "--modes", "virtual", "real", "--filter", m.parity, "--jobs", str(self.jobs), "disk"], seconds)
        if status == 0:
            return []
        said = re.search(r"^(virtual|real) (\S+): (exit status|not done)", output, re.M)
        return [f"parity.disk ({said[2] if said else 'no end' if status is None else ' '.join(output.split())[-160:]})"]

    def likely_failing(self, m: Mutant, seconds: float) -> list[str]:
        found = self.failing(seconds, "-R", m.tests, "--stop-on-failure") if m.tests else []
        return found or (self.parity_fails(m, seconds) if m.parity else [])


class Results:
    """What was found, kept in a file."""

    def __init__(self, path: Path, tree: Path, again: bool) -> None:
        self.path, self.tree = path, tree
        self.rows: dict[str, dict] = json.loads(path.read_text()) if path.exists() and not again else {}

    def key(self, m: Mutant) -> str:
        text = "\0".join((m.file, m.old, m.new, (self.tree / m.file).read_text()))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def get(self, m: Mutant) -> dict | None:
        return self.rows.get(self.key(m))

    def put(self, m: Mutant, row: dict) -> None:
        self.rows[self.key(m)] = {"title": m.title, **row}
        self.path.write_text(json.dumps(self.rows, indent=1))

    def drop(self, m: Mutant) -> None:
        del self.rows[self.key(m)]
        self.path.write_text(json.dumps(self.rows, indent=1))


def try_one(scratch: Scratch, m: Mutant, options: argparse.Namespace) -> dict:
    """What is kept of it: "result" (found, survives, error) and "by"."""
    file = scratch.tree / m.file
    right = file.read_text()
    began = time.monotonic()
    try:
        file.write_text(right.replace(m.old, m.new))
        status, output = scratch.make(*scratch.targets_of(m))
        if status != 0:
            print("    DOES NOT BUILD:", *output.splitlines()[-20:], sep="\n    ", flush=True)
            return {"result": "error", "by": []}
        built = time.monotonic()
        found = scratch.likely_failing(m, options.limit)
        if not found and not options.likely and not m.survives:
            print("    not found by the tests that it names", flush=True)
            status, output = scratch.make()
            without = "|".join(filter(None, [WHOLE_PROGRAMS, m.tests]))
            found = scratch.failing(options.wide_limit, "--stop-on-failure", without=without)
        seconds = f"{time.monotonic() - built:.0f} s (build: {built - began:.0f} s)"
        print(f"    found by {', '.join(found[:2])} after {seconds}" if found else f"    SURVIVES, {seconds}", flush=True)
        return {"result": "found" if found else "survives", "by": found[:2]}
    finally:
        file.write_text(right)


def passes_without_fault(scratch: Scratch, m: Mutant, by: list[str], options: argparse.Namespace) -> bool:
    names = [name for name in by if name in scratch.programs]
    if not names:  # no end, or a part of a test
        return not scratch.likely_failing(m, options.limit)
    which = "|".join(f"^{as_cmake_regex(name)}$" for name in names)
    return not scratch.failing(options.limit, "-R", which)


def mutate(options: argparse.Namespace, mutants: list[Mutant]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the fault is taken out again
    scratch = Scratch(options.root, options.work, options.jobs)
    scratch.copy()
    for step in (scratch.configure, scratch.make):
        status, output = step()
        if status != 0:
            print(*output.splitlines()[-30:], "the sources do not build without a fault", sep="\n")
            return 1
    scratch.find_tests()
    idle = [m for m in mutants if m.tests and not scratch.tests_of(m)]
    for m in idle:
        print(f"{m.title}\n    no test of the short run has a name like {m.tests}")
    if idle:
        return 1
    results = Results(options.work / "results.json", scratch.tree, options.again)
    for m in mutants:
        known = results.get(m)
        if known is None or known["result"] != "found":
            print(m.title, flush=True)
            results.put(m, try_one(scratch, m, options))
    scratch.make()
    for m in mutants:
        row = results.get(m)
        if row["result"] == "found" and not row.get("checked"):
            if passes_without_fault(scratch, m, row["by"], options):
                results.put(m, {**row, "checked": True})
            else:
                print(f"{m.title}\n    {', '.join(row['by'])} fails without the fault, too", flush=True)
                results.put(m, {"result": "error", "by": row["by"]})
    rows = [(m, results.get(m)["result"]) for m in mutants]
    survivors = [m for m, result in rows if result == "survives"]
    new = [m for m in survivors if not m.survives]
    for m in survivors:
        print(f"survives: {m.title}" + (f"\n    known: {m.survives}" if m.survives else ""))
    for m, result in rows:
        if result == "found" and m.survives:
            print(f"is found now, the mark can go: {m.title}")
    counts = {word: sum(result == word for _, result in rows) for word in ("found", "error")}
    print(f"{len(rows)} faults: {counts['found']} found, {len(survivors)} survive ({len(survivors) - len(new)} known), "
          f"{counts['error']} are errors of the list")
    return int(bool(new) or counts["error"] != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", help="numbers of faults, in this order, comma between them")
    parser.add_argument("--folder", help="faults of the sources below it, as cache/pack")
    parser.add_argument("--short", action="store_true", help="the faults marked as short")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--likely", action="store_true", help="run only the tests that each fault names")
    parser.add_argument("--again", action="store_true", help="forget the results that are kept")
    parser.add_argument("--limit", type=int, default=600, help="seconds for the tests that a fault names")
    parser.add_argument("--wide-limit", type=int, default=3600, help="seconds for the others")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--root", type=Path, default=HERE.parents[2])
    parser.add_argument("--rows", type=Path, default=HERE / "list.toml", help="another list")
    options = parser.parse_args()
    options.root = options.root.resolve()
    options.work = (options.work or options.root / "build-mutants").resolve()
    try:
        mutants = read_list(options.rows)
    except (ListError, tomllib.TOMLDecodeError) as error:
        print(error)
        return 1
    wrong = complaints(options.root, mutants)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong:
        return 1
    if options.check:
        print(f"{len(mutants)} faults fit the sources")
        return 0
    if options.only:
        mutants = [mutants[int(number) - 1] for number in options.only.split(",")]
    if options.folder:
        mutants = [m for m in mutants if m.file.startswith(options.folder.rstrip("/") + "/")]
    if options.short:
        mutants = [m for m in mutants if m.short]
    if options.list:
        print(*(m.title for m in mutants), sep="\n")
        return 0
    return mutate(options, mutants)


if __name__ == "__main__":
    sys.exit(main())
