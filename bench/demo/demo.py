"""The demo: runs one training job from a local disk, from a slow mount, and from the slow mount
with cubeshim.

    demo.py --build BUILD_DIR [--origin DIR] [--count N] [--epochs N] [--workers N] [--work DIR]

Makes a data set, mounts it with a configured latency (lagfs), runs train.py for each row, checks
that every row read the same data, and prints samples/s, hit rate and the operations that reached
the mount. Writes a chart and the figures to BUILD_DIR/demo.png and BUILD_DIR/demo.json. With
--origin, your own mount is used instead of lagfs. Exit status: 0; 1 if the rows differ or a run
failed; 2 if the demo cannot run here."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the root
from bench.demo.data import copied, synthetic  # noqa: E402
from bench.demo.report import Row, Setting, as_json, differences, draw, table  # noqa: E402
from bench.demo.runs import RowPlan, run_row  # noqa: E402
from bench.harness.errors import BenchError  # noqa: E402
from bench.harness.machine import cpu_name  # noqa: E402
from bench.harness.mount import SlowMount, check_fuse, file_system_of  # noqa: E402
from bench.harness.pages import warm_pages  # noqa: E402
from bench.harness.shim import ANNOUNCED, Shim  # noqa: E402

ROWS = ("local", "slow", "slow8", "shim")
MANY_WORKERS = 8
PACKAGES = {
    "torch": "python3-torch", "torchvision": "python3-torchvision", "cv2": "python3-opencv",
    "PIL": "python3-pil", "numpy": "python3-numpy", "matplotlib": "python3-matplotlib"
}


class CannotRun(BenchError):
    """A requirement of the demo is missing: exit status 2."""


@dataclass(frozen=True)
class Place:
    """The files that the runs read: a directory on the local disk, and the same files on the slow
    mount."""

    local: Path
    slow: Path
    prefix: Path
    setting: Setting
    per_class: int
    mount: SlowMount | None


def check_machine(options: argparse.Namespace) -> None:
    missing = [
        package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise CannotRun(
            f"{sys.executable} lacks {' '.join(missing)}; run the demo with a python3 that has them"
        )
    needed = [options.build / "libcubeshim.so"] if "shim" in options.rows else []
    needed += [options.build / "lagfs"] if options.origin is None else []
    for file in needed:
        if not file.is_file():
            raise CannotRun(f"{file} is missing: build it first with make")
    if options.origin is None:
        try:
            check_fuse()
        except BenchError as error:
            raise CannotRun(str(error)) from None
    elif not options.origin.is_dir():
        raise CannotRun(f"--origin {options.origin} is not a directory")


def setting_of(mount: str, words: str) -> Setting:
    return Setting(cpu_name(), len(os.sched_getaffinity(0)), mount, words)


def made_place(options: argparse.Namespace, stack: ExitStack) -> Place:
    """Makes a data set of our own, and mounts lagfs over it."""
    print(
        f"making {options.count} images, unless they are there from an earlier run "
        "(some 30 s on 2 cores)",
        flush=True)
    local, words = synthetic(options.work, options.count)
    mount = stack.enter_context(
        SlowMount(options.build / "lagfs", local.parent, options.work, options.latency_us))
    mount.reset()
    latency = (f"FUSE, {options.latency_us} us for each lookup, open, read and getattr; "
               "no pages kept from open to open")
    return Place(local, mount.path / local.name, mount.path, setting_of(latency, words), 0, mount)


def users_place(options: argparse.Namespace) -> Place:
    """Returns the user's mount, and a local copy of those files of the mount that the rows read."""
    origin = options.origin.absolute()
    local, words, per_class = copied(origin, options.work, options.count)
    described = f"{origin} ({file_system_of(origin)})"
    return Place(local, origin, origin, setting_of(described, words), per_class, None)


