"""The targets that bench/prefetch/engines.py derives from the figures of cubeshim_engines."""

from __future__ import annotations

import unittest

import support  # noqa: F401 - the way to the modules of bench/
from bench.prefetch.engines import rows_of, targets_of

TABLE = """2000 files, 116368346 bytes, 9 rounds

| reader | files/s | against plain | CPU us/file |
| --- | --- | --- | --- |
| plain, 32 threads | 1000 (900-1100) | 1.00 (1.00-1.00) | 80 (79-81) |
| threads 32 | 950 (900-1000) | {threads} (0.90-1.00) | 80 (79-81) |
| threads 64 | 800 (700-900) | 0.80 (0.70-0.90) | 80 (79-81) |
{uring}
| auto 32 ({choice}) | 940 (900-1000) | 0.94 (0.90-1.00) | 80 (79-81) |
"""
REFUSED = "| uring 32 | refused | | |"


def targets(choice: str, threads: str = "0.95", uring: str = REFUSED) -> list[bool]:
    return [
        target.passed for target in targets_of(
            "x", rows_of(TABLE.format(choice=choice, threads=threads, uring=uring)))
    ]


class PrefetchTargets(unittest.TestCase):
    def test_the_best_of_all_depths_counts(self) -> None:
        self.assertEqual(targets("threads"), [True, True])
        self.assertEqual(targets("threads", threads="0.85"), [False, True])

    def test_auto_must_take_an_engine_near_the_better_one(self) -> None:
        fast = "| uring 32 | 1300 (1-2) | 1.30 (1.20-1.40) | 80 (79-81) |"
        self.assertEqual(targets("threads", uring=fast), [True, False])
        self.assertEqual(targets("uring", uring=fast), [True, True])
        self.assertEqual(targets("threads", uring=fast.replace("1.30 ", "1.00 ")), [True, True])

    def test_undecided_is_not_reached(self) -> None:
        self.assertEqual(targets("auto"), [True, False])


if __name__ == "__main__":
    unittest.main()
