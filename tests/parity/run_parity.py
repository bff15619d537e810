"""Runs the parity tests on a file system of each kind, in each mode, and counts what was compared.

    run_parity.py --build build                      # all variants, and the sum
    run_parity.py --build build tmpfs lagfs          # some of them

Under the library, each test has its own process, so that a file that one test has left open for
writing does not affect the next. Without the library (kernel: compares the reference with itself),
one process runs all tests. Exit status 77: none of the variants can run here (not root, no
/dev/fuse ...); the reason is printed."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "preload"), str(TESTS / "cli")]
from cluster_servers import Memcached  # noqa: E402

EQUAL = re.compile(
    r"^parity: (\d+) of (\d+) cases equal \(\w+: (\d+) tests, (\d+) of them skipped, (\d+) hits "
    r"proven\)$",
    re.M)
FROM_CLUSTER = re.compile(r"^parity: (\d+) of (\d+) files came from the cluster$", re.M)
PROGRESS = re.compile(r"\[(=+|-+| RUN      |       OK )\]|$")
MODIFIED = 1_600_000_000  # the modification time of the tests' files
REASON = re.compile(r"^(\S+\.cc:\d+: Skipped\n.*)$", re.M)


class CannotRun(Exception):
    """Carries the reason why this machine cannot run the variant."""


@dataclass
class Count:
    equal: int = 0
    compared: int = 0
    tests: int = 0
    skipped: int = 0
    hits: int = 0
    failed: int = 0
    from_cluster: int = 0
    shared: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(*(a + b for a, b in zip(vars(self).values(), vars(other).values())))

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        failed = f", {self.failed} FAILED" if self.failed else ""
        cluster = ""
        if self.shared:
            cluster = f", {self.from_cluster} of {self.shared} files from another node"
        return (f"{self.equal} of {self.compared} equal ({self.tests} tests, {self.hits} hits "
                f"proven{cluster}{skipped}{failed})")


def mount(stack: ExitStack, command: list[str], target: Path) -> Path:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotRun(f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip()}")
    stack.callback(subprocess.run, ["umount", "-l", str(target)], check=True)
    return target


@contextmanager
def place(kind: str, build: Path):
    """Provides a directory on a file system of this kind."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cubeshim-parity-")))
        if kind == "disk":
            yield base
            return
        if os.geteuid() != 0:
            raise CannotRun("only root can mount")
        folders = {name: base / name for name in ("source", "upper", "work", "mounted")}
        for folder in folders.values():
            folder.mkdir()
        target = folders["mounted"]
        if kind == "tmpfs":
            yield mount(stack,
                        ["mount", "-t", "tmpfs", "-o", "size=512m", "cubeshim-parity",
                         str(target)], target)
        elif kind == "overlayfs":
            options = (f"lowerdir={folders['source']},upperdir={folders['upper']},"
                       f"workdir={folders['work']}")
            yield mount(stack,
                        ["mount", "-t", "overlay", "-o", options, "cubeshim-parity",
                         str(target)], target)
        else:
            delays = [
                f"--{name}-us=0" for name in ("lookup", "open", "read", "getattr", "readdir",
                                              "other")
            ]
            # Lets the kernel check the modes, because the file system runs as root and would allow
            # everything.
            options = ["-o", "default_permissions", "--attr-timeout=0", "--entry-timeout=0"]
            lagfs = [str(build / "lagfs"), *delays, *options, str(folders["source"]), str(target)]
            yield mount(stack, lagfs, target)


