"""Tests of make_dataset.py: it makes the same bytes for the same arguments, the promised sizes and
real pictures, and overwrites nothing."""

from __future__ import annotations

import hashlib
import json
import os
import unittest
from pathlib import Path

from support import ScratchTest, needs, run_script


def files_of(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*.jpg"))
    }


@needs("cv2", "numpy", "PIL")
class MakeDataset(ScratchTest):
    def make(self, directory: Path, count: int = 24, seed: int = 3, **options: int):
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return run_script("data/make_dataset.py", directory, "--count", count, "--seed", seed,
                          *words)

    def test_same_arguments_give_same_bytes_with_any_number_of_jobs(self) -> None:
        for name, jobs in (("one", 1), ("two", 2)):
            self.assertEqual(self.make(self.scratch / name, jobs=jobs).returncode, 0)
        one = files_of(self.scratch / "one")
        self.assertEqual(len(one), 24)
        self.assertEqual(one, files_of(self.scratch / "two"))

    def test_another_seed_gives_other_bytes(self) -> None:
        self.make(self.scratch / "one", seed=1)
        self.make(self.scratch / "two", seed=2)
        one, two = files_of(self.scratch / "one"), files_of(self.scratch / "two")
        self.assertEqual(one.keys(), two.keys())
        self.assertFalse(set(one.values()) & set(two.values()))

    def test_sizes_are_spread_like_imagenet(self) -> None:
        from bench.data.synthetic_images import BUCKETS, bucket_of

        self.make(self.scratch / "set", count=200)
        sizes = [file.stat().st_size for file in (self.scratch / "set").rglob("*.jpg")]
        labels = [bucket_of(size).label for size in sizes]
        for bucket in BUCKETS:
            self.assertAlmostEqual(
                labels.count(bucket.label) / 200, bucket.share, delta=0.006, msg=bucket.label)
        self.assertTrue(52_000 < sum(sizes) / 200 < 66_000, sum(sizes) / 200)

    def test_every_file_decodes_with_both_libraries(self) -> None:
        import cv2
        from PIL import Image

        self.make(self.scratch / "set", count=40)
        for file in (self.scratch / "set").rglob("*.jpg"):
            picture = cv2.imread(str(file))
            self.assertIsNotNone(picture, file)
            with Image.open(file) as other:
                other.load()
                self.assertEqual(other.size, picture.shape[1::-1])
            self.assertGreater(picture.std(), 5.0)

    def test_layout_and_manifest(self) -> None:
        done = self.make(self.scratch / "set", count=7, classes=3)
        self.assertRegex(done.stdout,
                         r"^\S+: 7 files, \d+ bytes, mean \d+\.\d KB, made in \d+\.\d s\n$")
        self.assertEqual(sorted(os.listdir(self.scratch / "set")),
                         [".dataset.json", "class_000", "class_001", "class_002"])
        self.assertTrue((self.scratch / "set/class_001/img_000004.jpg").is_file())
        manifest = json.loads((self.scratch / "set/.dataset.json").read_text())
        self.assertEqual(manifest["bytes"],
                         sum(f.stat().st_size for f in (self.scratch / "set").rglob("*.jpg")))
        self.assertEqual(sum(manifest["histogram"].values()), 7)

    def test_second_run_does_nothing(self) -> None:
        self.make(self.scratch / "set", count=20)
        before = {file: file.stat().st_mtime_ns for file in self.scratch.rglob("*")}
        self.assertIn("already there", self.make(self.scratch / "set", count=20).stdout)
        self.assertEqual(before,
                         {file: file.stat().st_mtime_ns for file in self.scratch.rglob("*")})

    def test_lost_and_cut_files_are_made_again(self) -> None:
        self.make(self.scratch / "set", count=20)
        whole = files_of(self.scratch / "set")
        (self.scratch / "set/class_003/img_000003.jpg").unlink()
        os.truncate(self.scratch / "set/class_004/img_000004.jpg", 100)
        self.assertIn("made in", self.make(self.scratch / "set", count=20).stdout)
        self.assertEqual(whole, files_of(self.scratch / "set"))

    def test_refuses_a_directory_of_something_else(self) -> None:
        (self.scratch / "thesis.txt").write_text("mine")
        self.assert_one_line_error(self.make(self.scratch), 2, "not empty", str(self.scratch))
        self.assertEqual(os.listdir(self.scratch), ["thesis.txt"])

    def test_refuses_a_generated_set_with_other_arguments(self) -> None:
        self.make(self.scratch / "set", count=20, seed=1)
        before = files_of(self.scratch / "set")
        self.assert_one_line_error(self.make(self.scratch / "set", count=21, seed=1), 2,
                                   "count 20, seed 1")
        self.assertEqual(before, files_of(self.scratch / "set"))

    def test_refuses_a_file_and_a_foreign_manifest(self) -> None:
        (self.scratch / "file").write_text("x")
        self.assert_one_line_error(self.make(self.scratch / "file"), 2, "not a directory")
        (self.scratch / "set").mkdir()
        (self.scratch / "set/.dataset.json").write_text("[1, 2]")
        self.assert_one_line_error(self.make(self.scratch / "set"), 2, "not a manifest of ours")

    def test_wrong_arguments_exit_2(self) -> None:
        for count, options in ((5, {"classes": 6}), (0, {}), (5, {"jobs": 0, "classes": 1})):
            self.assertEqual(self.make(self.scratch / "set", count=count, **options).returncode, 2)
        self.assertFalse((self.scratch / "set").exists())


class WithoutModules(ScratchTest):
    """A Python that has neither cv2 nor numpy."""
    def run_without(self, *words: object):
        hidden = self.scratch / "hidden"
        hidden.mkdir()
        for name in ("cv2", "numpy"):
            (hidden /
             f"{name}.py").write_text(f"raise ModuleNotFoundError('hidden', name='{name}')\n")
        return run_script("data/make_dataset.py", *words, PYTHONPATH=str(hidden))

    def test_help_needs_neither(self) -> None:
        done = self.run_without("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--count", done.stdout)

    def test_the_missing_module_is_named(self) -> None:
        self.assert_one_line_error(
            self.run_without(self.scratch / "set", "--count", 20, "--seed", 1), 2, "no module cv2",
            "install")
        self.assertFalse((self.scratch / "set").exists())


if __name__ == "__main__":
    unittest.main()
