"""demo.py: refuses clearly where it cannot run, compares a mount of the user's, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from support import BENCH, LAGFS, ScratchTest, needs, run_script

import demo_data
import demo_load
import demo_mount
import demo_runs
from demo_mount import DemoError


class Counters(unittest.TestCase):
    def test_data_files_are_summed_without_total_and_closes(self) -> None:
        rows = {name: {"count": 9, "errors": 0, "data_files": files, "other": 9 - files}
                for name, files in (("open", 3), ("read", 4), ("release", 5), ("total", 12))}
        self.assertEqual(demo_mount.count_data_operations({**rows, "forget": 8}), 7)

    def test_mount_points_are_unescaped(self) -> None:
        self.assertEqual(demo_mount.mount_point("lagfs /mnt/a\\040b/\u00e4 fuse.lagfs rw 0 0"), "/mnt/a b/\u00e4")
        self.assertTrue(demo_mount.is_mounted(Path("/")))


class Machine(ScratchTest):
    def test_missing_and_closed_fuse_name_the_way_out(self) -> None:
        for device in (self.scratch / "fuse", self.scratch):
            with self.assertRaisesRegex(DemoError, "make demo ORIGIN=/mnt/x"):
                demo_mount.check_fuse(str(device))

    def test_filesystem_of_the_longest_mount_point(self) -> None:
        mounts = self.scratch / "mounts"
        mounts.write_text("a / ext4 rw 0 0\nb /mnt nfs rw 0 0\nc /mnt/x\\040y nfs4 rw 0 0\n")
        for path, kind in (("/mnt/x y/z", "nfs4"), ("/mnt/x", "nfs"), ("/mntx", "ext4")):
            self.assertEqual(demo_data.filesystem_of(Path(path), mounts), kind)


class Load(ScratchTest):
    def test_own_work_is_not_that_of_others(self) -> None:
        before = demo_load.own_seconds()
        subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
        self.assertGreater(demo_load.own_seconds(), before)
        self.assertGreater(demo_load.machine_seconds(), before)
        self.assertEqual(demo_load.process_seconds(2**30), 0.0)
        self.assertTrue(0.0 <= demo_load.Load().share_of_others() <= 1.0)

    def test_busy_columns_are_summed(self) -> None:
        stat = self.scratch / "stat"
        stat.write_text("cpu  100 200 300 9999 9999 10 20 30 77 77\ncpu0 1 1\n")
        self.assertAlmostEqual(demo_load.machine_seconds(stat), 660 / demo_load.TICKS)


@unittest.skipUnless(LAGFS and os.path.exists("/dev/fuse"), "no lagfs in $CUBESHIM_BUILD or build/, or no /dev/fuse")
class Mount(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        (self.scratch / "source").mkdir()
        (self.scratch / "source/file").write_bytes(b"x" * 5000)
        self.mount = demo_mount.SlowMount(LAGFS, self.scratch / "source", self.scratch, 100)

    def assert_nothing_left(self) -> None:
        self.assertEqual(os.listdir(self.scratch), ["source"])
        self.assertIsNotNone(self.mount.process.poll())

    def test_shows_the_source_counts_and_goes_away(self) -> None:
        with self.mount as mount:
            mount.reset()
            self.assertEqual(mount.data_operations(), 0)
            self.assertEqual((mount.path / "file").read_bytes(), b"x" * 5000)
            self.assertGreaterEqual(mount.data_operations(), 3)
        self.assert_nothing_left()

    def test_goes_away_after_an_error_and_with_an_open_file(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.mount as mount:
                user = subprocess.Popen(["sleep", "1"], cwd=mount.path)
                raise ZeroDivisionError
        user.wait()
        self.assert_nothing_left()

    def test_goes_away_when_lagfs_was_killed(self) -> None:
        with self.mount as mount:
            mount.process.kill()
            mount.process.wait()
        self.assert_nothing_left()


class HitRate(ScratchTest):
    def test_is_read_from_the_last_report(self) -> None:
        stats = self.scratch / "stats.json"
        for text in ('{"hit_rate": 0.5}', '{\n "hit_rate": 0.5\n}\n', '{"hit_rate": 0.1}\n{"hit_rate": 0.5}\n'):
            stats.write_text(text)
            self.assertEqual(demo_runs.hit_rate_of(stats), 0.5)

    def test_no_report_is_an_error(self) -> None:
        with self.assertRaisesRegex(DemoError, "not proved"):
            demo_runs.hit_rate_of(self.scratch / "none")


@needs("torch", "torchvision", "cv2", "PIL", "numpy", "matplotlib")
class Demo(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.build = self.scratch / "build"
        self.build.mkdir()

    def make_origin(self, count: int = 30) -> Path:
        run_script("make_dataset.py", self.scratch / "origin", "--count", count, "--seed", 2, "--classes", 3)
        return self.scratch / "origin"

    def test_missing_parts_are_named(self) -> None:
        self.assert_one_line_error(run_script("demo.py", "--build", self.build), 2, "libcubeshim.so", "make")
        (self.build / "libcubeshim.so").touch()
        self.assert_one_line_error(run_script("demo.py", "--build", self.build), 2, "lagfs", "make")
        done = run_script("demo.py", "--build", self.build, "--origin", self.scratch / "none")
        self.assert_one_line_error(done, 2, "none is not a directory")

    def test_compares_a_mount_of_the_users(self) -> None:
        done = run_script("demo.py", "--build", self.build, "--origin", self.make_origin(), "--count", 15, "--epochs", 1,
                          "--rows", "local,slow", "--loaders", "cv2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("same data in every row: yes", done.stdout)
        self.assertTrue((self.build / "demo.png").is_file())
        rows = json.loads((self.build / "demo.json").read_text())["rows"]
        self.assertEqual([(row["key"], row["epochs"][0]["samples"]) for row in rows], [("local", 15), ("slow", 15)])

    def test_a_library_that_does_nothing_is_found_out(self) -> None:
        (self.build / "libcubeshim.so").write_bytes(b"no library")
        done = run_script("demo.py", "--build", self.build, "--origin", self.make_origin(), "--count", 9, "--epochs", 1,
                          "--rows", "shim", "--loaders", "cv2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cubeshim left no report", done.stderr)

    def test_a_copy_that_differs_is_found_out(self) -> None:
        origin = self.make_origin()
        with contextlib.redirect_stdout(io.StringIO()):
            demo_data.copied(origin, self.build / "demo", 9)
        copies = sorted((self.build / "demo/copies").rglob("*.jpg"))
        self.assertEqual(len(copies), 9)
        source = next(origin.rglob(copies[0].name))
        data = bytearray(source.read_bytes())
        data[len(data) * 3 // 4] ^= 0x55
        copies[0].write_bytes(data)
        done = run_script("demo.py", "--build", self.build, "--origin", origin, "--count", 9, "--epochs", 1,
                          "--rows", "local,slow", "--loaders", "cv2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("same data in every row: no", done.stdout)

    def test_an_interrupt_ends_the_job_and_all_its_workers(self) -> None:
        origin = self.make_origin()
        command = [sys.executable, BENCH / "demo.py", "--build", self.build, "--origin", origin, "--epochs", "1000",
                   "--rows", "slow", "--loaders", "cv2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
            for line in demo.stdout:
                if "epoch 1 " in line:
                    break
            demo.send_signal(signal.SIGTERM)
            self.assertEqual(demo.wait(30), 130, demo.stderr.read())
        deadline = time.monotonic() + 5
        while self.users_of(origin) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.users_of(origin), [])
        self.assertEqual([name for name in os.listdir(self.build / "demo") if name != "copies"], [])

    def users_of(self, directory: Path) -> list[str]:
        """Processes that name `directory` on their command line."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.fsencode(directory) in (process / "cmdline").read_bytes():
                    found.append(process.name)
            except OSError:
                pass
        return found


if __name__ == "__main__":
    unittest.main()
