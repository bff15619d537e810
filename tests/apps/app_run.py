"""Runs a case in one way and returns the result: output, status, and the contents of $DATA and $OUT
afterwards.

Each run begins with a fresh copy of the same data at the same path, so the results of two runs must
be equal. The ways:

    native          without the library
    off             preloaded, CUBESHIM_MODE=off
    real, virtual   preloaded, nothing cached
    *-warm          preloaded, a process of the same job has read every file before
    lag-*           the prefix is a slow FUSE mount (bench/lagfs)
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from app_case import PATH, Case
from app_data import make_base, set_times, tree

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from bench.harness.mount import unmount  # noqa: E402

PLAIN_WAYS = ["native", "off", "real", "real-warm", "virtual", "virtual-warm"]
LAG_WAYS = ["lag-native", "lag-virtual"]
MAX_FILE = "2M"
SECONDS = 300
g_running: set[int] = set()
g_stopped = threading.Event()
WARM = 'find "$DATA" -type f -exec cat {} + > "$OUT/../warm" || exit 99; exec "$@"'


def stop_all() -> None:
    """Called at a signal. Ends the programs; the threads that wait for them then clean up."""
    g_stopped.set()
    for leader in tuple(g_running):
        os.killpg(leader, signal.SIGKILL)


@dataclass
class Outcome:
    status: int | str
    stdout: bytes
    stderr: bytes
    files: list[str]
    report: dict | None

    def seen(self) -> dict[str, object]:
        return {
            "status": self.status, "stdout": self.stdout, "stderr": self.stderr, "files": self.files
        }

    def served(self) -> int:
        return 0 if self.report is None else self.report["hits"]["ram"] + self.report["misses"]

    def hits(self) -> int:
        return 0 if self.report is None else self.report["hits"]["ram"]


class Workspace:
    """`with Workspace(...) as space:` provides the paths of a case's runs, and removes the files
    afterwards."""
    def __init__(self, case: Case, python: str, library: Path, lagfs: Path):
        self.case, self.python, self.library, self.lagfs = case, python, library, lagfs
        self.root = Path(tempfile.mkdtemp(prefix="cubeshim-apps-"))
        self.root.chmod(0o755)
        self.shm = Path(tempfile.mkdtemp(prefix="cubeshim-apps-", dir="/dev/shm"))
        self.data, self.out = self.root / "data", self.root / "out"
        self.origin = self.root / "origin"

    def __enter__(self) -> Workspace:
        try:
            self.origin.mkdir()
            make_base(self.origin)
            if self.case.prepare:
                self.out.mkdir()
                self.data.symlink_to(self.origin)
                done = self._execute(self._command(self.case.prepare, "prepare"),
                                     self._environment("native"))
                if done[0] != 0:
                    raise RuntimeError(
                        f"{self.case.name}: its preparation failed\n"
                        f"{done[2].decode(errors='replace')}"
                    )
                self.data.unlink()
            set_times(self.origin)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)

    def outcome(self, way: str) -> Outcome:
        for directory in (self.out, self.data):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            directory.chmod(0o777)
        for left in self.shm.iterdir():
            left.unlink()
        self.shm.chmod(0o1777)
        lag = way.startswith("lag-")
        source = self.root / "lag" if lag else self.data
        shutil.rmtree(source, ignore_errors=True)
        subprocess.run(["cp", "-a", "--sparse=auto", f"{self.origin}/.", source], check=True)
        if lag:
            delays = [
                f"--{operation}-us=100" for operation in ("lookup", "open", "read", "getattr")
            ]
            subprocess.run([self.lagfs, *delays, source, self.data], check=True)
        try:
            report = self.root / "report.json"
            report.unlink(missing_ok=True)
            command = self._command(self.case.run, "run")
            if way.endswith("-warm"):
                command = ["/bin/sh", "-c", WARM, "warm", *command]
            status, stdout, stderr = self._execute(command, self._environment(way))
        finally:
            if lag:
                unmount(self.data)
        files = tree(source, "data", self.case.ignored) + tree(self.out, "out", self.case.ignored)
        # A process in another pid namespace is a separate job with its own line.
        reports = [json.loads(line) for line in report.read_text().splitlines()
                  ] if report.exists() else []
        return Outcome(status, stdout, stderr, files,
                       max(reports, key=lambda r: r["opens"], default=None))

    def _command(self, text: str, part: str) -> list[str]:
        script = self.root / f"{part}{self.case.path.suffix}"
        script.write_text(text)
        return [self.python if script.suffix == ".py" else "/bin/bash", str(script)]

    def _environment(self, way: str) -> dict[str, str]:
        home = os.environ.get("HOME", "/")
        variables = {
            "PATH": PATH, "HOME": str(self.out), "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "DATA": str(self.data), "OUT": str(self.out), "VARIANT": self.case.variant,
            "PYTHON": self.python, "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0", "TRAIN": str(ROOT / "bench/jobs/train.py"),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", f"{home}/.rustup"),
            "GOCACHE": os.environ.get("GOCACHE", f"{home}/.cache/go-build"), "OMP_NUM_THREADS": "1",
        }
        mode = way.removeprefix("lag-").removesuffix("-warm")
        if mode != "native":
            variables |= {
                "LD_PRELOAD": str(self.library), "CUBESHIM_PREFIXES": str(self.data),
                "CUBESHIM_MODE": mode, "CUBESHIM_RAM_DIR": str(self.shm), "CUBESHIM_RAM": "64M",
                "CUBESHIM_MAX_FILE": MAX_FILE, "CUBESHIM_RAM_KEEP": "1",
                "CUBESHIM_STATS": str(self.root / "report.json"), "CUBESHIM_STATS_FORMAT": "json",
            }
        return variables

    def _execute(self, command: list[str],
                 environment: dict[str, str]) -> tuple[int | str, bytes, bytes]:
        """The output is written to files, so that a daemon that keeps them open does not block this
        process."""
        out, err = self.root / "stdout", self.root / "stderr"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout,
                                       stderr=stderr, env=environment, cwd=self.out,
                                       start_new_session=True)
            g_running.add(process.pid)
            try:
                status: int | str = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                status = f"no end within {SECONDS} s"
            finally:
                # Ends processes that the script has left in the background.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                g_running.discard(process.pid)
        if g_stopped.is_set():
            raise KeyboardInterrupt
        return status, out.read_bytes(), err.read_bytes()
