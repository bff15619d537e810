"""Tests of bench/harness: the slow mount and its counters, the load on the cores, children, and the
order in which they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from support import LAGFS, ScratchTest, run_script

from bench.harness.contest import in_turn
from bench.harness.errors import BenchError
from bench.harness.load import TICKS, Load, machine_seconds, own_seconds, process_seconds
from bench.harness.mount import (SlowMount, check_fuse, count_data_operations, file_system_of,
                                 is_mounted, mount_point)
from bench.harness.shim import Shim, child_environment, exit_report


class Counters(unittest.TestCase):
    def test_data_files_are_summed_without_total_and_closes(self) -> None:
        rows = {
            name: {"count": 9, "errors": 0, "data_files": files, "other": 9 - files}
            for name, files in (("open", 3), ("read", 4), ("release", 5), ("total", 12))
        }
        self.assertEqual(count_data_operations({**rows, "forget": 8}), 7)

    def test_mount_points_are_unescaped(self) -> None:
        self.assertEqual(mount_point("lagfs /mnt/a\\040b/\u00e4 fuse.lagfs rw 0 0"),
                         "/mnt/a b/\u00e4")
        self.assertTrue(is_mounted(Path("/")))


class Machine(ScratchTest):
    def test_missing_and_closed_fuse_name_the_way_out(self) -> None:
        for device in (self.scratch / "fuse", self.scratch):
            with self.assertRaisesRegex(BenchError, "make demo ORIGIN=/mnt/x"):
                check_fuse(str(device))

    def test_file_system_of_the_longest_mount_point(self) -> None:
        mounts = self.scratch / "mounts"
        mounts.write_text("a / ext4 rw 0 0\nb /mnt nfs rw 0 0\nc /mnt/x\\040y nfs4 rw 0 0\n")
        for path, kind in (("/mnt/x y/z", "nfs4"), ("/mnt/x", "nfs"), ("/mntx", "ext4")):
            self.assertEqual(file_system_of(Path(path), mounts), kind)


class OtherWork(ScratchTest):
    def test_own_work_is_not_counted_as_that_of_others(self) -> None:
        before = own_seconds()
        subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
        self.assertGreater(own_seconds(), before)
        self.assertGreater(machine_seconds(), before)
        self.assertEqual(process_seconds(2**30), 0.0)
        self.assertTrue(0.0 <= Load().share_of_others() <= 1.0)

    def test_busy_columns_are_summed(self) -> None:
        stat = self.scratch / "stat"
        stat.write_text("cpu  100 200 300 9999 9999 10 20 30 77 77\ncpu0 1 1\n")
        self.assertAlmostEqual(machine_seconds(stat), 660 / TICKS)


class Shimmed(ScratchTest):
    def test_cubeshim_settings_do_not_reach_a_child(self) -> None:
        os.environ["CUBESHIM_DISK"] = "1G"
        self.addCleanup(os.environ.pop, "CUBESHIM_DISK")
        shim = Shim(Path("/lib.so"), Path("/data"), "name", ram=None, mode=None)
        self.assertNotIn("CUBESHIM_DISK", child_environment(None))
        self.assertEqual({name for name in child_environment(shim) if name.startswith("CUBESHIM_")},
                         {
                             "CUBESHIM_PREFIXES", "CUBESHIM_NAME", "CUBESHIM_ANNOUNCE",
                             "CUBESHIM_STATS", "CUBESHIM_STATS_FORMAT"
                         })

    def test_last_report_is_read_and_its_file_removed(self) -> None:
        stats = self.scratch / "stats"
        for text in ('{"n": 2}', '{"n": 1}\n{"n": 2}\n', json.dumps({"n": 2}, indent=1)):
            stats.write_text(text)
            self.assertEqual(exit_report(stats), {"n": 2})
            self.assertFalse(stats.exists())


class Turns(unittest.TestCase):
    def test_each_round_begins_with_another_one(self) -> None:
        self.assertEqual([in_turn("abc", number) for number in range(4)],
                         [list("abc"), list("bca"),
                          list("cab"), list("abc")])


class Scripts(unittest.TestCase):
    def test_each_one_that_is_started_directly_finds_its_modules(self) -> None:
        for script in ("run_bench.py", "demo/demo.py", "data/make_dataset.py", "jobs/loaders.py",
                       "origin/large_files.py"):
            with self.subTest(script):
                self.assertEqual(run_script(script, "--help").returncode, 0)


@unittest.skipUnless(LAGFS and os.path.exists("/dev/fuse"),
                     "no lagfs in $CUBESHIM_BUILD or build/, or no /dev/fuse")
class Mount(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        (self.scratch / "source").mkdir()
        (self.scratch / "source/file").write_bytes(b"x" * 5000)
        self.mount = SlowMount(LAGFS, self.scratch / "source", self.scratch, 100)

    def assert_nothing_left(self) -> None:
        self.assertEqual(os.listdir(self.scratch), ["source"])
        self.assertIsNotNone(self.mount.process.poll())

    def test_shows_the_source_counts_and_unmounts(self) -> None:
        with self.mount as mount:
            mount.reset()
            self.assertEqual(mount.data_operations(), 0)
            self.assertEqual((mount.path / "file").read_bytes(), b"x" * 5000)
            self.assertGreaterEqual(mount.data_operations(), 3)
        self.assert_nothing_left()

    def test_unmounts_after_an_error_and_with_an_open_file(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.mount as mount:
                user = subprocess.Popen(["sleep", "1"], cwd=mount.path)
                raise ZeroDivisionError
        user.wait()
        self.assert_nothing_left()

    def test_unmounts_after_lagfs_was_killed(self) -> None:
        with self.mount as mount:
            mount.process.kill()
            mount.process.wait()
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
