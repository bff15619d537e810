"""Runs pjdfstest, a suite that tests the rules of POSIX on names and rights, under the library. A
test that passes natively must pass in every mode.

    suite_pjdfstest.py --build BUILD_DIR --pjdfstest CHECKOUT [--folders NAME ...] [--columns NAME
    ...] [--work DIR]

CHECKOUT is a source tree of github.com/pjd/pjdfstest with its program built, as described there;
nothing of it is part of this project. A row of the table is a folder of its tests; a test is a line
that says "ok". The working directory is the prefix. Each step is a separate process. The script
that starts the steps keeps the cache between them. Must be run as root. Exit status: 0, 1 if a pass
is lost, 2 if the suite cannot run here.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import suite_report
from suite_run import COLUMNS, CannotRun, Column, Outcome, Runs

COLUMNS = tuple(column for column in COLUMNS if column.name in ("off", "real", "virtual"))
RESULT = re.compile(r"^(not ok|ok) (\d+)")


@dataclass(frozen=True)
class PjdRuns(Runs):
    root: Path

    def test(self, folder: str, column: Column, attempt: int) -> Outcome:
        all_of_it = Outcome()
        for script in sorted((self.root / "tests" / folder).glob("*.t")):
            home = self.home(f"{folder}/{script.stem}", column, attempt)
            home.mkdir(parents=True)
            work = self.new_work()
            _, one = self.run(home, ["/bin/sh", str(script)], column, work, cwd=work)
            for line in (home / "log").read_text(errors="replace").splitlines():
                if found := RESULT.match(line):
                    kind = all_of_it.passed if found[1] == "ok" else all_of_it.failed
                    kind[f"{folder}/{script.stem} {found[2]}"] += 1
            all_of_it.add(script.stem, one)
        return all_of_it


def main() -> int:
    parser = suite_report.parser(__doc__, COLUMNS)
    parser.add_argument("--pjdfstest", type=Path, required=True)
    parser.add_argument("--folders", nargs="+")
    options = parser.parse_args()
    root = options.pjdfstest.resolve()
    folders = options.folders or sorted({script.parent.name for script in root.glob("tests/*/*.t")})

    def body(library, scratch, ram, columns) -> int:
        if not folders or not (root / "pjdfstest").is_file():
            raise CannotRun(
                f"{root} is not a source tree of pjdfstest, or its program has not been built")
        runs = PjdRuns(library, scratch, ram, options.timeout, root)
        return suite_report.compare(folders, runs.test, columns, options.jobs, set())

    return suite_report.main(options, COLUMNS, body)


if __name__ == "__main__":
    sys.exit(main())
