#!/usr/bin/python3
"""Compares programs natively and under a released library, with older and newer libcs. Run it by
hand before a release.

    run.py --release build-dist --libc 2.17=/opt/glibc-2.17 --libc bullseye=/srv/bullseye --node
    node-v16/bin/node

A libc is either a folder to which glibc was installed (`lib/ld-linux-x86-64.so.2`; patchelf gives
the programs this loader), or the root of a system (`bin/sh`; the programs and the system's own
Python run in a chroot). The programs are built by the compiler of the release for the libc's
architecture; aarch64 needs qemu-user with binfmt_misc. Needs root."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from place import Installed, Libc, System

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "parity"))
import run_parity  # noqa: E402

PROGRAMS = ("single", "unwind", "parity_tests", "differ")
CHECKS = ("single", "unwind", "parity", "differ", "python", "node")
ON_DEMAND = ("unit",)
LIBRARY, COMMAND = "libcubeshim.so", "cubeshim"


def built(options: argparse.Namespace, libc: Libc) -> Path:
    return (options.build or options.release / "libc-tests") / libc.cpu()


def programs(options: argparse.Namespace) -> tuple[str, ...]:
    return (*PROGRAMS, "unit_tests") if "unit" in options.checks else PROGRAMS


def build(options: argparse.Namespace, libc: Libc) -> None:
    release, where, cpu = options.release, built(options, libc), libc.cpu()
    subprocess.run([
        "cmake", "-S", HERE, "-B", where, "-G", "Ninja", "-Wno-dev",
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'packaging/toolchain.cmake'}",
        f"-DCUBESHIM_DIST_TOOLS={release / f'tools-{cpu}'}",
        f"-DCUBESHIM_DIST_SYSROOT={release / f'sysroot-{cpu}'}", f"-DCUBESHIM_DIST_CPU={cpu}",
        f"-DCUBESHIM_DIST_BUILD={release / f'build-{cpu}'}"
    ], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        ["cmake", "--build", where, "-j",
         str(options.jobs), "--target", *programs(options)], check=True, stdout=subprocess.DEVNULL)


class Failed(Exception):
    """Carries the reason why a check failed."""


class Skipped(Exception):
    """Carries the reason why a check was not made."""


def equal_with_hits(libc: Libc, words: list[str], prefix: Path) -> str:
    """Runs a program natively and under the library. Status, output and errors must be equal, and
    files must have been served."""
    def run(settings: dict[str, str]) -> tuple[int, str, str]:
        done = libc.run(words, settings)
        return done.returncode, done.stdout, done.stderr

    report = libc.work / "report.json"
    report.unlink(missing_ok=True)
    native = run({})
    if native[0] != 0:
        raise Failed(f"natively: exit status {native[0]}: {native[2][-500:]}")
    under = run({
        "LD_PRELOAD": libc.inside(libc.work / LIBRARY), "CUBESHIM_PREFIXES": libc.inside(prefix),
        "CUBESHIM_NAME": f"libc-{os.getpid()}", "CUBESHIM_RAM": "64M",
        "CUBESHIM_STATS": libc.inside(report), "CUBESHIM_STATS_FORMAT": "json"
    })
    if under != native:
        raise Failed(f"natively:\n{native}\nunder the library:\n{under}")
    reports = report.read_text().splitlines() if report.exists() else []
    if len(reports) > 1:
        raise Failed(f"a report by {len(reports)} processes, each as the first one of a job")
    hits = json.loads(reports[0])["hits"]["ram"] if reports else 0
    if hits == 0:
        raise Failed("no open was a hit")
    return f"equal, {hits} hits"


def check_single(libc: Libc, data: Path, _: argparse.Namespace) -> str:
    (data / "file").write_bytes(b"one line\n" + bytes(range(256)) * 150)
    return equal_with_hits(libc, [libc.program("single"), libc.inside(data / "file"), "3"], data)


def check_unwind(libc: Libc, data: Path, _: argparse.Namespace) -> str:
    (data / "file").write_bytes(b"bytes" * 1000)
    os.mkfifo(data / "fifo")
    return equal_with_hits(libc, [libc.program("unwind"), libc.inside(data)], data)


def check_parity(libc: Libc, data: Path, options: argparse.Namespace) -> str:
    # Each test is a separate process, even natively: after a clone with CLONE_VM, glibc before 2.25
    # has wrong ids for its own thread.
    binary = libc.wrapped("parity_tests")
    environment = {
        **os.environ, **libc.settings, "PARITY_TMP": libc.inside(data),
        "PARITY_LIBRARY": libc.inside(libc.work / LIBRARY)
    }
    tests = run_parity.list_of(binary, options.filter)
    said, failures = [], []
    for mode in run_parity.MODES:
        total = run_parity.Count()
        with ThreadPoolExecutor(options.jobs) as pool:
            for count, text in pool.map(
                    lambda test: run_parity.run(binary, mode, environment, test),
                    tests):  # noqa: B023
                total += count
                if count.failed:
                    failures.append(text)
        said.append(f"{mode} {total}")
        if total.equal != total.compared or total.compared == 0:
            failures.append(f"{mode}: {total}")
    if failures:
        raise Failed("\n".join([*said, *failures]))
    return "; ".join(said)


def check_differ(libc: Libc, _: Path, options: argparse.Namespace) -> str:
    words = [libc.program("differ"), "--seed", "1", "--seeds", str(options.seeds), "--keep-going"]
    # Packs are read-only mounts, in a mount namespace.
    for subject in ("virtual", "real", "virtual-open", "virtual-pack"):
        words += ["--mode", subject]
    done = libc.run(words, {
        "DIFFER_LIBRARY": libc.inside(libc.work / LIBRARY), "DIFFER_COMMAND": libc.program(COMMAND)
    }, timeout=3600)
    if done.returncode != 0:
        raise Failed(done.stdout[-6000:] + done.stderr[-2000:])
    return next(
        line for line in done.stdout.splitlines() if " differ" in line).removeprefix("differ: ")


def check_unit(libc: Libc, _: Path, options: argparse.Namespace) -> str:
    """Runs each test alone, because a test can end the process."""
    binary = libc.wrapped("unit_tests")

    def run(test: str) -> tuple[str, str]:
        try:
            done = subprocess.run([binary, f"--gtest_filter={test}"],
                                  env={**os.environ, **libc.settings}, capture_output=True,
                                  text=True, errors="replace", timeout=60, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return "hang", f"{test} hangs"
        if done.returncode != 0:
            return "failed", (f"{test}: exit status {done.returncode}\n"
                              f"{done.stdout[-1500:]}{done.stderr[-500:]}")
        return ("skipped" if "[  SKIPPED ]" in done.stdout else "passed"), ""

    tests = [test.split("  # ")[0] for test in run_parity.list_of(binary, options.filter)]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run, tests))
    counts = Counter(kind for kind, _ in results)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    if counts["failed"] or counts["hang"]:
        raise Failed("\n".join([said, *(text for _, text in results if text)]))
    return said


def check_python(libc: Libc, data: Path, _: argparse.Namespace) -> str:
    if not isinstance(libc, System) or not (libc.folder / "usr/bin/python3").exists():
        raise Skipped("no Python of this libc's age")
    job = ["/usr/bin/python3", libc.program("loader.py"), libc.inside(data)]
    made = libc.run([*job, "--make", "100"], {})
    if made.returncode != 0:
        raise Skipped(f"no PIL and numpy: {made.stderr.strip().splitlines()[-1]}")
    return equal_with_hits(libc, job, data)


def check_node(libc: Libc, data: Path, options: argparse.Namespace) -> str:
    if options.node is None:
        raise Skipped("no --node")
    for i in range(100):
        (data / f"{i:03}").write_bytes(os.urandom(20000 + i))
    return equal_with_hits(
        libc,
        [libc.program("node"), libc.program("loader.js"),
         libc.inside(data)], data)


@contextmanager
def data_folder(libc: Libc, lagfs: Path | None) -> Iterator[Path]:
    """Provides a folder in a plain directory, or on a slow mount."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="data-", dir=libc.work)))
        base.chmod(0o755)
        if lagfs is None:
            yield base
            return
        source, mounted = base / "source", base / "mounted"
        source.mkdir()
        mounted.mkdir()
        delays = [f"--{name}-us=200" for name in ("lookup", "open", "read", "getattr")]
        subprocess.run([
            lagfs, *delays, "-o", "default_permissions", "--attr-timeout=0", "--entry-timeout=0",
            source, mounted
        ], check=True)
        stack.callback(subprocess.run, ["umount", "-l", mounted], check=True)
        yield mounted


