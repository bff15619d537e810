"""Runs the system call tests of the Linux Test Project under the library. A test that passes
natively must pass in every mode.

    suite_ltp.py --build BUILD_DIR --ltp CHECKOUT [--folders NAME ...] [--columns NAME ...] [--work
    DIR] [--jobs N]

CHECKOUT is a source tree of github.com/linux-test-project/ltp with a built
testcases/kernel/syscalls, as described there; nothing of it is part of this project. A row of the
table is a folder of testcases/kernel/syscalls; a test is a line that reports TPASS. The tests'
working directories are the prefix. Run it on a machine that you can spare, and as root, or many
tests are skipped. Exit status: 0, 1 if a pass is lost, 2 if the suite cannot run here.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import suite_report
from suite_run import COLUMNS, CannotRun, Column, Outcome, Runs

FOLDERS = (
    "access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 epoll_ctl "
    "execl execle execlp execv execve execveat execvp faccessat faccessat2 fadvise fallocate "
    "fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fpathconf "
    "fremovexattr fsetxattr fstat fstatat fstatfs fsync ftruncate futimesat getcwd getdents "
    "getxattr inotify io_submit lchown lgetxattr link linkat listxattr llistxattr llseek lseek "
    "lstat madvise memfd_create mincore mkdir mmap mprotect mremap msync munmap name_to_handle_at "
    "nftw open open_by_handle_at openat openat2 pathconf pidfd_getfd pipe poll ppoll pread preadv "
    "preadv2 pselect pwrite pwritev pwritev2 read readahead readdir readlink readlinkat readv "
    "realpath recvmsg removexattr rename renameat2 rmdir select sendfile sendmmsg sendmsg "
    "setxattr splice stat statfs statvfs statx symlink symlinkat syncfs tee truncate umask unlink "
    "unlinkat utime utimensat utimes vfork vmsplice write writev").split()
# Tests that take some minutes each; none of them reads files.
LONG = {"fork13", "rename11", "inotify09"}
COLUMNS = tuple(column for column in COLUMNS if column.name != "library")
RESULT = re.compile(r"^(\S+?):?\s+(?:\d+\s+)?(TPASS|TFAIL|TBROK|TCONF)\b")


@dataclass(frozen=True)
class LtpRuns(Runs):
    root: Path

    def commands(self, folder: str) -> list[list[str]]:
        """Returns the lines of runtest/syscalls whose program is in the folder: a name, then the
        command."""
        lines = (
            line.split() for line in (self.root / "runtest" / "syscalls").read_text().splitlines())
        return [
            line for line in lines
            if len(line) > 1 and line[0][0] != "#" and line[0] not in LONG and (self.place(folder) /
                                                                                line[1]).is_file()
        ]

    def place(self, folder: str) -> Path:
        return self.root / "testcases" / "kernel" / "syscalls" / folder

    def test(self, folder: str, column: Column, attempt: int) -> Outcome:
        all_of_it = Outcome()
        place = self.place(folder)
        more = {
            "PATH": f"{place}:{os.environ['PATH']}", "LTP_COLORIZE_OUTPUT": "n",
            "LTP_SINGLE_FS_TYPE": "ext4", "LTP_TIMEOUT_MUL": "5", "LTPROOT": str(self.root),
            "KCONFIG_SKIP_CHECK": "1"
        }
        for name, program, *arguments in self.commands(folder):
            home = self.home(f"{folder}/{name}", column, attempt)
            home.mkdir(parents=True)
            _, one = self.run(home, [str(place / program), *arguments], column, self.new_work(),
                              cwd=place, more=more)
            for line in (home / "log").read_text(errors="replace").splitlines():
                found = RESULT.match(line)
                kind = {"TPASS": all_of_it.passed, "TCONF": all_of_it.skipped}.get(
                    found[2], all_of_it.failed) if found else None
                if kind is not None:
                    kind[f"{name} {found[1]}"] += 1
            all_of_it.add(name, one)
        return all_of_it


def main() -> int:
    parser = suite_report.parser(__doc__, COLUMNS)
    parser.add_argument("--ltp", type=Path, required=True)
    parser.add_argument("--folders", nargs="+", default=FOLDERS)
    options = parser.parse_args()

    def body(library, scratch, ram, columns) -> int:
        runs = LtpRuns(library, scratch, ram, options.timeout, options.ltp.resolve())
        if not (options.ltp / "runtest" / "syscalls").is_file():
            raise CannotRun(f"{options.ltp} is not a source tree of the Linux Test Project")
        missing = [folder for folder in options.folders if not runs.commands(folder)]
        if missing:
            raise CannotRun(f"nothing has been built in {' '.join(missing)} of {runs.place('')}")
        return suite_report.compare(options.folders, runs.test, columns, options.jobs, set())

    return suite_report.main(options, COLUMNS, body)


if __name__ == "__main__":
    sys.exit(main())
