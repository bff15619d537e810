"""Runs recipes: the commands that a page tells the user to type, on a slow mount at /mnt/data.

    run.py --build BUILD [--venvs DIR] [--measure N] NAME ...

A recipe runs in a new mount namespace, with lagfs at /mnt/data, in an empty folder, and with the
build's command in PATH. Needs root. Exit status: 0, 1 if a recipe failed, 77 if all were skipped.

--measure runs each recipe N times with `cubeshim run` and N times without, in turn, each on a fresh
mount, and prints medians."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE.parent / "ecosystem")]
import data  # noqa: E402
from bench.harness.mount import SlowMount  # noqa: E402
from installed import NotInstalled, ready_venv  # noqa: E402
from page import ROOT, Page, page  # noqa: E402

SKIPPED = 77
LATENCY_US = 300
SERVED = re.compile(r"^cubeshim: served: (\d+) file opens?, [^:]*: (.*)$", re.MULTILINE)
CACHED = re.compile(r"(\d+) from (?:memory|the disk)")
EPOCH = re.compile(r"^epoch (\d+): ([\d.]+) s", re.MULTILINE)
# This runs in Debian's Python, which has the packages that make the data.
MAKE = "import data, pathlib, sys; getattr(data, sys.argv[1])(pathlib.Path(sys.argv[2]))"
UNDER = re.compile(r"cubeshim run .*?-- ")


class Skipped(Exception):
    pass


def check_programs(found: Page) -> None:
    for need in filter(None, found.needs.get("program", "").split(",")):
        if not shutil.which(need, path=os.environ["PATH"] + ":/usr/sbin"):
            raise Skipped(f"{need} is not in PATH")


def run_other(found: Page, build: Path) -> list[str]:
    """Runs the script of a page whose commands need more than a mount."""
    done = subprocess.run([ROOT / found.needs["by"], build],
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          text=True)
    return [done.stdout[-3000:]] if done.returncode else []


def programs_of(found: Page, venvs: Path) -> Path:
    """Returns the folder with `python` and the programs of its packages."""
    if found.venv == "system":
        return Path("/usr/bin")
    try:
        return ready_venv(found.venv, venvs) / "bin"
    except NotInstalled as why:
        raise Skipped(f"{found.venv}: {why}") from None


class Kitchen:
    """The data and programs that the runs of one recipe share."""

    def __init__(self, build: Path, found: Page, venvs: Path, work: Path):
        self.build, self.page, self.work = build, found, work
        programs = programs_of(found, venvs)
        self.source = work / "source"
        self.source.mkdir()
        subprocess.run(["/usr/bin/python3", "-c", MAKE, found.needs["data"], self.source],
                       cwd=HERE,
                       check=True)
        data.age(self.source)
        bin_ = work / "bin"
        bin_.mkdir()
        (bin_ / "cubeshim").symlink_to(build / "cubeshim")
        if found.venv == "system":
            (bin_ / "python").symlink_to("/usr/bin/python3")
        self.path = f"{bin_}:{programs}:/usr/bin:/bin"

    @contextmanager
    def mounted(self, latency_us: int) -> Iterator[SlowMount]:
        with SlowMount(self.build / "lagfs", self.source, self.work, latency_us) as mount:
            yield mount

    def run(self, script: str, mount: SlowMount) -> subprocess.CompletedProcess:
        """Runs the script of the recipe. All its output is written to stdout."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.work))
        for name, text in self.page.files.items():
            (folder / name).write_text(text)
        around = f"""
            mount -t tmpfs none /mnt
            mkdir /mnt/data /mnt/scratch
            mount --bind {shlex.quote(str(mount.path))} /mnt/data
            mount -t tmpfs none /dev/shm
            exec bash -e -o pipefail -c {shlex.quote(script)}"""
        # A job must neither see this machine's settings of the library nor access a hub.
        environment = {
            "PATH": self.path,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONWARNINGS": "ignore",
            "HF_HUB_OFFLINE": "1",
            "YOLO_OFFLINE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "OMP_NUM_THREADS": "1",
            # DeepSpeed compiles parts of itself; the result is shared by all runs.
            "TORCH_EXTENSIONS_DIR": str(self.work / "extensions"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"
        }
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-ec", around],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True)


def share_of_hits(output: str) -> float:
    opens = cached = 0
    for found in SERVED.finditer(output):
        opens += int(found[1])
        cached += sum(map(int, CACHED.findall(found[2])))
    return 100 * cached / max(opens, 1)


def faults(kitchen: Kitchen) -> list[str]:
    found = kitchen.page
    with kitchen.mounted(LATENCY_US) as mount:
        done = kitchen.run(found.script, mount)
    wrong = [f"the output has no line like: {line}" for line in found.missing(done.stdout)]
    if done.returncode:
        wrong.append(f"exit status {done.returncode}")
    if share_of_hits(done.stdout) < float(found.needs.get("hits", 0)):
        wrong.append(f"{share_of_hits(done.stdout):.0f} % hits, expected {found.needs['hits']}")
    return [*wrong, done.stdout[-3000:]] if wrong else []


def measure(kitchen: Kitchen, rounds: int, latency_us: int) -> None:
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        ways = {"native": UNDER.sub("", kitchen.page.script), "cubeshim": kitchen.page.script}
        for way in sorted(ways, reverse=bool(number % 2)):
            with kitchen.mounted(latency_us) as mount:
                done = kitchen.run(ways[way], mount)
                reads = mount.counters()["read"]["bytes"]
            if done.returncode:
                print(done.stdout[-2000:])
                return
            times.setdefault((way, "MB read"), []).append(reads / 1e6)
            for epoch, seconds in EPOCH.findall(done.stdout):
                times.setdefault((way, f"epoch {epoch}"), []).append(float(seconds))
    for (way, what), found in sorted(times.items()):
        print(
            f"{kitchen.page.name}: {way}: {what}: {statistics.median(found):.2f} "
            f"({min(found):.2f} to {max(found):.2f})",
            flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True, metavar="DIR")
    parser.add_argument("--venvs",
                        type=Path,
                        metavar="DIR",
                        help="of tests/ecosystem (default: BUILD/ecosystem/venvs)")
    parser.add_argument("--measure", type=int, metavar="N", help="measure, N times each way")
    parser.add_argument("--latency-us",
                        type=int,
                        default=5000,
                        metavar="N",
                        help="of the mount, with --measure (default 5000)")
    parser.add_argument("names", nargs="+", metavar="NAME")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: only root has namespaces")
        return SKIPPED
    build, statuses = options.build.resolve(), []
    venvs = (options.venvs or build / "ecosystem/venvs").resolve()
    for name in options.names:
        with tempfile.TemporaryDirectory(prefix="recipe-") as work:
            try:
                found = page(name)
                check_programs(found)
                if "by" in found.needs:
                    wrong = run_other(found, build)
                else:
                    kitchen = Kitchen(build, found, venvs, Path(work))
                    if options.measure:
                        measure(kitchen, options.measure, options.latency_us)
                        continue
                    wrong = faults(kitchen)
                print(f"{name}:", *(wrong or ["passed"]), sep="\n")
                statuses.append(int(bool(wrong)))
            except Skipped as why:
                print(f"{name}: skipped: {why}")
                statuses.append(SKIPPED)
    return 1 if 1 in statuses else SKIPPED if statuses and set(statuses) == {SKIPPED} else 0


if __name__ == "__main__":
    sys.exit(main())
