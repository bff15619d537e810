"""Tests of the table of frameworks: the case that needs no framework, from beginning to end, and
the rules that a row can break."""

from __future__ import annotations

import subprocess
import sys
import unittest

from support import BUILD, LAGFS, ROOT, ScratchTest, needs

ECOSYSTEM = ROOT / "tests" / "ecosystem"
sys.path.append(str(ECOSYSTEM))
from measure import EPOCHS, LOCAL, NATIVE, SHIM, WAYS, Found, Run  # noqa: E402
from plan import Case, all_cases  # noqa: E402
from tables import faults, verdict  # noqa: E402

CASE = Case("toy", "toy", "plain", ())


def found(shim_speed: float = 1.0, shim_bytes: int = 10,
          checksums: tuple[str, ...] = ("a",) * EPOCHS) -> Found:
    row = Found(CASE, [])
    for way in WAYS:
        speed = shim_speed if way == SHIM else 1.0
        size = shim_bytes if way == SHIM else 10
        row.runs[way].append(
            Run(list(checksums if way == SHIM else ("a",) * EPOCHS), [5] * EPOCHS, [speed] * EPOCHS,
                [1.0] * EPOCHS, [] if way == LOCAL else [1] * EPOCHS,
                [] if way == LOCAL else [size] * EPOCHS))
    return row


class Rules(unittest.TestCase):
    def test_a_row_that_keeps_them(self) -> None:
        self.assertEqual(faults(found()), [])
        self.assertEqual(faults(found(shim_speed=0.96, shim_bytes=9)), [])

    def test_each_broken_rule_is_named(self) -> None:
        self.assertEqual(faults(found(shim_speed=0.94)), ["slower than the local disk"])
        self.assertEqual(faults(found(shim_bytes=11)), ["more bytes than natively"])
        self.assertEqual(faults(found(checksums=("a", "b", "a"))), ["bytes differ"])

    def test_nothing_read_is_not_equal(self) -> None:
        row = found()
        for way in (NATIVE, SHIM, LOCAL):
            row.runs[way][0].samples = [0] * EPOCHS
        self.assertEqual(faults(row), ["bytes differ"])

    def test_a_case_that_did_not_run_keeps_none(self) -> None:
        row = Found(CASE, [], error="no wheel")
        self.assertEqual(faults(row), ["no wheel"])
        self.assertEqual(verdict([row, found()]), "1 of 2 frameworks keep all rules.")


class Cases(unittest.TestCase):
    def test_each_has_its_venv(self) -> None:
        cases = all_cases()
        self.assertGreater(len(cases), 20)
        for case in cases.values():
            self.assertTrue((ECOSYSTEM / "venvs" / f"{case.venv}.txt").is_file(), case.venv)
            self.assertIn(case.data or case.name, cases)


@needs("cv2", "numpy")
@unittest.skipUnless(LAGFS, "this build has no lagfs")
class EndToEnd(ScratchTest):
    def run_table(self, *arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([
            sys.executable,
            str(ECOSYSTEM / "run.py"), "--build",
            str(BUILD), "--work",
            str(self.scratch), *map(str, arguments)
        ], capture_output=True, text=True, timeout=300)

    def test_plain_reads(self) -> None:
        out = self.scratch / "page.md"
        done = self.run_table("--only", "plain_read", "--rounds", 1, "--pictures", 60, "--out", out)
        # Speed depends on the machine, so a run may report 1, which means that a rule was broken.
        self.assertIn(done.returncode, (0, 1), done.stderr)
        page = out.read_text()
        rows = [
            line.split(" | ")
            for line in page.splitlines()
            if line.startswith("| Python open().read()")
        ]
        self.assertEqual(len(rows), 2, page)
        self.assertEqual(rows[0][2], "equal")
        self.assertEqual(rows[1][1], "60")
        # Each native epoch asks the origin; under the library, only the first epoch does.
        native, shim = rows[1][3].split(" / "), rows[1][4].split(" / ")
        self.assertTrue(all(int(count) >= 60 for count in native), page)
        self.assertEqual(shim[1:], ["0", "0"], page)
        self.assertNotIn("more bytes", page)

    def test_unknown_case_is_reported_in_one_line(self) -> None:
        done = self.run_table("--only", "torch9")
        self.assert_one_line_error(done, 2, "--only torch9", "plain_read")


if __name__ == "__main__":
    unittest.main()
