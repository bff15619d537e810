"""`cubeshim top`: what a job does, in rates."""
import json
import os
import pty
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
        zeros = {"opens_per_s": 0, "hit_rate": 0, "misses_per_s": 0, "bytes_served_per_s": 0, "origin_bytes_per_s": 0, "prefetched_per_s": 0,
                 "latency_us": {"hit_p99": 0, "miss_p99": 0}}
        self.assertEqual(first["jobs"], [{"pid": job.pid, "ended": False} | zeros])
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

    def test_the_table_fits_80_columns(self):
        job = self.start_job()
        done = self.command("top", "--name", self.name, "--count", "1")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        lines = done.stdout.decode().splitlines()
        self.assertEqual((len(lines), lines[2].split()[0]), (3, str(job.pid)))
        self.assertEqual(lines[1], "     PID  opens/s   hits misses/s served/s origin/s ahead/s hit p99 miss p99")
        self.assertEqual(lines[2].split()[1:], "0 0.0% 0 0 0 0 0us 0us".split())
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_a_long_name_fits_too(self):
        self.name = f"cli-{os.getpid()}-".ljust(64, "n")
        self.region = self.region.with_name(f"cubeshim-{os.geteuid()}-{self.name}")
        self.addCleanup(lambda: self.region.unlink(missing_ok=True))
        self.start_job()
        lines = self.command("top", "--name", self.name, "--count", "1").stdout.decode().splitlines()
        self.assertEqual((len(lines[0]), "...: " in lines[0]), (80, True), lines[0])

    def test_the_last_figures_of_a_job_are_told_when_it_has_ended(self):
        job = self.start_job()
        top = self.top()
        self.assertTrue(top.stdout.readline())
        job.communicate(b"go\nend\n", timeout=60)
        line = top.stdout.readline().decode()
        while "has ended" not in line:
            line = top.stdout.readline().decode()
        # The first open was a miss, before top began.
        self.assertRegex(line, rf"^job {job.pid} has ended: 101 opens, 99.0% hits, 1 misses, 50.0K from the origin\n$")
        self.assertEqual(top.stdout.readline().decode(), f"waiting for a job (the cache named {self.name} in /dev/shm)\n")
        self.assertIsNone(top.poll())
        # And goes on with the next.
        job = self.start_job()
        while f"{job.pid} " not in (line := top.stdout.readline().decode()):
            self.assertNotEqual(line, "")

    def test_json_has_the_last_figures_too(self):
        job = self.start_job()
        top = self.top("--json")
        opens = 0
        top.stdout.readline()
        job.communicate(b"go\nend\n", timeout=60)
        while True:
            line = json.loads(top.stdout.readline())
            opens += sum(row["opens_per_s"] * line["seconds"] for row in line["jobs"])
            if any(row["ended"] for row in line["jobs"]):
                break
        self.assertEqual(round(opens), 100)
        self.assertEqual(json.loads(top.stdout.readline()), {"region": None, "jobs": []})

    def test_the_screen_of_a_terminal_keeps_the_last_table(self):
        job = self.start_job()
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.top_on(slave)
        os.close(slave)
        seen = ""
        while "opens/s" not in seen:
            seen += os.read(master, 4096).decode()
        job.communicate(b"go\nend\n", timeout=60)
        while "waiting for a job" not in seen:
            seen += os.read(master, 4096).decode()
        screen = seen[seen.rindex("\x1b[H\x1b[2J"):]
        self.assertIn("opens/s", screen)
        self.assertIn(f"job {job.pid} has ended: 101 opens", screen)

    def top_on(self, terminal):
        return self.start("top", "--name", self.name, "--interval", "1", stdout=terminal, stderr=subprocess.DEVNULL)

    def test_it_waits_for_a_job(self):
        top = self.top()
        self.assertEqual(top.stdout.readline().decode(), f"waiting for a job (the cache named {self.name} in /dev/shm)\n")
        job = self.start_job()
        self.assertIn(self.name[:20].encode(), top.stdout.readline())
        self.assertIn(b"opens/s", top.stdout.readline())
        self.assertIn(str(job.pid).encode(), top.stdout.readline())

    def test_all_caches_of_the_user_without_a_name(self):
        directory = self.data.parent / "ram"
        directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "none", directory], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", directory], check=True))
        jobs = []
        for name in ("one", "two"):
            job = self.start("run", "-p", self.data, "--name", name, "--ram", "32M", "--ram-dir", directory, "--stats", "off", "bash", "-c",
                             f"exec 3<{self.file}; echo ready; read line", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(job.stdout.readline(), b"ready\n")
            jobs.append(job)
        (directory / f"cubeshim-{os.geteuid()}-broken").write_bytes(b"x" * 5000)
        done = self.command("top", "--ram-dir", directory, "--count", "1")
        lines = done.stdout.decode().splitlines()
        self.assertEqual([line.split(":")[0] for line in lines if "used by" in line], ["one", "two"])
        self.assertEqual([line.split()[0] for line in lines[2::3]], [str(job.pid) for job in jobs])
        self.assertEqual((done.returncode, done.stderr.count(b"\n"), b"cubeshim-%d-broken" % os.geteuid() in done.stderr), (0, 1, True))
        only = self.command("top", "--ram-dir", directory, "--count", "1", "--json", env={"CUBESHIM_NAME": "two"})
        self.assertEqual(json.loads(only.stdout)["region"], f"{directory}/cubeshim-{os.geteuid()}-two")

    def test_no_cache_is_told(self):
        done = self.command("top", "--name", self.name, "--count", "1")
        self.assertEqual((done.returncode, done.stdout.decode()), (1, f"waiting for a job (the cache named {self.name} in /dev/shm)\n"))


if __name__ == "__main__":
    unittest.main()
