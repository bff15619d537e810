"""Tests of train.py: two runs over the same files agree to the last bit, and other files are
detected."""

from __future__ import annotations

import json
import shutil
import tempfile
import unittest
from pathlib import Path

from support import BENCH, ScratchTest, needs, run_script


@needs("torch", "torchvision", "cv2", "PIL", "numpy")
class Train(ScratchTest):
    @classmethod
    def setUpClass(cls) -> None:
        made = tempfile.TemporaryDirectory(prefix="cubeshim-bench-test-")
        cls.addClassCleanup(made.cleanup)
        cls.made = Path(made.name, "set")
        run_script("data/make_dataset.py", cls.made, "--count", 48, "--seed", 5, "--classes",
                   4).check_returncode()

    def setUp(self) -> None:
        super().setUp()
        self.data = self.scratch / "set"
        shutil.copytree(self.made, self.data)

    def train(self, *arguments: object, data: Path | None = None, epochs: int = 2) -> list[dict]:
        result = self.scratch / "result.json"
        done = run_script("jobs/train.py", "--data", data or self.data, "--epochs", epochs,
                          "--batch-size", 16, "--json", result, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("epoch ")]
        self.assertEqual(len(lines), epochs)
        return json.loads(result.read_text())["epochs"]

    def seen(self, epochs: list[dict]) -> list[tuple]:
        return [(epoch["samples"], epoch["checksum"], epoch["loss"]) for epoch in epochs]

    def test_does_not_mention_the_library(self) -> None:
        self.assertNotIn("cubeshim", (BENCH / "jobs/train.py").read_text().lower())

    def test_same_for_another_mount_other_workers_and_persistent_ones(self) -> None:
        first = self.train()
        shutil.copytree(self.data, self.scratch / "copy")
        self.assertEqual(
            self.seen(first),
            self.seen(self.train("--workers", 3, "--persistent-workers",
                                 data=self.scratch / "copy")))
        self.assertNotEqual(first[0]["loss"], first[1]["loss"])
        self.assertEqual(
            set(first[0]),
            {"epoch", "seconds", "samples", "samples_per_s", "loss", "accuracy", "checksum"})

    def test_same_for_every_way_to_start_workers(self) -> None:
        forked = self.seen(self.train("--loader", "cv2", "--workers", 1, epochs=1))
        for context in ("spawn", "forkserver"):
            self.assertEqual(
                forked,
                self.seen(
                    self.train("--loader", "cv2", "--workers", 1, "--context", context, epochs=1)),
                context)

    def test_another_picture_or_label_changes_the_checksum(self) -> None:
        first = self.train("--no-train", "--workers", 0, epochs=1)[0]
        self.assertEqual(first["samples"], 48)
        self.assertIsNone(first["loss"])
        one, other = self.data / "class_000/img_000000.jpg", self.data / "class_001/img_000001.jpg"
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        self.assertNotEqual(first["checksum"],
                            self.train("--no-train", "--workers", 0, epochs=1)[0]["checksum"])
        other.write_bytes(kept)  # both pictures exist, each under the other's label
        self.assertNotEqual(first["checksum"],
                            self.train("--no-train", "--workers", 0, epochs=1)[0]["checksum"])

    def test_per_class_takes_the_first_of_each_class(self) -> None:
        self.assertEqual(
            self.train("--per-class", 5, "--no-train", "--workers", 0, epochs=1)[0]["samples"], 20)

    def test_missing_data_and_broken_pictures_fail_with_a_name(self) -> None:
        done = run_script("jobs/train.py", "--data", self.scratch / "nowhere")
        self.assert_one_line_error(done, 1, "nowhere")
        (self.data / "class_000/img_000000.jpg").write_bytes(b"no picture")
        done = run_script("jobs/train.py", "--data", self.data, "--loader", "cv2", "--epochs", 1)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("img_000000.jpg", done.stderr)


if __name__ == "__main__":
    unittest.main()
