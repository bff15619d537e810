"""`cubeshim top`: shows what a job does, in rates."""
import json
import os
import pty
import subprocess
import sys
import time
import unittest

from cli_case import CONTENT, Case

LARGE_ZEROS = {
    f"{name}_per_s": 0 for name in ("hits", "misses", "bytes_read", "bytes_mapped", "kernel_bytes",
                                    "origin_bytes", "ahead_bytes", "used_bytes")
}
METADATA_ZEROS = {
    f"{name}_per_s": 0 for name in ("listings", "stats", "negative", "read", "revalidations",
                                    "gathered")
}
ZEROS = {
    "opens_per_s": 0, "hit_rate": 0, "misses_per_s": 0, "bytes_served_per_s": 0,
    "origin_bytes_per_s": 0, "prefetched_per_s": 0, "latency_us": {"hit_p99": 0, "miss_p99": 0},
    "large": LARGE_ZEROS, "metadata": METADATA_ZEROS
}
UNITS = {"K": 1 << 10, "M": 1 << 20, "k": 1000, "us": 1, "ms": 1000, "%": 1}


def number_of(text):
    """Returns the number in a cell of the table, such as 4.9M, 90.0% or 12us."""
    digits = text.rstrip("KMkus%m")
    return float(digits) * UNITS.get(text[len(digits):], 1)


