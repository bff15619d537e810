"""The slow mount: starts and ends lagfs, a FUSE mount with a configured latency, and reads its
counters.

lagfs counts every operation that reaches it in MNT/.lagfs/counters.json, separately for data files
and for everything else. Reading that file costs and counts nothing, so it can be read while a job
runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.load import process_seconds

START_SECONDS = 15.0
STOP_SECONDS = 5.0
DELAYED = ("lookup", "open", "read", "getattr")
# The rows that are not counted: the sum, and the operations that lagfs answers without latency.
NOT_COUNTED = {
    "total", "release", "releasedir", "flush", "forget", "forget_multi", "batch_forget", "init",
    "destroy"
}


def check_fuse(device: str = "/dev/fuse") -> None:
    """Raises BenchError, with advice, if this machine cannot mount a FUSE file system."""
    way_out = ("point the demo at a slow mount of your own that holds class folders: "
               "make demo ORIGIN=/mnt/x")
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        raise BenchError(
            f"{device} is missing here, so there is no slow mount to show; {way_out}") from None
    except OSError as error:
        raise BenchError(f"{device} cannot be opened ({error.strerror}); {way_out}") from None


@dataclass
class SlowMount:
    """`with SlowMount(...) as mount:` mounts `source` at a fresh directory below `work`, and cleans
    up at the end."""

    lagfs: Path
    source: Path
    work: Path
    latency_us: int  # the latency of each operation in DELAYED
    direct: bool = False  # without a page cache
    bandwidth_mb: int = 0  # per second, over all reads; 0: no limit
    keeps_names: bool = True  # the kernel keeps names, with their stats, for 1 s
    keeps_pages: bool = False  # the kernel keeps a file's pages after its last close
    keeps_locks: bool = False  # lagfs, not the kernel, keeps POSIX locks
    at: Path | None = None  # the mount point, to mount again in the same place
    path: Path = field(default=Path(), init=False)
    process: subprocess.Popen | None = field(default=None, init=False)

    def __enter__(self) -> SlowMount:
        if not os.access(self.lagfs, os.X_OK):
            raise BenchError(f"{self.lagfs} is missing: build it first with make")
        check_fuse()
        self.path = self.at or Path(tempfile.mkdtemp(prefix="mount-", dir=self.work))
        self.path.mkdir(exist_ok=True)
        try:
            # lagfs has its own session: Ctrl-C must end only the caller, which then unmounts, and
            # not lagfs while the job uses it.
            self.process = subprocess.Popen(
                [self.lagfs, "--foreground", *self._options(), self.source, self.path],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
            self._wait_until_mounted()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _options(self) -> list[str]:
        delays = [word for name in DELAYED for word in (f"--{name}-us", str(self.latency_us))]
        bandwidth = ["--bandwidth-mb", str(self.bandwidth_mb)] if self.bandwidth_mb else []
        timeouts = [] if self.keeps_names else ["--attr-timeout", "0", "--entry-timeout", "0"]
        flags = [
            *(["--direct"] if self.direct else []), *(["--own-locks"] if self.keeps_locks else []),
            *(["--keep-cache"] if self.keeps_pages else [])
        ]
        return [*flags, *delays, *bandwidth, *timeouts]

    def _wait_until_mounted(self) -> None:
        if not comes_up(lambda: is_mounted(self.path), self.process):
            status = self.process.poll()
            raise BenchError(
                f"lagfs did not mount {self.path} within {START_SECONDS:.0f} s" if status is
                None else f"lagfs could not mount {self.path} (exit {status})")

    def __exit__(self, *_: object) -> None:
        if self.path != Path():
            unmount(self.path)
        if self.process:
            end(self.process)
        if self.path != Path() and not is_mounted(self.path):
            self.path.rmdir()

    def reset(self) -> None:
        (self.path / ".lagfs" / "reset").write_text("1\n")

    def cpu_seconds(self) -> float:
        """Returns the CPU seconds that the mount's server has used so far."""
        return process_seconds(self.process.pid)

    def counters(self) -> dict:
        return json.loads((self.path / ".lagfs" / "counters.json").read_text())

    def data_operations(self) -> int:
        return count_data_operations(self.counters())

    def on_data(self, operation: str) -> int:
        return self.counters().get(operation, {}).get("data_files", 0)

    def bytes_read(self) -> int:
        return self.counters()["read"]["bytes"]


def count_data_operations(counters: dict) -> int:
    """Returns the number of operations on data files that wait for the origin, from {"open":
    {"count": 3, "data_files": 2, ...}, ...}."""
    return sum(row["data_files"]
               for name, row in counters.items()
               if isinstance(row, dict) and name not in NOT_COUNTED)


def is_mounted(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Returns True if `path` is a mount point. Reads the table of mounts, because calls on `path`
    itself fail after the death of lagfs."""
    return any(
        mount_point(line) == str(path)
        for line in mounts.read_text(errors="surrogateescape").splitlines())


def mount_point(line: str) -> str:
    """Returns the mount point in a line of /proc/self/mounts. Spaces and similar characters are
    octal escapes there."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), line.split()[1])


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Returns the kernel's name for the type of the file system that contains `path`."""
    kind, longest = "unknown", -1
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        point = mount_point(line)
        if path.is_relative_to(point) and len(point) >= longest:
            kind, longest = line.split()[2], len(point)
    return kind


def comes_up(ready: Callable[[], bool], server: subprocess.Popen) -> bool:
    """Waits until the server is ready. Returns False if it has ended, or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if server.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def unmount(path: Path) -> None:
    """Unmounts `path`: waits for its last users, then detaches the mount from any that remain."""
    tool = shutil.which("fusermount3") or shutil.which("fusermount")
    plain, lazy = ([tool, "-u"], [tool, "-uz"]) if tool else (["umount"], ["umount", "-l"])
    deadline = time.monotonic() + STOP_SECONDS
    while is_mounted(path):
        command = plain if time.monotonic() < deadline else lazy
        subprocess.run([*command, path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if command is lazy:
            break
        if is_mounted(path):
            time.sleep(0.1)


def end(process: subprocess.Popen, first_wait: float = 0.5) -> None:
    """Ends a process that this program has started. First waits for the process to end; then sends
    SIGTERM, and gives the process time to end its children; at last sends SIGKILL to the whole
    session that the process leads."""
    for send in (None, process.terminate, lambda: os.killpg(process.pid, signal.SIGKILL)):
        try:
            if send:
                send()
            process.wait(STOP_SECONDS if send else first_wait)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass
