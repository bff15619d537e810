"""`cubeshim warmup` of files above CUBESHIM_MAX_FILE: the requests that reach the mount."""
import json
import os
import unittest

from test_warmup import Warmup

BLOCK = 1 << 20


class Requests(Warmup):
    def setUp(self):
        super().setUp()
        self.large = self.mount / "a/large"
        (self.source / "a/large").write_bytes(os.urandom(3 * BLOCK))
        os.utime(self.source / "a/large", (1e9, 1e9))

    def words(self, *words, **options):
        return super().words("--max-file", "1M", "--block", "1M", *words, **options)

    def requests(self, what="read"):
        counted = json.loads((self.mount / ".lagfs/counters.json").read_text())
        return counted[what]["count"]


class KernelKeepsPages(Requests):
    def test_file_is_opened_once(self):
        for engine in ("threads", "uring"):
            with self.subTest(engine):
                before = self.requests("open")
                self.assertEqual(
                    self.warmup("--io-engine", engine, self.large)[1]["fetched"], 1)
                self.assertEqual(self.requests("open") - before, 1)
                self.assertEqual(self.warmup("--evict", self.large)[0], 0)


if __name__ == "__main__":
    unittest.main()
