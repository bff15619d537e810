"""Inserts deliberate faults into the sources. The tests of `make test` must find each fault. `make
test-long` runs this tool.

    run.py [LIST.toml ...] [--part large] [--only N,N] [--folder shim] [--short] [--likely]
           [--again] [--jobs N] [--work DIR]
    run.py --check     each fault still fits the sources (a second; the test house.mutants)
    run.py --list      the faults with their numbers, the short ones marked with *

The lists next to this file hold the faults, unless others are named; the head of list.toml
describes a row. The tool works in DIR (default: build-mutants), on a copy of the tree that holds
what git knows and what is new; it never writes to the sources. The copy holds every fault that can
be switched (fold.py), and the environment chooses one, so it is built once. A fault that cannot be
switched, such as another constant, has its own build.

A fault is found if a test fails or does not end in time. The tests that its row names run first,
and several faults are tried at the same time. If none of these tests fails, each other test of the
short run that reaches the fault's place follows, the fastest first, except whole programs. One run
of all tests without a fault, kept in DIR/tests.json, shows which tests reach which place. --likely
leaves this step out. In this step, a failure counts only if the test fails twice. At the end, the
tests that found faults run without a fault. If one fails, it has found nothing.

DIR/results.json keeps the results, so that an interrupted run continues. A result is valid as long
as the fault and its source stay the same; --again starts over. As root, each test runs in its own
namespaces, so that none of its processes, mounts and files stay. The last lines are a table: the
share of faults found in each part of the sources. Faults that are marked as known to survive do not
count. Exit status: 0; 1 if less than 90 % of the faults of a part are found, if one does not build,
or if a list is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import fold

HERE = Path(__file__).resolve().parent
LONGEST_BUILD = 3600  # seconds
MOST_KNOWN_SURVIVORS = 3
LEAST_SHARE = 90  # percent of the faults of a part that are found
# These tests are left out, because they compare the lists with the sources, which have changed, and
# test this tool.
NEVER = re.compile(r"^house\.")
WHOLE_PROGRAMS = re.compile(r"^(apps|company|bench|cpython|launch|ray)\.")
FLAGS = [
    "-DCUBESHIM_TESTS=ON", "-DCUBESHIM_BENCH=OFF", "-DCUBESHIM_LAGFS=ON", "-DCUBESHIM_WERROR=OFF"
]
SWITCHED = {".cc", ".h"}
# The part of the sources to which a file belongs if its row names no part. The first pattern that
# fits counts.
PARTS = (
    ("bucket", r"^prefetch/object/|/bucket/|^cache/region/mailbox/|^shim/cli/gateway/"),
    ("profiler", r"^shim/(profile/|cli/profile/)"),
    ("large", r"/large(_|/)|^cache/tier/block_|^prefetch/work/(block_reader|prefetch_large)"),
    ("cluster", r"/cluster|^cache/tier/shared/|^cache/fill/background_fill"
     r"|^prefetch/work/prefetch_(remote|together)|/(pool|server)_?[a-z]*\."),
    ("metadata", r"^cache/metadata/|^cache/corrections|^cache/region/(listings|ram/metadata_room)"
     r"|/(directory_data|listing|name_change)\.|^shim/calls/name/unmounted_paths\."),
    ("leader", r"^prefetch/|^cache/region/(ring|life/lead_claim|filling|reclaim)"
     r"|^cache/fetch_ahead"),
    ("calls", r"^shim/calls/"),
    ("cli", r"^shim/cli/"),
    ("other", r""),
)
# Makes a private /dev/shm and /tmp ($2), in which the work directory ($1) keeps its place. The
# shell stays as init.
IN_ROOM = """
mount -t tmpfs tmpfs /dev/shm || exit 125
case "$1" in /tmp/*) mkdir -p "$2${1#/tmp}" && mount --rbind "$1" "$2${1#/tmp}" || exit 125;; esac
mount --rbind "$2" /tmp || exit 125
cd "$3" && shift 3 && "$@"
exit $?
"""
# This namespace, and all processes in it, end with the tool.
UNSHARE = [
    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--ipc", "--fork",
    "--kill-child", "--mount-proc"
]


@dataclass
class Mutant:
    number: int
    id: int  # in the copy's sources
    file: str
    old: str
    new: str
    wrong: str
    tests: str = ""
    parity: str = ""
    part: str = ""
    short: bool = False
    survives: str = ""
    is_switched: bool = True

    @property
    def title(self) -> str:
        return f"{self.number:3}{'*' if self.short else ' '} {self.file}: {self.wrong}"


class ListError(Exception):
    pass


def read_lists(paths: list[Path]) -> list[Mutant]:
    mutants: list[Mutant] = []
    ids: set[int] = set()
    for path in paths:
        rows = tomllib.loads(path.read_text()).get("mutant", [])
        if not rows:
            raise ListError(f"{path.name}: no rows")
        for number, row in enumerate(rows, 1):
            kind = row.pop("as", "statement")
            if kind not in ("statement", "expression", "build"):
                raise ListError(
                    f'{path.name}: row {number}: as is "{kind}", not statement, expression or build'
                )
            # The number is the same in each run, so that a new row requires the compilation of only
            # its own source.
            text = "\0".join(str(row.get(key)) for key in ("file", "old", "new"))
            key = int(hashlib.sha256(text.encode()).hexdigest(), 16) % (fold.MOST - 1) + 1
            while key in ids:
                key = key % (fold.MOST - 1) + 1
            ids.add(key)
            try:
                mutant = Mutant(len(mutants) + 1, key, **row)
            except TypeError as error:
                raise ListError(f"{path.name}: row {number}: {error}") from None
            mutant.is_switched = kind != "build" and Path(mutant.file).suffix in SWITCHED
            mutant.part = mutant.part or next(
                part for part, files in PARTS if re.search(files, mutant.file))
            mutants.append(mutant)
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
        if m.part not in [part for part, _ in PARTS]:
            found.append(f"{m.title}\n    there is no part {m.part}")
        try:
            re.compile(m.tests)
        except re.error as error:
            found.append(f"{m.title}\n    tests: {error}")
    places = [(m.file, m.old, m.new) for m in mutants]
    found += [
        f"{m.title}\n    is in the list twice" for m, place in zip(mutants, places)
        if places.count(place) > 1
    ]
    known = sum(bool(m.survives) for m in mutants)
    if known > MOST_KNOWN_SURVIVORS:
        found.append(f"{known} faults are known to survive; at most {MOST_KNOWN_SURVIVORS} may")
    return found


def run(command: list[str], seconds: float, stop: int = -1, **more) -> tuple[int | None, str]:
    """Returns the exit status and the output. The status is None if the time was over or `stop`
    became readable; all processes of the command have then ended."""
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, start_new_session=True, **more,
                             ) as process:
            ended = os.pidfd_open(process.pid)
            try:
                poll = select.poll()
                for fd in [ended] + [stop] * (stop >= 0):
                    poll.register(fd, select.POLLIN)
                events = poll.poll(max(seconds, 1) * 1000)
            finally:
                os.close(ended)
                is_over = process.poll() is None
                if is_over:
                    # When unshare dies, its pid namespace ends with it.
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
            return (None if is_over or not events else process.returncode), text


def can_unshare() -> bool:
    return (os.geteuid() == 0 and shutil.which("setpriv") is not None
            and run([*UNSHARE, "true"], 60)[0] == 0)


@dataclass
class Test:
    """A test of ctest, or a part of one."""

    name: str
    command: list[str]
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    limit: float = 1500
    status_of_skip: int = -1
    program: str = ""  # in the build, if it is there


class Scratch:
    """A copy of the tree, and its build."""
    def __init__(self, root: Path, work: Path, jobs: int) -> None:
        self.root, self.work, self.tree, self.build, self.jobs = (root, work, work / "tree",
                                                                  work / "build", jobs)
        self.with_faults: set[str] = set()  # sources
        # Uses the tests of the short run.
        self.environment = {
            name: value for name, value in os.environ.items() if name != "CUBESHIM_TEST_LONG"
        }

    def copy(self) -> None:
        """Writes only files that differ, so that a second run builds little. fold() writes the
        sources that have faults."""
        git = [
            "git", "-c", "safe.directory=*", "-C",
            str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"
        ]
        names = {
            name for name in subprocess.check_output(git, text=True).split("\0")
            if name and (self.root / name).is_file()
        }
        self.tree.mkdir(parents=True, exist_ok=True)
        for path in [
                p for p in self.tree.rglob("*")
                if p.is_file() and str(p.relative_to(self.tree)) not in names
        ]:
            if path.name != fold.HEADER_NAME:
                path.unlink()
        for name in names - self.with_faults:
            source, copy = self.root / name, self.tree / name
            if copy.is_file() and copy.read_bytes() == source.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)

    def write(self, file: str, text: str) -> None:
        path = self.tree / file
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def fold(self, mutants: list[Mutant]) -> dict[str, fold.Folded]:
        """Writes the sources with each fault that can be switched. Unmarks all other faults."""
        self.write(fold.HEADER_NAME, fold.HEADER)
        folded: dict[str, fold.Folded] = {}
        for file in self.with_faults:
            here = [m for m in mutants if m.file == file and m.is_switched]
            text = (self.root / file).read_text()
            if here:
                include = "../" * file.count("/") + fold.HEADER_NAME
                folded[file] = fold.fold(text, [fold.Fault(m.id, m.old, m.new) for m in here],
                                         include)
                text = folded[file].text
                for m in here:
                    m.is_switched = m.id not in folded[file].left
            self.write(file, text)
        return folded

    def configure(self) -> tuple[int | None, str]:
        if (self.build / "build.ninja").exists():
            return 0, ""
        launcher = []
        if shutil.which("ccache"):
            launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        return run([
            "cmake", "-S",
            str(self.tree), "-B",
            str(self.build), "-G", "Ninja", *FLAGS, *launcher
        ], LONGEST_BUILD, env=self.environment,
                  )

    def make(self, *targets: str) -> tuple[int | None, str]:
        chosen = ["--target", *targets] if targets else []
        return run(
            ["cmake", "--build",
             str(self.build), "-j",
             str(self.jobs), *chosen, "--", "-k", "0"], LONGEST_BUILD, env=self.environment)

    def make_all_faults(self, mutants: list[Mutant]) -> tuple[int | None, str]:
        """Builds the copy. A fault that does not compile in this build gets its own build."""
        self.with_faults = {m.file for m in mutants}
        self.copy()
        while True:
            folded = self.fold(mutants)
            status, output = self.configure()
            if status == 0:
                status, output = self.make()
            if status == 0:
                return status, output
            refused = set()
            for path, line in re.findall(r"^([^\s:]+):(\d+):\d+: (?:fatal )?error:", output, re.M):
                file = os.path.relpath(self.build / path, self.tree)
                lines = folded[file].lines if file in folded else []
                refused |= set([key for first, last, key in lines if first <= int(line) <= last
                               ][:1])
            for m in mutants:
                if m.id in refused:
                    m.is_switched = False
                    print(f"{m.title}\n    cannot be switched", flush=True)
            if not refused:
                return status, output

    def find_tests(self) -> dict[str, Test]:
        """Returns the tests of the short run, by name."""
        listing = subprocess.run(
            ["ctest", "--test-dir",
             str(self.build), "--show-only=json-v1", "-LE", "^long$"], stdout=subprocess.PIPE,
            text=True, env=self.environment, check=True)
        tests = {}
        for row in json.loads(listing.stdout)["tests"]:
            properties = {item["name"]: item["value"] for item in row.get("properties", [])}
            if NEVER.match(row["name"]) or properties.get("DISABLED"):
                continue
            test = Test(row["name"], row.get("command", ["false"]),
                        properties.get("WORKING_DIRECTORY", str(self.build)))
            test.environment = dict(
                setting.split("=", 1) for setting in properties.get("ENVIRONMENT", []))
            test.limit = float(properties.get("TIMEOUT", test.limit))
            test.status_of_skip = int(properties.get("SKIP_RETURN_CODE", -1))
            for base in (self.build, self.build.resolve()):
                if Path(test.command[0]).is_relative_to(base):
                    test.program = str(Path(test.command[0]).relative_to(base))
            tests[test.name] = test
        return tests

    def part_of_parity(self, which: str) -> Test:
        script = str(self.tree / "tests/parity/run_parity.py")
        return Test(f"parity.disk ({which})", [
            "/usr/bin/python3", script, "--build",
            str(self.build), "--modes", "virtual", "real", "--filter", which, "--jobs",
            str(self.jobs), "disk"
        ], str(self.build),
                   )


@dataclass
class Seen:
    """A run of a test."""

    passed: bool
    seconds: float
    said: str  # the last part of its output
    reached: list[int] = field(default_factory=list)


class Runner:
    """Runs tests, several at a time."""
    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.room = UNSHARE if can_unshare() else []
        # One more than there are processors, as in the short run.
        self.places = list(range(scratch.jobs + 1))
        self.lock = threading.Lock()

    def once(self, test: Test, fault: int, seconds: float, stop: int = -1,
             is_recorded: bool = False) -> Seen | None:
        """Runs a test. Returns None if it was stopped."""
        with self.lock:
            place = self.places.pop()
        room, reached = self.scratch.work / f"tmp-{place}", self.scratch.work / f"reached-{place}"
        environment = {**self.scratch.environment, **test.environment, "MUTANT_FAULT": str(fault)}
        if is_recorded:
            reached.write_bytes(bytes(fold.MOST))
            reached.chmod(0o666)
            environment["MUTANT_REACHED"] = str(reached)
        command, more = test.command, {"cwd": test.folder}
        if self.room:
            room.mkdir(exist_ok=True)
            room.chmod(0o1777)
            command = [
                *self.room, "sh", "-c", IN_ROOM, "room",
                str(self.scratch.work),
                str(room), test.folder, *command
            ]
            more = {}
        begin = time.monotonic()
        try:
            status, said = run(command, seconds, stop, env=environment, **more)
            took = time.monotonic() - begin
            if status is None and took < seconds:
                return None
            end = (" ".join(said.split())[-300:]
                   if status is not None else f"(no end within {seconds:.0f} s)")
            places = ([i for i, byte in enumerate(reached.read_bytes()) if byte]
                      if is_recorded else [])
            return Seen(status in (0, test.status_of_skip), took, end, places)
        finally:
            shutil.rmtree(room, ignore_errors=True)
            reached.unlink(missing_ok=True)
            with self.lock:
                self.places.append(place)

    def in_threads(self, most: int, work) -> None:
        threads = [
            threading.Thread(target=work, daemon=True) for _ in range(min(len(self.places), most))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def each(self, tests: list[Test], seconds: float, then, fault: int = 0,
             is_recorded: bool = False, limits: dict[str, float] = {},
            ) -> bool:
        """Calls then(test, seen) for each test, until then() returns True. Returns False if the
        time was over before all tests had begun."""
        deadline, left = time.monotonic() + seconds, list(reversed(tests))
        stop_read, stop_write = os.pipe()
        was_stopped = False

        def work() -> None:
            nonlocal was_stopped
            while True:
                with self.lock:
                    if was_stopped or not left or time.monotonic() > deadline:
                        return
                    test = left.pop()
                longest = limits.get(test.name, min(test.limit, seconds))
                seen = self.once(test, fault, longest, stop_read, is_recorded)
                with self.lock:
                    if seen is None or was_stopped:
                        continue
                    if then(test, seen):
                        was_stopped = True
                        os.write(stop_write, b"x")

        self.in_threads(len(tests), work)
        os.close(stop_read)
        os.close(stop_write)
        return not left or was_stopped

    def first_failing(self, tests: list[Test], fault: int, seconds: float,
                      limits: dict[str, float] = {}, is_doubted: bool = False,
                     ) -> str:
        """Returns the name of a test that fails, and how it fails. is_doubted: the test must fail
        twice."""
        found: list[tuple[Test, Seen]] = []
        done: set[str] = set()

        def note(test: Test, seen: Seen) -> bool:
            done.add(test.name)
            if not seen.passed:
                found.append((test, seen))
            return not seen.passed

        while True:
            found.clear()
            if not self.each(tests, seconds, note, fault, limits=limits) and not found:
                print(f"    after {seconds:.0f} s tests are left that have not run", flush=True)
            if not found:
                return ""
            test, seen = found[0]
            if not is_doubted:
                return test.name
            again = self.once(test, fault, limits.get(test.name, test.limit))
            if again is not None and not again.passed:
                return test.name
            print(f"    {test.name} failed only once: {seen.said[-200:]}", flush=True)
            tests = [test for test in tests if test.name not in done]


class Record:
    """Which places each test reaches, how long it takes, and whether it passes without a fault."""
    def __init__(self, path: Path, ids: list[int], is_new: bool) -> None:
        self.path, self.ids = path, ids
        kept = json.loads(path.read_text()) if path.exists() and not is_new else {"ids": []}
        # If a test was recorded before a place existed, it is unknown whether the test reaches the
        # place.
        rows = kept["tests"] if set(ids) <= set(kept["ids"]) else {}
        # A test that failed may have failed by chance.
        self.rows: dict[str, dict] = {name: row for name, row in rows.items() if row["passed"]}

    def fill(self, runner: Runner, tests: list[Test]) -> None:
        missing = [test for test in tests if test.name not in self.rows]
        if not missing:
            return
        print(f"running {len(missing)} tests without a fault", flush=True)

        def note(test: Test, seen: Seen) -> bool:
            self.rows[test.name] = {
                "passed": seen.passed, "seconds": round(seen.seconds, 2), "reached": seen.reached
            }
            if not seen.passed:
                print(f"    {test.name} fails without a fault: {seen.said}", flush=True)
            if len(self.rows) % 20 == 0:
                self.save()
            return False

        runner.each(missing, 86400, note, is_recorded=True)
        self.save()

    def save(self) -> None:
        self.path.write_text(json.dumps({"ids": self.ids, "tests": self.rows}))

    def passes(self, name: str) -> bool:
        return self.rows.get(name, {}).get("passed", False)

    def seconds(self, name: str) -> float:
        return self.rows[name]["seconds"]

    def that_reach(self, tests: list[Test], ids: set[int]) -> list[Test]:
        able = [
            test for test in tests
            if self.passes(test.name) and not ids.isdisjoint(self.rows[test.name]["reached"])
        ]
        return sorted(able, key=lambda test: self.seconds(test.name))

    def limits(self) -> dict[str, float]:
        return {name: max(60.0, 10 * row["seconds"]) for name, row in self.rows.items()}


class Results:
    """The results, kept in a file."""
    def __init__(self, path: Path, root: Path, again: bool) -> None:
        self.path, self.root = path, root
        self.rows: dict[str, dict] = (json.loads(path.read_text())
                                      if path.exists() and not again else {})

    def key(self, m: Mutant) -> str:
        text = "\0".join((m.file, m.old, m.new, (self.root / m.file).read_text()))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def get(self, m: Mutant) -> dict | None:
        return self.rows.get(self.key(m))

    def put(self, m: Mutant, row: dict) -> None:
        self.rows[self.key(m)] = {"title": m.title, **row}
        self.path.write_text(json.dumps(self.rows, indent=1))


class Attempt:
    def __init__(self, scratch: Scratch, runner: Runner, tests: dict[str, Test], record: Record,
                 every: list[Mutant], options: argparse.Namespace,
                ) -> None:
        self.scratch, self.runner, self.tests, self.record, self.every, self.options = (scratch,
                                                                                        runner,
                                                                                        tests,
                                                                                        record,
                                                                                        every,
                                                                                        options)

    def likely(self, m: Mutant) -> list[Test]:
        named = [test for test in self.tests.values() if m.tests and re.search(m.tests, test.name)]
        return named + ([self.scratch.part_of_parity(m.parity)] if m.parity else [])

    def wide(self, m: Mutant) -> list[Test]:
        """Returns all other tests that reach the fault's place or, for a fault with its own build,
        a place near it."""
        among = [
            test for test in self.tests.values()
            if not WHOLE_PROGRAMS.match(test.name) and re.search(self.options.tests, test.name)
        ]
        self.record.fill(self.runner, among)
        if m.is_switched:
            reaching = self.record.that_reach(among, {m.id})
        else:
            folder = m.file.rpartition("/")[0]
            for near in (m.file, folder):
                reaching = self.record.that_reach(
                    among, {other.id for other in self.every if other.file.startswith(near)})
                if reaching:
                    break
        named = {test.name for test in self.likely(m)}
        return [test for test in reaching if test.name not in named]

    def build_alone(self, m: Mutant, *targets: str) -> bool:
        if m.is_switched:
            return True
        self.scratch.write(m.file, (self.scratch.root / m.file).read_text().replace(m.old, m.new))
        status, output = self.scratch.make(*targets)
        if status != 0:
            print("    DOES NOT BUILD:", *output.splitlines()[-20:], sep="\n    ", flush=True)
        return status == 0

    def targets(self, m: Mutant) -> list[str]:
        """Returns the targets that the likely tests need. Empty if one of the tests is a script,
        which needs all targets."""
        programs = {test.program for test in self.likely(m)}
        return [] if "" in programs else sorted(programs)

    def try_named(self, m: Mutant) -> str:
        """Runs the tests that a fault names, one after the other. Returns the name of
        the first that fails, or ""."""
        limits, left = self.record.limits(), self.options.limit
        # Unit tests run first, because they take less time than tests of programs.
        for test in sorted(self.likely(m), key=lambda test: not test.name[0].isupper()):
            limit = min(limits.get(test.name, test.limit), left)
            seen = self.runner.once(test, m.id, limit)
            if seen is not None and not seen.passed:
                return test.name
            left -= seen.seconds if seen is not None else 0
        return ""

    def try_alone(self, m: Mutant, is_tried: bool) -> tuple[str, int]:
        """Tries one fault with all processors. is_tried: the tests that it names have run and did
        not find it. Returns the name of the test that fails, or "", and the number of tests chosen,
        or -1 if the fault does not build."""
        named = [] if is_tried else self.likely(m)
        fault, limits = m.id if m.is_switched else 0, self.record.limits()
        is_wide = not self.options.likely and not m.survives
        wide = self.wide(m) if not self.likely(m) and is_wide else []
        right = (self.scratch.tree / m.file).read_text()
        try:
            if not self.build_alone(m, *([] if wide else self.targets(m))):
                return "", -1
            found = self.runner.first_failing(named, fault, self.options.limit, limits)
            if not found and is_wide:
                if self.likely(m):
                    print("    not found by the tests that it names", flush=True)
                    if not m.is_switched:
                        self.scratch.write(m.file, right)
                        self.scratch.make()
                    wide = self.wide(m)
                    self.build_alone(m)
                found = self.runner.first_failing(wide, fault, self.options.wide_limit,
                                                  self.record.limits(), is_doubted=True)
        finally:
            self.scratch.write(m.file, right)
        return found, len(self.likely(m)) + len(wide)

    def __call__(self, mutants: list[Mutant], put) -> None:
        """Calls put(fault, entry) for each fault. The entry to keep has "result" (found, survives,
        error) and "by"."""
        def note(m: Mutant, found: str, ran: int) -> None:
            put(m, {
                "result": "found" if found else "error" if ran < 0 else "survives", "by": found,
                "ran": ran
            })

        # These faults need no build of their own and no record of the tests that reach them, so
        # several are tried at the same time.
        ready = [m for m in reversed(mutants) if m.is_switched and self.likely(m)]
        found_named: dict[int, str] = {}

        def work_off() -> None:
            while True:
                with self.runner.lock:
                    if not ready:
                        return
                    m = ready.pop()
                began = time.monotonic()
                found = self.try_named(m)
                with self.runner.lock:
                    found_named[m.number] = found
                    if found:
                        print(m.title, flush=True)
                        print(f"    found by {found}, {time.monotonic() - began:.1f} s", flush=True)
                        note(m, found, len(self.likely(m)))

        self.runner.in_threads(len(ready), work_off)
        for m in sorted(mutants, key=lambda m: not m.is_switched):
            if found_named.get(m.number):
                continue
            began = time.monotonic()
            print(m.title, flush=True)
            found, ran = self.try_alone(m, m.number in found_named)
            said = f"found by {found}" if found else f"SURVIVES {ran} tests"
            if ran >= 0:
                print(f"    {said}, {time.monotonic() - began:.1f} s", flush=True)
            note(m, found, ran)


def check_finders(attempt: Attempt, results: Results, mutants: list[Mutant]) -> None:
    """Checks that the tests that found faults pass without a fault."""
    by = {
        m.number: results.get(m)["by"]
        for m in mutants
        if results.get(m)["result"] == "found" and not results.get(m).get("checked")
    }
    parts = {test.name: test for m in mutants for test in attempt.likely(m)}
    names = {name for name in by.values() if not attempt.record.passes(name)}
    wrong: dict[str, str] = {}
    attempt.scratch.make()

    def note(test: Test, seen: Seen) -> bool:
        if not seen.passed:
            wrong[test.name] = seen.said
        return False

    attempt.runner.each([parts.get(name) or attempt.tests[name] for name in sorted(names)], 86400,
                        note)
    for m in mutants:
        if m.number in by:
            name = by[m.number]
            if name in wrong:
                print(f"{m.title}\n    {name} fails without the fault, too: {wrong[name]}",
                      flush=True)
            results.put(m, ({"result": "error", "by": name}
                            if name in wrong else {**results.get(m), "checked": True}),
                       )


def mutate(options: argparse.Namespace, every: list[Mutant], mutants: list[Mutant]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = Scratch(options.root, options.work, options.jobs)
    status, output = scratch.make_all_faults(every)
    if status != 0:
        print(*output.splitlines()[-30:], "the sources do not build without a fault", sep="\n")
        return 1
    ids = [m.id for m in every if m.is_switched]
    record = Record(options.work / "tests.json", ids, options.again)
    attempt = Attempt(scratch, Runner(scratch), scratch.find_tests(), record, every, options)
    idle = [m for m in mutants if m.tests and not attempt.likely(m)]
    for m in idle:
        print(f"{m.title}\n    no test of the short run has a name like {m.tests}")
    if idle:
        return 1
    results = Results(options.work / "results.json", options.root, options.again)
    attempt([m for m in mutants if (results.get(m) or {}).get("result") != "found"], results.put)
    check_finders(attempt, results, mutants)
    return report(mutants, results)


def report(mutants: list[Mutant], results: Results) -> int:
    rows = [(m, results.get(m)["result"]) for m in mutants]
    survivors = [m for m, result in rows if result == "survives"]
    new = [m for m in survivors if not m.survives]
    for m in survivors:
        print(f"survives: {m.title}" + (f"\n    known: {m.survives}" if m.survives else ""))
    for m, result in rows:
        if result == "found" and m.survives:
            print(f"is found now, the mark can go: {m.title}")
    print("part       faults  found")
    is_enough = True
    for part, _ in PARTS:
        here = [
            result for m, result in rows if m.part == part and (result == "found" or not m.survives)
        ]
        if here:
            share = 100 * here.count("found") // len(here)
            is_enough = is_enough and share >= LEAST_SHARE
            print(f"{part:10} {len(here):6} {here.count('found'):6}  {share:3} %")
    counts = {word: sum(result == word for _, result in rows) for word in ("found", "error")}
    print(
        f"{len(rows)} faults: {counts['found']} found, {len(survivors)} survive "
        f"({len(survivors) - len(new)} known), "
        f"{counts['error']} are errors of the list")
    return int(not is_enough or counts["error"] != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="*", type=Path,
                        help="other lists than those beside the tool")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", help="numbers of faults, comma between them")
    parser.add_argument("--part", help="the faults of a part, as large")
    parser.add_argument("--folder", help="faults of the sources below it, as cache/pack")
    parser.add_argument("--short", action="store_true", help="the faults marked as short")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--likely", action="store_true",
                        help="run only the tests that each fault names")
    parser.add_argument("--tests", default="", help="the only other tests (a regular expression)")
    parser.add_argument("--again", action="store_true", help="forget what is kept of earlier runs")
    parser.add_argument("--limit", type=int, default=600,
                        help="seconds for the tests that a fault names")
    parser.add_argument("--wide-limit", type=int, default=900, help="seconds for the others")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--root", type=Path, default=HERE.parents[2])
    options = parser.parse_args()
    options.root = options.root.resolve()
    options.work = (options.work or options.root / "build-mutants").resolve()
    try:
        every = read_lists(options.lists or sorted(HERE.glob("*.toml")))
    except (ListError, tomllib.TOMLDecodeError) as error:
        print(error)
        return 1
    wrong = complaints(options.root, every)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong:
        return 1
    if options.check:
        print(f"{len(every)} faults fit the sources")
        return 0
    mutants = every
    if options.only:
        chosen = {int(number) for number in options.only.split(",")}
        mutants = [m for m in mutants if m.number in chosen]
    if options.part:
        mutants = [m for m in mutants if m.part == options.part]
    if options.folder:
        mutants = [m for m in mutants if m.file.startswith(options.folder.rstrip("/") + "/")]
    if options.short:
        mutants = [m for m in mutants if m.short]
    if options.list:
        print(*(f"{m.title} [{m.part}]" for m in mutants), sep="\n")
        return 0
    return mutate(options, every, mutants)


if __name__ == "__main__":
    sys.exit(main())
