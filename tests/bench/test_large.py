"""Tests of the suites of large files: jobs with a disk on shards of some megabytes, the targets
that count as reached, and the errors that end a run."""

from __future__ import annotations

import os
import unittest
from pathlib import Path
from unittest import mock

from support import BUILD, LAGFS, ScratchTest

from bench.harness.contest import Passes
from bench.harness.errors import BenchError
from bench.harness.suite import Bench
from bench.large import disk, reads
from bench.large.disk import (BARE, FIRST, LOCAL, NO_DISK, SECOND, WAYS, Runs, measure_jobs,
                              shards_of)
from bench.large.jobs import MEGABYTE, Shards

DATA = 1_000_000
SHARD = 20 * MEGABYTE  # large enough for blocks
SHARDS = 2
LIBRARY = BUILD / "libcubeshim.so"


def runs_of(megabytes: list[float], unwritten: int = 0) -> Runs:
    runs = Runs(reports=[{"disk": {"entries": 5, "unwritten": unwritten}}])
    for epoch, found in zip(runs.epochs.megabytes, megabytes):
        epoch.append(found)
    return runs


def passes_of(name: str, us: float) -> Passes:
    return Passes(name, 1, wall_ns=[int(us * 1000)] * 5, cpu_ns=[int(us * 1000)] * 5)


class Targets(unittest.TestCase):
    def disk_targets(self, first: list[float], second: list[float]) -> list[bool]:
        return [
            target.passed
            for target in disk.targets_of({FIRST: runs_of(first), SECOND: runs_of(second)}, DATA)
        ]

    def test_second_job_is_to_read_nothing_of_the_origin(self) -> None:
        self.assertEqual(self.disk_targets([1, 0, 0], [0, 0, 0]), [True, True])
        self.assertEqual(self.disk_targets([1, 0, 0], [0.02, 0, 0]), [True, False])

    def test_first_job_is_to_read_nothing_after_its_first_epoch(self) -> None:
        for first in ([1, 0, 0.02], [1, 0.02, 0]):
            self.assertEqual(self.disk_targets(first, [0, 0, 0]), [False, True])

    def test_hits_are_compared_with_a_process_without_the_library(self) -> None:
        for size, us, reached in ((4096, 10, True), (4096, 10.1, False), (MEGABYTE, 11.5, True),
                                  (MEGABYTE, 11.6, False)):
            found = {
                reads.HIT: passes_of(reads.HIT, us), reads.BESIDE: passes_of(reads.BESIDE, 20),
                reads.WRITTEN: passes_of(reads.WRITTEN, 10), reads.READ: passes_of(reads.READ, 20)
            }
            with self.subTest(f"{size} {us}"):
                self.assertEqual(
                    [target.passed for target in reads.targets_of_present(size, found)], [reached])

    def test_one_pass_may_take_three_percent_more(self) -> None:
        for us, reached in ((103, True), (103.2, False)):
            found = {reads.BARE: passes_of(reads.BARE, 100), reads.SHIM: passes_of(reads.SHIM, us)}
            self.assertEqual([target.passed for target in reads.targets_of_once(found)], [reached])


class Digests(ScratchTest):
    def test_all_bytes_of_a_shard_count(self) -> None:
        bench = Bench(BUILD, self.scratch, quick=True)
        path = shards_of(bench, 1, 3) / "0.tar"
        before = Shards.read_shards([path])
        # The last byte of the second file, which follows two headers of 512 bytes and the padding
        # of the first file.
        with path.open("r+b") as file:
            file.seek(512 + 100_352 + 512 + 99_999)
            last = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([last[0] ^ 1]))
        self.assertNotEqual(Shards.read_shards([path]), before)


@unittest.skipUnless(LAGFS and LIBRARY.exists(),
                     "no lagfs or no library in $CUBESHIM_BUILD or build/")
