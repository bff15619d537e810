"""A leader is stopped while a job announces its files. Another process then listens, and receives
the announcements that the first leader has not taken."""
import os
import pathlib
import signal
import subprocess
import sys
import unittest
import zlib

from support import LIBRARY, FaultCase, content, wait_until

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "prefetch" / "python"
DEPTH = 4
MOST_TAKEN = 256 + DEPTH  # files that wait in the leader, and files in flight

JOB = """
import sys, zlib, cubeshim
data, count = sys.argv[1], int(sys.argv[2])
def read(path):
    with open(path, "rb") as file: return zlib.crc32(file.read())
read(data + "/trigger")
order = cubeshim.announce([f"{data}/f{n}" for n in range(count)])
print("announced", flush=True)
sys.stdin.readline()
for path in order: print(read(path), flush=True)
print("end", flush=True)
sys.stdin.readline()
"""


class AnnouncingJob:
    def __init__(self, case):
        env = {
            "PATH": "/usr/bin:/bin", "LANG": "C", "LD_PRELOAD": LIBRARY, "PYTHONPATH": str(PACKAGE),
            "CUBESHIM_STATS": "off"
        }
        self.process = subprocess.Popen([sys.executable, "-c", JOB, case.data,
                                         str(case.count)], env=env | case.planned(),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        case.addCleanup(self.end)
        case.assertEqual(self.line(), "announced")

    def line(self):
        return self.process.stdout.readline().strip()

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        if self.process.returncode is None:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


class Announced(FaultCase):
    lagfs = ("--open-us=10000",)
    count, size = 450, 5_000

    def setUp(self):
        super().setUp()
        self.write_list([f"{self.data}/trigger"])
        self.stopped = self.host()
        wait_until(lambda: self.leader() == self.stopped.process.pid, "the first job leads")

    def planned(self, **more):
        return super().planned(**{"PREFETCH_DEPTH": DEPTH} | more)

    def wait_for_opens(self, opens):
        wait_until(lambda: self.origin_count() >= opens,
                   lambda: f"{opens} opens, but {self.origin_count()}")

    def check_job(self, job):
        # The other job continues as soon as it leads.
        self.assertLess(self.origin_count(), self.count,
                        "not all was fetched before the leader was stopped")
        wait_until(lambda: self.leader() == job.process.pid, "the other job leads")

    def check_ends(self, job):
        job.go_on()
        for n in range(self.count):
            self.assertEqual(job.line(), str(zlib.crc32(content(n, self.size))), f"f{n}")
        self.assertEqual(job.line(), "end")
        self.stopped.signal(signal.SIGCONT)
        self.check_reads(self.stopped)
        # Allows the trigger, and files that one process fetched while they were in flight in the
        # other.
        self.assertLessEqual(self.origin_count(), self.count + 1 + 2 * (DEPTH + 1))
        job.go_on()
        self.assertEqual(job.process.wait(), 0)
        job.process.stdout.close()

    def test_while_another_announces_its_order(self):
        job = AnnouncingJob(self)
        self.wait_for_opens(20)
        self.stopped.stop()
        self.check_job(job)
        # The job reads nothing yet, so these opens are the files that the stopped leader had not
        # taken.
        self.wait_for_opens(self.count - MOST_TAKEN)
        self.check_ends(job)

    def test_before_another_announces_its_order(self):
        self.stopped.stop()
        job = AnnouncingJob(self)
        self.check_job(job)
        self.wait_for_opens(self.count + 1)
        self.check_ends(job)


if __name__ == "__main__":
    unittest.main()