MODES = ("kernel", "virtual", "real")
VARIANTS = {
    # name: file system, modes, further settings
    "disk": ("disk", ("kernel", "virtual", "real"), {}),
    "tmpfs": ("tmpfs", ("kernel", "virtual", "real"), {}),
    "overlayfs": ("overlayfs", ("kernel", "virtual", "real"), {}),
    "lagfs": ("lagfs", ("kernel", "virtual", "real"), {}),
    "open": ("disk", ("virtual",), {"CUBESHIM_CONSISTENCY": "open"}),
    "ttl": ("disk", ("virtual",), {"CUBESHIM_CONSISTENCY": "ttl:600"}),
    # Every file counts as large, and is served in blocks.
    "large": ("disk", ("virtual",),
              {"CUBESHIM_MAX_FILE": "1", "CUBESHIM_BLOCK": "4K", "PARITY_LARGE": "1"}),
    "large_64k": ("disk", ("virtual",),
                  {"CUBESHIM_MAX_FILE": "1", "CUBESHIM_BLOCK": "64K", "PARITY_LARGE": "1"}),
    "large_1m": ("disk", ("virtual",),
                 {"CUBESHIM_MAX_FILE": "1", "CUBESHIM_BLOCK": "1M", "PARITY_LARGE": "1"}),
    # The place of a file in memory can be reclaimed later, so files are mapped in another way.
    "ring": ("disk", ("virtual",), {"PARITY_RING": "1"}),
    # The profiler records each call.
    "profile": ("disk", ("virtual",),
                {"CUBESHIM_PROFILE": "/dev/null", "CUBESHIM_PROFILE_ALL": "1"}),
    # Another node has read and shared each file before its first open.
    "cluster": ("disk", ("virtual",), {"PARITY_POOL": "wanted"}),
    # Each file is an object of a store. Each open asks the store, because new files appear during
    # the test.
    "bucket": ("disk", ("virtual",),
               {"CUBESHIM_CONSISTENCY": "open", "PARITY_BUCKET": "s3://bucket"}),
}
# Tests of calls that read. All other tests write, or see a difference that SEMANTICS.md lists for
# packs and buckets: An object has no holes. A copy of an object is a file on tmpfs. The kernel
# cannot open an object by its path. So a clone's child, a file action of a spawn, freopen and a
# program without the library cannot open an object either.
IN_BUCKET = [
    "Fd*", "Read*", "Seek*", "Stat*", "Stdio*", "Signal*", "Thread*", "Map*", "Child*", "Stream*",
    "Exec*", "Transfer*", "Copy*", "Aged*", "Async*", "At*", "Fortify*", "Ioctl*", "Iostream*",
    "Limit*", "Loader*", "Lock*", "Message*", "Process*", "Raw*", "Wide*"
]
NOT_IN_BUCKET = [
    "Async.IoUring", "Async.FdClosedAndOpenedAgainByARing", "At.ADirectoryThatAMountCovers*",
    "At.FileIsRefusedAsADirectory", "At.ARemovedDirectory*", "At.ClosedFdIsRefusedAsADirectory",
    "At.EmptyPathMeansTheFdItself", "At.PathsOfFdsAreFollowed", "Ioctl.CommandsOfTheFileSystem",
    "Limit.FdNameBelowProcWhenNoFdIsLeft", "Limit.FileSizeAndAddressSpace",
    "Limit.ListOfFdsAndTheirFiles", "Limit.LoweredBelowTheFdThatWasClosedLast",
    "Limit.NamesAndPaths", "Limit.TooManyOpenFiles", "Lock.Flock", "Lock.LockedFilesKeepOneOffset",
    "Process.ScriptOnTheCoveredTreeIsRun", "Raw.ChangesByCallNumberAreSeen",
    "Raw.CloseRangeWithUnshareThroughSyscall", "Raw.FdsThroughSyscall", "Raw.ReadsThroughSyscall",
    "Raw.WorkingDirectoryThroughSyscall", "Child.Clone*", "Child.EveryForm",
    "Child.PlaceholdersNeverReachAChildThatPassesLibcBy", "Child.SpawnWithEveryAction",
    "Exec.OpenedByTheProgramThatRuns", "Exec.ProgramsOfTheTreeAreRun",
    "Fd.CloseRangeOnEverythingWithUnshare", "Fd.FlagsOfTheFd", "Fd.OddCommandsOfFcntl",
    "Mapping.FlagsOfEveryKind", "Mapping.OverOneAnother",
    "Read.WithODirectGivesTheSameBytesAndErrors", "Seek.BadArgumentsLeaveTheOffset",
    "Seek.DataAndHole*", "Seek.LargeOffsetsAreTheFileSystems", "Stat.EverySymbolByFd",
    "Stat.StatxMasksByFd", "Stdio.ModesOpenOrAreRefused", "Stdio.ReopenForWriting",
    "Stdio.StandardInputReopened", "Stdio.WideCharacters", "Stream.ModesWithFlags",
    "Stream.PositionsBeyondAndBack", "Stream.ReopenedInEveryWay", "Stream.RemainsIfAReopenFails",
    "Stream.WideTextAfterAReopenForWriting", "Stream.WideTextByItsMode",
    "Transfer.CopyFileRangeOffsets", "Transfer.FlagsOfVectorReads",
    "Transfer.SizesOfAFileOpenForReading"
]
# Leaves out cases that the other variants cover, because the profiler affects only calls.
FILTERS = {
    "ring": "Map*",
    "profile": "Fd*:Read*:Seek*:Stat*:Stdio*:Signal*:Thread*:Map*:Child*",
    "bucket": ":".join(IN_BUCKET) + "-" + ":".join(NOT_IN_BUCKET)
}


