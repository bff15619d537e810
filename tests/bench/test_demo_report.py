"""Tests of bench/demo/report.py: rows are compared only if they read the same data, and the table
and the chart have the right contents."""

from __future__ import annotations

import unittest

from support import ScratchTest, needs

from bench.demo.report import Row, Setting, aligned, differences, draw, table

SETTING = Setting("Abacus 3000", 2, "FUSE, 300 us for each open", "100 JPEGs, mean 60 KB")


def epochs(*rates: float, checksum: str = "aa", loss: float = 0.5) -> list[dict]:
    return [{
        "epoch": n, "seconds": 100 / rate, "samples": 100, "samples_per_s": rate, "loss": loss,
        "accuracy": 0.1, "checksum": checksum
    } for n, rate in enumerate(rates, 1)]


def some_rows(loader: str = "cv2") -> list[Row]:
    return [
        Row("local", "local disk", loader, 2, epochs(100, 200)),
        Row("slow", "slow mount", loader, 2, epochs(50, 40), [400, 400]),
        Row("shim", "slow mount + cubeshim", loader, 2, epochs(60, 220), [400, 0], 0.6667)
    ]


class Differences(unittest.TestCase):
    def test_none_where_all_is_the_same(self) -> None:
        self.assertEqual(differences(some_rows() + some_rows("pil")), [])

    def test_checksum_and_loss_are_both_looked_at(self) -> None:
        for bad in (epochs(10, 10, checksum="bb"), epochs(10, 10, loss=0.5000001)):
            found = differences([*some_rows(), Row("slow8", "eight", "cv2", 8, bad)])
            self.assertEqual(len(found), 2)
            self.assertIn('row "eight"', found[0])

    def test_loaders_are_not_compared_with_each_other(self) -> None:
        other = Row("local", "local disk", "pil", 2, epochs(100, checksum="cc", loss=0.7))
        self.assertEqual(differences([*some_rows(), other]), [])

    def test_row_with_fewer_epochs_is_compared_up_to_its_last(self) -> None:
        self.assertEqual(differences([*some_rows(),
                                      Row("slow8", "eight", "cv2", 8, epochs(10))]), [])


class Table(unittest.TestCase):
    def test_holds_speeds_ratios_hit_rate_and_operations(self) -> None:
        lines = {
            line.split("  ")[0]: " ".join(line.split())
            for line in table(some_rows(), SETTING).splitlines()
        }
        self.assertEqual(
            lines["slow mount + cubeshim"],
            "slow mount + cubeshim 60 (1.67) 220 (0.45) 0.60 / 1.10 1.20 / 5.50 - 66.7% 400 / 0")
        self.assertEqual(lines["local disk"],
                         "local disk 100 (1.00) 200 (0.50) 1.00 / 1.00 2.00 / 5.00 - - -")
        self.assertIn("Abacus 3000, 2 cores", lines["machine"])

    def test_missing_rows_and_epochs_are_dashes(self) -> None:
        rows = [some_rows()[2], Row("slow8", "eight", "cv2", 8, epochs(10))]
        lines = [" ".join(line.split()) for line in table(rows, SETTING).splitlines()]
        self.assertIn("eight 10 (10.00) - - - 1.00 / 1.00 - -", lines)

    def test_rows_on_a_busy_machine_are_marked(self) -> None:
        rows = some_rows()
        self.assertNotIn("*", table(rows, SETTING))
        rows[1].others_cpu = 0.42
        self.assertIn("slow mount *  ", table(rows, SETTING))
        self.assertIn("up to 42%", table(rows, SETTING))

    def test_columns_line_up(self) -> None:
        lines = aligned([["row", "n"], ["a", "1"], ["longer", "1000"]])
        self.assertEqual(lines, ["row        n", "------------", "a          1", "longer  1000"])


@needs("matplotlib")
class Chart(ScratchTest):
    def test_is_a_png_for_one_and_two_loaders(self) -> None:
        for rows in (some_rows(), some_rows() + some_rows("pil")):
            draw(rows, SETTING, self.scratch / "chart.png")
            self.assertEqual((self.scratch / "chart.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")


if __name__ == "__main__":
    unittest.main()
