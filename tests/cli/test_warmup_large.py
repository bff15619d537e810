"""`cubeshim warmup` of files above CUBESHIM_MAX_FILE. Checks the requests that reach the mount."""
import json
import os
import time
import unittest

from test_warmup import Warmup

BLOCK = 1 << 20
DEADLINE_S = 60


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

    def load_a_block(self, *words):
        self.assertEqual(self.warmup(f"{self.large}@1M+1M", *words)[1]["fetched"], 1)


class KernelKeepsPages(Requests):
    def test_all_parts_of_a_block_are_requested_at_the_same_time(self):
        self.script("hold read 1 1000")
        child = self.start(*self.words(f"{self.large}@1M+1M"))
        parts, deadline = BLOCK // (128 << 10), time.monotonic() + DEADLINE_S
        while (requests := self.requests()) < parts and time.monotonic() < deadline:
            time.sleep(0.01)
        self.script("clear")
        self.assertEqual((requests, child.wait(DEADLINE_S), self.requests()), (parts, 0, parts))

    def test_file_is_opened_once(self):
        for engine in ("threads", "uring"):
            with self.subTest(engine):
                before = self.requests("open")
                self.assertEqual(
                    self.warmup("--io-engine", engine, self.large)[1]["fetched"], 1)
                self.assertEqual(self.requests("open") - before, 1)
                self.assertEqual(self.warmup("--evict", self.large)[0], 0)


class KernelKeepsNone(Requests):
    def mount_it(self, *options, **latency):
        super().mount_it("--direct", *options, **latency)

    def test_block_is_one_request_unless_few_fetches_are_allowed(self):
        self.load_a_block()
        self.assertEqual(self.requests(), 1)
        self.assertEqual(self.warmup("--evict", self.large)[0], 0)
        self.load_a_block("--prefetch-depth", "7")
        self.assertEqual(self.requests(), 1 + 4)


if __name__ == "__main__":
    unittest.main()
