"""A signal handler opens, stats, reads and closes files while the code that it interrupts is inside
malloc. Each call uses another path through the cache, and none of them may allocate memory."""
import os
import subprocess
import time
import unittest

from support import COMMAND, PATIENCE_S, Case, crash


class Handlers(Case):
    def check(self, directory, count, *more, **settings):
        done = self.run_program("handlers", directory, count, *more, **settings)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return self.last_report()

    def test_first_open_and_misses(self):
        report = self.check(self.write_files(self.work / "data", 100), 100,
                            PREFIXES=self.work / "data")
        self.assertGreaterEqual(report["misses"], 100)
        self.assertGreater(report["hits"]["ram"], 50)

    def test_more_than_one_segment(self):
        report = self.check(self.write_files(self.work / "data", 700), 700,
                            PREFIXES=self.work / "data")
        self.assertGreaterEqual(report["misses"], 700)

    def test_full(self):
        report = self.check(self.write_files(self.work / "data", 700), 700,
                            PREFIXES=self.work / "data", RAM="8M")
        self.assertGreater(report["bypassed"]["full"], 100)

    def test_fresh_at_each_open(self):
        data = self.write_files(self.work / "data", 30)
        self.check(data, 30, PREFIXES=data, CONSISTENCY="open")

    def test_memfds(self):
        data = self.write_files(self.work / "data", 30)
        self.check(data, 30, PREFIXES=data, MODE="real")

    def test_reports_of_each_second(self):
        data = self.write_files(self.work / "data", 300)
        self.check(data, 300, PREFIXES=data, STATS_INTERVAL="1")

    def test_packs(self):
        self.write_files(self.work / "data", 100)
        pack, prefix = self.work / "set.cube", self.work / "mounted"
        subprocess.run([COMMAND, "pack", "-q", self.work / "data", pack], check=True,
                       stdout=subprocess.DEVNULL)
        report = self.check(prefix, 100, "packed", PACKS=f"{prefix}={pack}")
        self.assertGreater(report["hits"]["ram"], 50)

    def test_buckets(self):
        for settings in ({}, {"CONSISTENCY": "open"}, {"MODE": "real"}, {"MAX_FILE": "100K"}):
            with self.subTest(**settings):
                prefix, bucket = self.bucket(100)
                self.check(prefix, 100, "packed", **bucket, **settings)

    def test_with_a_list_to_prefetch(self):
        # A handler must not start the thread that prefetches.
        data = self.write_files(self.work / "data", 100)
        (self.work / "list").write_text("".join(f"{data}/f{n}\n" for n in range(100)))
        self.check(data, 100, PREFIXES=data, PREFETCH_LIST=self.work / "list")

    def test_disk(self):
        data = self.write_files(self.work / "data", 100)
        (self.work / "disk").mkdir()
        settings = {"PREFIXES": data, "DISK_DIR": self.work / "disk", "PREFETCH": "0"}
        deadline = time.monotonic() + PATIENCE_S
        # At its end, a job has some milliseconds to write the rest.
        while True:
            subprocess.run(["cat", *(data / f"f{n}" for n in range(100))],
                           env=self.environment(**settings), check=True, stdout=subprocess.DEVNULL)
            if self.last_report()["disk"]["entries"] >= 50:
                break
            self.assertLess(time.monotonic(), deadline, "nothing comes to the disk")
        report = self.check(data, 100, **settings)
        self.assertGreater(report["hits"]["disk"], 10)


if __name__ == "__main__":
    unittest.main()
