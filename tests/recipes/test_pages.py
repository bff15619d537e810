"""Tests the form of the recipes, and the parser of their promises."""

from __future__ import annotations

import unittest

from page import PAGES, ROOT, all_pages, page, pattern
from run import share_of_hits

REPORT = ("cubeshim: served: 360 file opens, 4.5 MiB read or mapped: 353 from memory (101 of them "
          "fetched ahead), "
          "5 from the disk, 2 from the mount\n")


class Form(unittest.TestCase):

    def test_each_fits_a_screen_and_has_its_parts(self):
        for found in all_pages():
            with self.subTest(found.name):
                text = (PAGES / f"{found.name}.md").read_text()
                self.assertLessEqual(found.lines, 40)
                self.assertTrue(found.script and found.expected or "by" in found.needs)
                for part in ("Pitfall: ", "Measured"):
                    self.assertIn(part, text)

    def test_the_index_and_the_site_have_each(self):
        index = (PAGES / "index.md").read_text()
        site = (ROOT / "packaging" / "mkdocs.yml").read_text()
        for found in all_pages():
            self.assertIn(f"({found.name}.md)", index)
            self.assertIn(f"doc/recipes/{found.name}.md\n", site)


class Promises(unittest.TestCase):

    def test_a_number_stands_for_any(self):
        line = pattern("epoch 3: 0.42 s, 120 images")
        self.assertTrue(line.search("epoch 3: 12.5 s, 1,200 images"))
        self.assertFalse(line.search("epoch 3: 12.5 s, no images"))

    def test_a_missing_line_is_reported(self):
        found = page("torchvision")
        self.assertEqual(found.missing("nothing"), found.expected)

    def test_hits_are_those_of_memory_and_disk_over_all_opens(self):
        self.assertAlmostEqual(share_of_hits(REPORT), 100 * 358 / 360)
        self.assertEqual(share_of_hits("no report"), 0)


if __name__ == "__main__":
    unittest.main()