@contextmanager
def bucket_of(where: Path, build: Path):
    """A store whose objects are the files of the directory. Yields the variables that name the
    store and the command."""
    if os.geteuid() != 0:
        raise CannotRun("only root can mount")
    import bucket_store  # it needs botocore
    command = where / "cubeshim"
    command.symlink_to(build / "cubeshim")
    store = bucket_store.Store(bucket_store.FolderObjects(where))
    store.modified = MODIFIED
    try:
        yield store.environment() | {"CUBESHIM_COMMAND": str(command)}
    finally:
        bucket_store.end_gateways(command)
        store.close()


@contextmanager
def servers(settings: dict, where: Path, build: Path):
    """Yields the settings, with the port of a memcached or a store if the variant needs one."""
    if "PARITY_BUCKET" in settings:
        with bucket_of(where, build) as variables:
            yield settings | variables
    elif "PARITY_POOL" not in settings:
        yield settings
    elif shutil.which("memcached") is None:
        raise CannotRun("there is no memcached")
    else:
        with Memcached(memory_mb=256) as server:
            yield settings | {"PARITY_POOL": str(server.port)}


def run(binary: Path, mode: str, environment: dict[str, str], test: str) -> tuple[Count, str]:
    """Returns the counts of one process, and its output if a test failed or was skipped."""
    command = [str(binary), f"--gtest_filter={test}"]
    try:
        done = subprocess.run(command, env={**environment, "PARITY_MODE": mode},
                              capture_output=True, text=True, errors="replace", timeout=300,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as late:
        # The last line about a test names the test that hung.
        return Count(tests=1, failed=1), f"{mode} {test}: not done after {late.timeout} s\n" + (
            late.stdout or b"").decode(errors="replace")[-2000:]
    found = EQUAL.search(done.stdout)
    count = Count(*map(int, found.groups())) if found else Count(tests=1)
    if cluster := FROM_CLUSTER.search(done.stdout):
        count.from_cluster, count.shared = map(int, cluster.groups())
    count.failed = int(done.returncode != 0 or not found or count.equal != count.compared)
    said = "".join(line for line in done.stdout.splitlines(True) if not PROGRESS.match(line))
    failure = f"{mode} {test}: exit status {done.returncode}\n{said}{done.stderr}"
    text = failure if count.failed else ""
    if count.skipped and not count.failed:
        text = "".join(f"{mode} {reason}\n" for reason in REASON.findall(done.stdout))
    return count, text


def list_of(binary: Path, pattern: str) -> list[str]:
    listing = subprocess.run([str(binary), "--gtest_list_tests", f"--gtest_filter={pattern}"],
                             check=True, capture_output=True, text=True)
    names, suite = [], ""
    for line in listing.stdout.splitlines():
        if line.startswith("  "):
            names.append(suite + line.strip())
        else:
            suite = line.strip()
    return names


def run_variant(name: str, arguments: argparse.Namespace) -> Count:
    kind, modes, settings = VARIANTS[name]
    modes = [mode for mode in modes if mode in arguments.modes]
    binary = arguments.build / "tests/parity/parity_tests"
    total = Count()
    build = arguments.build
    with place(kind, build) as where, servers(settings, where, build) as settings, \
            ThreadPoolExecutor(arguments.jobs) as pool:
        environment = {**os.environ, **settings, "PARITY_TMP": str(where)}
        for mode in modes:
            wanted = FILTERS.get(name, "*") if arguments.filter == "*" else arguments.filter
            is_one_process = mode == "kernel" or "PARITY_BUCKET" in settings
            tests = [wanted] if is_one_process else list_of(binary, wanted)
            for count, text in pool.map(lambda test: run(binary, mode, environment, test), tests):
                total += count
                if text:
                    print(text, flush=True)
    # Another node no longer has files that a test changes before it opens them.
    lacks_hits = ("PARITY_POOL" in settings and "virtual" in modes
                  and total.from_cluster < total.shared / 2)
    if not total.compared or lacks_hits:
        total.failed += 1
    print(f"parity {name} ({', '.join(modes)}): cases {total}", flush=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", choices=[[], *VARIANTS], metavar="VARIANT",
                        help=", ".join(VARIANTS))
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, metavar="MODE",
                        help=", ".join(MODES))
    parser.add_argument("--filter", default="*", help="as --gtest_filter")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    # The mounts are removed even if this program is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    total, ran = Count(), 0
    for name in arguments.variants or VARIANTS:
        try:
            total += run_variant(name, arguments)
            ran += 1
        except CannotRun as reason:
            print(f"parity {name}: skipped: {reason}", flush=True)
    if not ran:
        return 77
    print(f"parity cases {total}")
    return int(total.failed != 0 or total.equal != total.compared)


if __name__ == "__main__":
    sys.exit(main())