class Jobs(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.bench = Bench(BUILD, self.scratch, quick=True)
        self.source = shards_of(self.bench, SHARDS, SHARD // 100_000)

    def test_each_way_reads_all_in_each_epoch(self) -> None:
        found = measure_jobs(self.bench, self.source, 4 * SHARD * SHARDS, 1)
        data = sum(shard.stat().st_size for shard in self.source.iterdir()) / 1e6
        self.assertEqual(tuple(found), WAYS)
        self.assertEqual([len(epoch) for runs in found.values() for epoch in runs.epochs.seconds],
                         [1] * 15)
        megabytes = {
            way: [round(epoch[0] / data, 2)
                  for epoch in runs.epochs.megabytes]
            for way, runs in found.items()
        }
        self.assertEqual(megabytes[LOCAL], [0, 0, 0])
        self.assertEqual(megabytes[BARE], [1, 1, 1])
        # The memory has room for all data.
        self.assertEqual(megabytes[NO_DISK], [1, 0, 0])
        self.assertEqual(megabytes[FIRST], [1, 0, 0])
        self.assertEqual([len(runs.reports) for runs in found.values()], [0, 0, 1, 1, 1])
        self.assertEqual(list(self.scratch.glob("disk-*")), [])

    def test_pages_of_the_local_disk_are_dropped_before_each_epoch(self) -> None:
        with mock.patch.object(disk, "forget_pages") as forget:
            disk.run_local(self.source, Runs())
        self.assertEqual(forget.call_args_list, [mock.call(self.source)] * 3)

    def test_second_job_has_the_disk_of_the_first_and_no_other_has_one(self) -> None:
        disks, real = [], disk.run_on_mount

        def run_on_mount(bench, source, shim, runs):
            directory = dict(shim.more).get("CUBESHIM_DISK_DIR") if shim else None
            disks.append((directory, directory is not None and any(Path(directory).iterdir())))
            return real(bench, source, shim, runs)

        with mock.patch.object(disk, "run_on_mount", run_on_mount):
            measure_jobs(self.bench, self.source, 4 * SHARD * SHARDS, 1)
        directory = disks[-1][0]
        self.assertEqual(disks, [(None, False), (None, False), (directory, False),
                                 (directory, True)])

    def test_other_bytes_in_one_way_end_the_run(self) -> None:
        real = disk.run_on_mount

        def run_on_mount(bench, source, shim, runs):
            return real(bench, source, shim, runs) + ("x" if shim else "")

        with mock.patch.object(disk, "run_on_mount",
                               run_on_mount), self.assertRaisesRegex(BenchError,
                                                                     "not the same bytes"):
            measure_jobs(self.bench, self.source, 4 * SHARD * SHARDS, 1)


PROGRAM = BUILD / "cubeshim_large_reads"


@unittest.skipUnless(LAGFS and LIBRARY.exists() and PROGRAM.exists(),
                     "no cubeshim_large_reads in $CUBESHIM_BUILD or build/")
class Reads(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.bench = Bench(BUILD, self.scratch, quick=True)
        self.file = reads.file_of(self.bench, SHARD)
        self.enterContext(mock.patch.dict(reads.READS, {size: 16 for size in reads.READS}))

    def test_all_ways_are_timed(self) -> None:
        found = reads.measure_present(self.bench, self.file, 1)
        self.assertEqual(list(found), list(reads.READS))
        for passes in found.values():
            self.assertEqual(list(passes),
                             [reads.HIT, reads.BESIDE, reads.WRITTEN, reads.READ, reads.COPY])
            self.assertTrue(all(one.wall_ns[0] > 0 for one in passes.values()))

    def test_reads_at_the_origin_do_not_count_as_hits(self) -> None:
        # Blocks are off, and the kernel forgets the pages of the mount's file.
        with mock.patch.object(reads, "BLOCKS", {"CUBESHIM_BLOCK": "0"}), mock.patch.object(
                reads, "slow_mount", lambda bench, source: bench.mount(source, direct=True)):
            with self.assertRaisesRegex(BenchError, "bytes of the origin, where all are present"):
                reads.measure_present(self.bench, self.file, 1)
        self.assertEqual([
            path.name
            for path in Path("/dev/shm").glob(f"*-bench-{os.getpid()}-*")
            if path.suffix != ".sock"
        ], [])

    def test_file_that_is_read_once_comes_from_the_origin_once(self) -> None:
        found, megabytes = reads.measure_once(self.bench, self.file, 1)
        self.assertEqual({name: round(of[0] * 1e6 / SHARD, 2) for name, of in megabytes.items()},
                         {reads.BARE: 1, reads.SHIM: 1})
        self.assertTrue(all(one.wall_ns[0] > 0 for one in found.values()))

    def test_line_that_is_not_known_ends_the_program(self) -> None:
        with self.assertRaisesRegex(BenchError, "cubeshim_large_reads ended with 1"):
            with reads.Reader(PROGRAM, [self.file]) as reader:
                reader.ask("write", 0)


if __name__ == "__main__":
    unittest.main()