def planned_rows(options: argparse.Namespace, place: Place) -> list[RowPlan]:
    few, many = options.workers, max(MANY_WORKERS, options.workers)
    rows = {
        "local": (f"local disk, warm page cache, {few} workers", place.local, few),
        "slow": (f"slow mount, {few} workers", place.slow, few),
        "slow8": (f"slow mount, {many} workers", place.slow, many),
        "shim": (f"slow mount + cubeshim, {few} workers", place.slow, few)
    }
    return [
        RowPlan(key, *rows[key], loader, options.epochs, place.per_class)
        for loader in options.loaders
        for key in ROWS
        if key in options.rows
    ]


def run_all(options: argparse.Namespace, place: Place) -> list[Row]:
    rows = []
    warm_pages(place.local)
    planned = planned_rows(options, place)
    for number, plan in enumerate(planned, 1):
        print(f"run {number} of {len(planned)}, some 15 s each:", flush=True)
        shim = None
        if plan.key == "shim":
            # A new name for the region, so that the first epoch finds nothing cached.
            name = f"demo-{os.getpid()}-{plan.loader}"
            stats = options.work / f"stats-{os.getpid()}.json"
            shim = Shim(options.build / "libcubeshim.so", place.prefix, name, ram=None, stats=stats,
                        mode=None, more=tuple(ANNOUNCED.items()))
        rows.append(run_row(plan, options.work, shim, None if plan.key == "local" else place.mount))
    return rows


def report(rows: list[Row], setting: Setting, build: Path) -> int:
    """Prints the comparison and writes the chart, or says which rows differ. Returns the exit
    status."""
    print("\n" + table(rows, setting))
    found = differences(rows)
    print(f"same data in every row: {'no' if found else 'yes'}")
    for line in found:
        print(f"demo: {line}", file=sys.stderr)
    if found:
        return 1
    (build / "demo.json").write_text(json.dumps(as_json(rows, setting), indent=1) + "\n")
    draw(rows, setting, build / "demo.png")
    print(f"chart: {build / 'demo.png'}")
    return 0


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compares a training job on a slow mount with and without cubeshim.")
    parser.add_argument("--build", type=Path, required=True, metavar="DIR",
                        help="holds libcubeshim.so and lagfs")
    parser.add_argument("--origin", type=Path, metavar="DIR",
                        help="class folders on a slow mount of your own")
    parser.add_argument("--count", type=int, default=2000, help="files (default 2000)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--latency-us", type=int, default=300,
                        help="of each operation on the slow mount (default 300)")
    parser.add_argument("--work", type=Path, metavar="DIR",
                        help="keeps the data set (default BUILD/demo)")
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS),
                        help=f"some of {','.join(ROWS)}")
    parser.add_argument("--loaders", type=lambda text: text.split(","), default=["cv2", "pil"],
                        help="cv2, pil or both")
    options = parser.parse_args(arguments)
    if not options.rows or not set(options.rows) <= set(ROWS):
        parser.error(f"--rows takes some of {','.join(ROWS)}")
    if not options.loaders or not set(options.loaders) <= {"cv2", "pil"}:
        parser.error("--loaders takes cv2, pil or cv2,pil")
    if min(options.count, options.epochs, options.workers) < 1 or options.latency_us < 0:
        parser.error("--count, --epochs and --workers must be at least 1, --latency-us at least 0")
    options.build = options.build.absolute()
    options.work = (options.work or options.build / "demo").absolute()
    return options


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def catch_stops() -> None:
    """Turns Ctrl-C and similar signals into an exception, so that mounts and jobs are cleaned up. A
    signal that nohup ignores stays ignored."""
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(*_: object) -> None:
    # Another signal must not interrupt the cleanup, which has its own time limits.
    for number in STOPS:
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    catch_stops()
    start = time.monotonic()
    try:
        check_machine(options)
        options.work.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            place = users_place(options) if options.origin else made_place(options, stack)
            status = report(run_all(options, place), place.setting, options.build)
        print(f"took {time.monotonic() - start:.0f} s")
        return status
    except CannotRun as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except (BenchError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
