"""A second job opens the files of a directory one after another, while threads request the stats of
the other files."""
from support import DiskCase, crash

MANY = 600
CHANGED = range(0, MANY, 7)
LOOK_US = 10_000


class KnownStats(DiskCase):
    size = 100

    def test_opens_of_a_second_job_wait_for_few_stats(self):
        for n in range(len(self.files), MANY):
            self.put(n)
        job, right = self.start()
        self.assertEqual(right, MANY)
        self.wait_for_disk(job, MANY)
        self.assertEqual(self.end(job), 0)
        for n in CHANGED:
            self.put(n, generation=1)
        self.origin.options = (*self.origin.options, f"--lookup-us={LOOK_US}",
                               f"--getattr-us={LOOK_US}")
        self.reset()
        # Without threads, each open asks the origin (check_warm in test_jobs.py).
        right, report, said = self.run_job(PREFETCH=1, ANNOUNCE=0)
        self.assertEqual((right, said), (MANY, []))
        self.assertEqual(report["misses"], len(CHANGED))
        self.assertEqual(report["hits"]["disk"], MANY - len(CHANGED))
        self.assertLess(report["origin"]["stats"], MANY * 3 // 4)
        self.assertEqual(self.counters()["open"], len(CHANGED))


if __name__ == "__main__":
    crash.main("__main__")
