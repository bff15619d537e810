"""Tests of bench/demo/demo.py: it refuses clearly if it cannot run, compares a mount of the user,
and leaves nothing behind."""

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

from support import BENCH, ScratchTest, needs, run_script

from bench.demo.data import copied
from bench.demo.runs import hit_rate_of
from bench.harness.errors import BenchError


class HitRate(ScratchTest):
    def test_is_read_from_the_last_report(self) -> None:
        stats = self.scratch / "stats.json"
        for text in ('{"hit_rate": 0.5}', '{\n "hit_rate": 0.5\n}\n',
                     '{"hit_rate": 0.1}\n{"hit_rate": 0.5}\n'):
            stats.write_text(text)
            self.assertEqual(hit_rate_of(stats), 0.5)

    def test_no_report_is_an_error(self) -> None:
        with self.assertRaisesRegex(BenchError, "not proved"):
            hit_rate_of(self.scratch / "none")


@needs("torch", "torchvision", "cv2", "PIL", "numpy", "matplotlib")
class Demo(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.build = self.scratch / "build"
        self.build.mkdir()

    def make_origin(self, count: int = 30) -> Path:
        run_script("data/make_dataset.py", self.scratch / "origin", "--count", count, "--seed", 2,
                   "--classes", 3)
        return self.scratch / "origin"

    def test_missing_parts_are_named(self) -> None:
        self.assert_one_line_error(run_script("demo/demo.py", "--build", self.build), 2,
                                   "libcubeshim.so", "make")
        (self.build / "libcubeshim.so").touch()
        self.assert_one_line_error(run_script("demo/demo.py", "--build", self.build), 2, "lagfs",
                                   "make")
        done = run_script("demo/demo.py", "--build", self.build, "--origin", self.scratch / "none")
        self.assert_one_line_error(done, 2, "none is not a directory")

    def test_compares_a_mount_of_the_users(self) -> None:
        done = run_script("demo/demo.py", "--build", self.build, "--origin", self.make_origin(),
                          "--count", 15, "--epochs", 1, "--rows", "local,slow", "--loaders", "cv2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("same data in every row: yes", done.stdout)
        self.assertTrue((self.build / "demo.png").is_file())
        rows = json.loads((self.build / "demo.json").read_text())["rows"]
        self.assertEqual([(row["key"], row["epochs"][0]["samples"]) for row in rows],
                         [("local", 15), ("slow", 15)])

    def test_library_that_does_nothing_is_detected(self) -> None:
        (self.build / "libcubeshim.so").write_bytes(b"no library")
        done = run_script("demo/demo.py", "--build", self.build, "--origin", self.make_origin(),
                          "--count", 9, "--epochs", 1, "--rows", "shim", "--loaders", "cv2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cubeshim left no report", done.stderr)

    def test_copy_that_differs_is_detected(self) -> None:
        origin = self.make_origin()
        with contextlib.redirect_stdout(io.StringIO()):
            copied(origin, self.build / "demo", 9)
        copies = sorted((self.build / "demo/copies").rglob("*.jpg"))
        self.assertEqual(len(copies), 9)
        source = next(origin.rglob(copies[0].name))
        data = bytearray(source.read_bytes())
        data[len(data) * 3 // 4] ^= 0x55
        copies[0].write_bytes(data)
        done = run_script("demo/demo.py", "--build", self.build, "--origin", origin, "--count", 9,
                          "--epochs", 1, "--rows", "local,slow", "--loaders", "cv2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("same data in every row: no", done.stdout)

    def test_an_interrupt_ends_the_job_and_all_its_workers(self) -> None:
        origin = self.make_origin()
        command = [
            sys.executable, BENCH / "demo/demo.py", "--build", self.build, "--origin", origin,
            "--epochs", "1000", "--rows", "slow", "--loaders", "cv2"
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as demo:
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
        """Returns the processes whose command line contains `directory`."""
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