class Top(Case):
    def top(self, *words):
        child = self.start("top", "--name", self.name, "--interval", "1", *words,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return child

    def start_job(self):
        """Starts a job that reads its file a hundred times on request, and keeps running."""
        files = f"{self.file} " * 100
        job = self.start(
            "run", "-p", self.data, "--name", self.name, "--ram", "32M", "--stats", "off", "bash",
            "-c",
            f"exec 3<{self.file}; echo ready; read line; cat {files} | wc -c; echo done; read line",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def test_the_rates_are_those_of_the_job(self):
        job = self.start_job()
        began = time.monotonic()
        top = self.top("--json")
        first = json.loads(top.stdout.readline())
        self.assertEqual(first["jobs"], [{"pid": job.pid, "ended": False} | ZEROS])
        self.assertEqual(
            [*first],
            ["region", "seconds", "processes", "used", "large", "entries", "servers", "gateway",
             "jobs"])
        job.stdin.write(b"go\n")
        job.stdin.flush()
        self.assertEqual(job.stdout.readline() + job.stdout.readline(),
                         b"%d\ndone\n" % (100 * len(CONTENT)))
        opens, bytes_served, seconds, hit_rates = 0, 0, 0, set()
        while round(opens) < 100:
            line = json.loads(top.stdout.readline())
            self.assertEqual([row["pid"] for row in line["jobs"]], [job.pid])
            opens += line["jobs"][0]["opens_per_s"] * line["seconds"]
            seconds += line["seconds"]
            bytes_served += line["jobs"][0]["bytes_served_per_s"] * line["seconds"]
            if line["jobs"][0]["opens_per_s"] != 0:
                hit_rates.add(line["jobs"][0]["hit_rate"])
        self.assertEqual((round(opens), round(bytes_served), hit_rates),
                         (100, 100 * len(CONTENT), {1.0}))
        # The columns show no greater precision.
        for _ in range(3):
            seconds += json.loads(top.stdout.readline())["seconds"]
        self.assertLess(seconds, time.monotonic() - began)
        self.assertEqual(
            json.loads(top.stdout.readline())["jobs"], [{"pid": job.pid, "ended": False} | ZEROS])
        self.assertEqual((line["entries"], line["region"], line["processes"]),
                         (1, str(self.region), 1))

    def start_mixed_job(self):
        """Starts a job that, on request, reads 20 new files, and reads one of these and a cached
        file 60 times."""
        for i in range(20):
            (self.data / f"new{i}").write_bytes(CONTENT)
        new, again = f"{self.data}/new*", f"{self.data}/new0 {self.file} " * 30
        job = self.start(
            "run", "-p", self.data, "--name", self.name, "--ram", "32M", "--stats", "off",
            "--prefetch", "0", "bash", "-c",
            f"exec 3<{self.file}; echo ready; read line; cat {new} {again} | wc -c; echo done; "
            "read line",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    # On a busy machine, a hit can be interrupted and take longer than any miss, and a sample can
    # come late. So the test runs several jobs.
    TRIES = 5

    def test_every_column_shows_its_figure(self):
        """The figures are right in the object and in the table, even if a sample is taken during
        the job's short work."""
        for attempt in range(self.TRIES):
            worst, cells = self.figures_of_mixed_job()
            wanted = (80, 60, 20, 80 * len(CONTENT), 20 * len(CONTENT), 0)
            is_near = all(abs(cell - number) <= number / 6 for cell, number in zip(cells, wanted))
            # A hit of less than half a microsecond is shown as zero.
            if is_near and 0 < worst["hit_p99"] < worst["miss_p99"] and cells[6] < cells[7]:
                return
        self.fail(f"after {self.TRIES} jobs: {worst}, {cells}, not {wanted}")

    def figures_of_mixed_job(self):
        """Returns the longest times in the object, and the cells of the table: the longest time, or
        the sum over the samples for other cells."""
        job = self.start_mixed_job()
        top, table = self.top("--json"), self.top()
        began = json.loads(top.stdout.readline()), [table.stdout.readline() for _ in range(3)]
        self.assertEqual((len(began[0]["jobs"]), began[1][2].split()[1:]),
                         (1, b"0 0.0% 0 0 0 0 0us 0us".split()))
        job.stdin.write(b"go\n")
        job.stdin.flush()
        self.assertEqual(job.stdout.readline() + job.stdout.readline(),
                         b"%d\ndone\n" % (80 * len(CONTENT)))
        sums, rates, worst = {}, 0, {"hit_p99": 0, "miss_p99": 0}
        while round(sums.get("opens_per_s", 0)) < 80:
            line = json.loads(top.stdout.readline())
            row = line["jobs"][0]
            for name in ZEROS.keys() - {"hit_rate", "latency_us", "large", "metadata"}:
                sums[name] = sums.get(name, 0) + row[name] * line["seconds"]
            rates += row["hit_rate"] * row["opens_per_s"] * line["seconds"]
            worst = {name: max(worst[name], row["latency_us"][name]) for name in worst}
        self.assertEqual({name: round(value) for name, value in sums.items()}, {
            "opens_per_s": 80, "misses_per_s": 20, "bytes_served_per_s": 80 * len(CONTENT),
            "origin_bytes_per_s": 20 * len(CONTENT), "prefetched_per_s": 0
        })
        self.assertEqual(round(rates), 60)
        self.assertEqual(
            json.loads(top.stdout.readline())["jobs"], [{"pid": job.pid, "ended": False} | ZEROS])
        # The table covers a second, which is nearly the time between its samples. It is complete
        # when a sample adds nothing.
        cells, shown = [0.0] * 8, None
        while cells[0] == 0 or shown != b"0 0.0% 0 0 0 0 0us 0us".split():
            shown = [table.stdout.readline() for _ in range(3)][2].split()[1:]
            row = [number_of(cell.decode()) for cell in shown]
            cells = [
                max(a, b) if i in (6, 7) else a + (b * row[0] / 100 if i == 1 else b)
                for i, (a, b) in enumerate(zip(cells, row))
            ]
        for child in (top, table):
            child.kill()
        job.communicate(b"end\n", timeout=300)
        return worst, cells

    def test_a_cache_that_is_cut_short_meanwhile_is_left_out(self):
        job = self.start_job()
        top = self.top("--count", "3")
        self.assertIn(b"used by", top.stdout.readline())
        os.truncate(self.region, 8192)
        _, errors = top.communicate(timeout=300)
        job.kill()
        self.assertEqual(top.returncode, 0)
        self.assertIn(f"{self.region} was cut short while it was read", errors.decode())

    def start_large_job(self):
        """Starts a job that, on request, reads 3 MiB twice, one MiB at a time."""
        large = self.data / "large"
        large.write_bytes(CONTENT * 62)
        os.truncate(large, 3 << 20)
        os.utime(large, (1e9, 1e9))
        read = f"dd if={large} of=/dev/null bs=1M status=none; "
        job = self.start(
            "run", "-p", self.data, "--name", self.name, "--ram", "64M", "--max-file", "1M",
            "--block", "1M", "--prefetch", "0", "--stats", "off", "bash", "-c",
            f"exec 3<{self.file}; echo ready; read line; {read * 2}echo done; read line",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def test_large_files_have_separate_figures(self):
        job = self.start_large_job()
        top, table = self.top("--json"), self.top()
        self.assertEqual(json.loads(top.stdout.readline())["jobs"][0]["large"], LARGE_ZEROS)
        self.assertNotIn(b"LARGE", b"".join(table.stdout.readline() for _ in range(4)))
        job.stdin.write(b"go\n")
        job.stdin.flush()
        self.assertEqual(job.stdout.readline(), b"done\n")
        sums = dict.fromkeys(LARGE_ZEROS, 0)
        while round(sums["hits_per_s"] + sums["misses_per_s"]) < 6:
            line = json.loads(top.stdout.readline())
            for name in sums:
                sums[name] += line["jobs"][0]["large"][name] * line["seconds"]
        self.assertEqual({name: round(value) for name, value in sums.items() if value}, {
            "hits_per_s": 3, "misses_per_s": 3, "bytes_read_per_s": 6 << 20,
            "origin_bytes_per_s": 3 << 20
        })
        self.assertEqual((line["large"], line["entries"]), (3 << 20, 1))
        self.assertGreater(line["used"], 3 << 20)
        text = table.stdout.readline()
        while b"LARGE" not in text:
            text = table.stdout.readline()
        self.assertEqual(
            text.decode(),
            "   LARGE   hits/s misses/s   read/s mapped/s kernel/s origin/s ahead/s  used/s\n")
        self.assertEqual(table.stdout.readline().split()[0], b"%d" % job.pid)
        self.assertRegex(
            table.stdout.readline().decode(),
            r"3\.[01] MiB of \d+\.\d MiB used, 3\.0 MiB by large files; 1 record, 1 process\n")
        job.communicate(b"end\n", timeout=300)
        while "has ended" not in (last := table.stdout.readline().decode()):
            self.assertNotEqual(last, "")
            self.assertLessEqual(len(last), 81)
        self.assertRegex(last,
                         rf"^job {job.pid} has ended: .* from the origin, 6.0M of large files\n$")

    def test_metadata_has_separate_figures(self):
        for i in range(8):
            (self.data / f"d{i}").mkdir()
            os.utime(self.data / f"d{i}", (1e9, 1e9))
        os.utime(self.data, (1e9, 1e9))
        script = ("import os, sys\nfile = open(sys.argv[1] + '/f')\nprint(flush=True)\ninput()\n"
                  "for _ in range(5): list(os.walk(sys.argv[1]))\n"
                  "os.path.exists(sys.argv[1] + '/none')\nprint(flush=True)\ninput()\n")
        job = self.start("run", "-p", self.data, "--name", self.name, "--ram", "32M",
                         "--metadata-ttl", "job", "--stats", "off", sys.executable, "-c", script,
                         self.data, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        job.stdout.readline()
        top, table = self.top("--json"), self.top()
        self.assertEqual(json.loads(top.stdout.readline())["jobs"][0]["metadata"], METADATA_ZEROS)
        self.assertNotIn(b"METADATA", b"".join(table.stdout.readline() for _ in range(3)))
        job.stdin.write(b"go\n")
        job.stdin.flush()
        job.stdout.readline()
        sums = dict.fromkeys(METADATA_ZEROS, 0)
        while round(sums["negative_per_s"]) < 1:
            line = json.loads(top.stdout.readline())
            for name in sums:
                sums[name] += line["jobs"][0]["metadata"][name] * line["seconds"]
        self.assertEqual((round(sums["listings_per_s"]), round(sums["negative_per_s"])), (36, 1))
        # On a busy machine, a thread that reads ahead may read a directory at the same time.
        self.assertIn(round(sums["read_per_s"]), range(9, 19))
        text = table.stdout.readline()
        while b"METADATA" not in text:
            text = table.stdout.readline()
        self.assertEqual(text.decode(),
                         "METADATA  lists/s  stats/s    neg/s   read/s  reval/s  ahead/s\n")
        self.assertEqual(table.stdout.readline().split()[0], b"%d" % job.pid)

    def test_problem_is_reported_once(self):
        directory = self.data.parent / "ram"
        directory.mkdir()
        (directory / f"cubeshim-{os.geteuid()}-broken").write_bytes(b"x" * 5000)
        for words in ([], ["--json"]):
            done = self.command("top", "--ram-dir", directory, "--count", "3", "--interval", "1",
                                *words)
            self.assertEqual((done.stderr.count(b"\n"), done.stdout.count(b"\n")),
                             (1, 3 if words else 1))

    def test_the_table_fits_80_columns(self):
        job = self.start_job()
        done = self.command("top", "--name", self.name, "--count", "1")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        lines = done.stdout.decode().splitlines()
        self.assertEqual((len(lines), lines[2].split()[0]), (3, str(job.pid)))
        self.assertEqual(
            lines[1],
            "     PID  opens/s   hits misses/s served/s origin/s ahead/s hit p99 miss p99")
        # The means since the job began.
        self.assertGreater(float(lines[2].split()[1]), 0)
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_a_long_name_fits_too(self):
        self.name = f"cli-{os.getpid()}-".ljust(64, "n")
        self.region = self.region.with_name(f"cubeshim-{os.geteuid()}-{self.name}")
        self.addCleanup(lambda: self.region.unlink(missing_ok=True))
        self.start_job()
        lines = self.command("top", "--name", self.name, "--count",
                             "1").stdout.decode().splitlines()
        self.assertEqual((len(lines[0]), "...: " in lines[0]), (80, True), lines[0])

    def test_last_figures_of_a_job_are_printed_once_it_has_ended(self):
        job = self.start_job()
        top = self.top()
        self.assertTrue(top.stdout.readline())
        job.communicate(b"go\nend\n", timeout=300)
        line = top.stdout.readline().decode()
        while "has ended" not in line:
            line = top.stdout.readline().decode()
        # The first open was a miss, and happened before top began.
        self.assertRegex(
            line,
            rf"^job {job.pid} has ended: 101 opens, 99.0% hits, 1 misses, 50.0K from the origin\n$")
        self.assertEqual(top.stdout.readline().decode(),
                         f"waiting for a job (the cache named {self.name} in /dev/shm)\n")
        self.assertIsNone(top.poll())
        # top continues with the next job.
        job = self.start_job()
        while f"{job.pid} " not in (line := top.stdout.readline().decode()):
            self.assertNotEqual(line, "")

    def test_a_job_ends_once_where_others_keep_the_cache(self):
        staying, job = self.start_job(), self.start_job()
        top = self.top("--json")
        pids = {row["pid"] for row in json.loads(top.stdout.readline())["jobs"]}
        self.assertEqual(pids, {staying.pid, job.pid})
        job.communicate(b"go\nend\n", timeout=300)
        ended = []
        while not ended:
            ended = [
                row["pid"] for row in json.loads(top.stdout.readline())["jobs"] if row["ended"]
            ]
        self.assertEqual(ended, [job.pid])
        for _ in range(2):
            self.assertEqual([row["pid"] for row in json.loads(top.stdout.readline())["jobs"]],
                             [staying.pid])

    def test_json_has_the_last_figures_too(self):
        job = self.start_job()
        top = self.top("--json")
        opens = 0
        top.stdout.readline()
        job.communicate(b"go\nend\n", timeout=300)
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
        job.communicate(b"go\nend\n", timeout=300)
        while "waiting for a job" not in seen:
            seen += os.read(master, 4096).decode()
        screen = seen[seen.rindex("\x1b[H\x1b[2J"):]
        self.assertIn("opens/s", screen)
        self.assertIn(f"job {job.pid} has ended: 101 opens", screen)

    def top_on(self, terminal):
        return self.start("top", "--name", self.name, "--interval", "1", env={"TERM": "xterm"},
                          stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.DEVNULL)

    def test_it_waits_for_a_job(self):
        top = self.top()
        self.assertEqual(top.stdout.readline().decode(),
                         f"waiting for a job (the cache named {self.name} in /dev/shm)\n")
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
            job = self.start("run", "-p", self.data, "--name", name, "--ram", "32M", "--ram-dir",
                             directory, "--stats", "off", "bash", "-c",
                             f"exec 3<{self.file}; echo ready; read line", stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
            self.assertEqual(job.stdout.readline(), b"ready\n")
            jobs.append(job)
        (directory / f"cubeshim-{os.geteuid()}-broken").write_bytes(b"x" * 5000)
        done = self.command("top", "--ram-dir", directory, "--count", "1")
        lines = done.stdout.decode().splitlines()
        self.assertEqual([line.split(":")[0] for line in lines if "used by" in line],
                         ["one", "two"])
        self.assertEqual([line.split()[0] for line in lines[2::3]], [str(job.pid) for job in jobs])
        self.assertEqual(
            (done.returncode, done.stderr.count(b"\n"), b"cubeshim-%d-broken" % os.geteuid()
             in done.stderr), (0, 1, True))
        only = self.command("top", "--ram-dir", directory, "--count", "1", "--json",
                            env={"CUBESHIM_NAME": "two"})
        self.assertEqual(
            json.loads(only.stdout)["region"], f"{directory}/cubeshim-{os.geteuid()}-two")

    def test_missing_cache_is_reported(self):
        done = self.command("top", "--name", self.name, "--count", "1")
        self.assertEqual((done.returncode, done.stdout.decode()),
                         (1, f"waiting for a job (the cache named {self.name} in /dev/shm)\n"))


if __name__ == "__main__":
    unittest.main()
