"""`cubeshim top`: what a job does, in rates."""
import json
import subprocess
import time
import unittest

from cli_case import CONTENT, Case


class Top(Case):
    def top(self, *words):
        child = self.start("top", "--name", self.name, "--interval", "1", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return child

    def start_job(self):
        """A job that reads its file a hundred times when it is told to, and is then still there."""
        files = f"{self.file} " * 100
        job = self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M", "--stats", "off", "bash", "-c",
                         f"exec 3<{self.file}; echo ready; read line; cat {files} | wc -c; echo done; read line",
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def test_the_rates_are_those_of_the_job(self):
        job = self.start_job()
        began = time.monotonic()
        top = self.top("--json")
        first = json.loads(top.stdout.readline())
        zeros = {"opens_per_s": 0, "hit_rate": 0, "bytes_served_per_s": 0, "origin_bytes_per_s": 0, "prefetched_per_s": 0,
                 "latency_us": {"hit_p99": 0, "miss_p99": 0}}
        self.assertEqual(first["jobs"], [{"pid": job.pid} | zeros])
        self.assertEqual([*first], ["region", "seconds", "processes", "used", "entries", "jobs"])
        job.stdin.write(b"go\n")
        job.stdin.flush()
        self.assertEqual(job.stdout.readline() + job.stdout.readline(), b"%d\ndone\n" % (100 * len(CONTENT)))
        opens, bytes_served, seconds, hit_rates = 0, 0, 0, set()
        while round(opens) < 100:
            line = json.loads(top.stdout.readline())
            self.assertEqual([row["pid"] for row in line["jobs"]], [job.pid])
            opens += line["jobs"][0]["opens_per_s"] * line["seconds"]
            seconds += line["seconds"]
            bytes_served += line["jobs"][0]["bytes_served_per_s"] * line["seconds"]
            if line["jobs"][0]["opens_per_s"] != 0:
                hit_rates.add(line["jobs"][0]["hit_rate"])
        self.assertEqual((round(opens), round(bytes_served), hit_rates), (100, 100 * len(CONTENT), {1.0}))
        self.assertLess(seconds, time.monotonic() - began)
        # And no more than that.
        self.assertEqual(json.loads(top.stdout.readline())["jobs"][0]["opens_per_s"], 0)
        self.assertEqual((line["entries"], line["region"]), (1, str(self.region)))

    def test_it_ends_with_the_cache_or_when_it_was_shown_often_enough(self):
        job = self.start_job()
        done = self.command("top", "--name", self.name, "--count", "1")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        lines = done.stdout.decode().splitlines()
        self.assertEqual((len(lines), lines[2].split()[0]), (3, str(job.pid)))
        self.assertEqual(lines[1], "     PID    opens/s    hits      served/s      origin/s prefetched/s     hit p99    miss p99")
        self.assertEqual(lines[2].split()[1:], "0 0.0 % 0 bytes 0 bytes 0 0.0 us 0.0 us".split())
        top = self.top()
        self.assertTrue(top.stdout.readline())
        job.communicate(b"go\nend\n", timeout=60)
        _, errors = top.communicate(timeout=60)
        self.assertEqual((top.returncode, errors.decode().count("there is no cache named")), (1, 1))

    def test_no_cache_is_told(self):
        done = self.command("top", "--name", self.name)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"there is no cache named {self.name}".encode(), done.stderr)


if __name__ == "__main__":
    unittest.main()