def check_all(libc: Libc, options: argparse.Namespace) -> bool:
    is_well = True
    made = options.release / f"build-{libc.cpu()}"
    files = [built(options, libc) / name for name in programs(options)
            ] + [HERE / "loader.py", HERE / "loader.js"]
    files += [options.library or made / LIBRARY, options.command or made / COMMAND]
    files += [options.node] if options.node else []
    with libc.entered(files):
        print(f"## {libc.name}: glibc {libc.version()}", flush=True)
        for name in options.checks:
            # These two checks make too many calls for a slow mount.
            lagfs = None if name in ("parity", "differ") else options.lagfs
            try:
                with data_folder(libc, lagfs) as data:
                    said = "passed: " + globals()[f"check_{name}"](libc, data, options)
            except Skipped as reason:
                said = f"skipped: {reason}"
            except Failed as reason:
                is_well, said = False, f"FAILED: {reason}"
            print(f"{libc.name} {name}: {said}", flush=True)
    return is_well


def libc_of(text: str) -> Libc:
    name, _, folder = text.partition("=")
    path = Path(folder).resolve()
    for kind in (Installed, System):
        if folder and kind.is_at(path):
            return kind(name, path)
    raise argparse.ArgumentTypeError(
        f"{text!r} must be NAME=FOLDER, and FOLDER must have {Installed.MARK} or {System.MARK}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=Path, default=ROOT / "build-dist",
                        help="where `make dist` has built")
    parser.add_argument("--library", type=Path, help="default: of the release")
    parser.add_argument("--command", type=Path, help="default: of the release")
    parser.add_argument("--build", type=Path,
                        help="where to build the programs; default: RELEASE/libc-tests")
    parser.add_argument("--libc", type=libc_of, action="append", required=True,
                        metavar="NAME=FOLDER")
    parser.add_argument("--checks", nargs="+", choices=CHECKS + ON_DEMAND, default=CHECKS,
                        help="`unit` is made by name alone")
    parser.add_argument("--seeds", type=int, default=300, help="sequences of `differ`")
    parser.add_argument("--filter", default="*",
                        help="of the parity and unit tests, as --gtest_filter")
    parser.add_argument("--lagfs", type=Path,
                        help="a slow mount's program, for `single`, `unwind`, `python` and `node`")
    parser.add_argument("--node", type=Path, help="a node that runs with each of these libcs")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("patchelf") is None:
        parser.error("root and patchelf are needed")
    options.release = options.release.resolve()
    for file in filter(None, (options.library, options.command, options.lagfs, options.node)):
        if not file.is_file():
            parser.error(f"there is no file {file}")
    for libc in {libc.cpu(): libc for libc in options.libc}.values():
        if not (options.release / f"build-{libc.cpu()}" / LIBRARY).is_file():
            parser.error(
                f"there is no library for {libc.cpu()} in {options.release}: `make dist` builds it")
        build(options, libc)
    return 0 if all([check_all(libc, options) for libc in options.libc]) else 1


if __name__ == "__main__":
    sys.exit(main())
