"""`cubeshim exporter`: its figures equal those of the caches, and no file in the caches' directory
can harm it."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from cli_case import COMMAND, CONTENT
from exporter_case import Exporter, ExporterCase, until

sys.path.append(str(Path(__file__).resolve().parent.parent / "hostile/crash"))
from region_file import Layout  # noqa: E402

PAGE = 4096
NO_LABEL = ()


class Figures(ExporterCase):
    def test_they_equal_the_report_by_http_and_in_the_textfile(self):
        job = self.start_job(
            f"cat {self.file} {self.file} /nothing/there {self.data}/none 2>/dev/null | wc -c; "
            "read line"
        )
        self.go_on(job)
        self.assertEqual(job.stdout.readline(), b"%d\n" % (2 * len(CONTENT)))
        exporter = Exporter(self)
        scraped = exporter.scrape()
        stats = json.loads(
            self.command("stats", "--json", "--name", self.name, "--ram-dir", self.ram_dir).stdout)
        report, cache = stats["jobs"][0]["report"], f"cache={self.name}"
        wanted = {("cubeshim_hits_total", "tier=ram"): report["hits"]["ram"],
                  ("cubeshim_misses_total",): report["misses"],
                  ("cubeshim_bypassed_total", "reason=error"): report["bypassed"]["error"],
                  ("cubeshim_processes",): stats["processes"],
                  ("cubeshim_served_bytes_total",): report["bytes_served"],
                  ("cubeshim_origin_bytes_total",): report["origin"]["bytes"],
                  ("cubeshim_tier_capacity_bytes", "tier=ram"): report["ram"]["capacity"],
                  ("cubeshim_jobs",): 1, ("cubeshim_cache_up",): 1,
                  ("cubeshim_tier_entries", "tier=ram"): report["ram"]["entries"],
                  ("cubeshim_miss_open_seconds_count",): report["misses"]}
        for (name, *labels), value in wanted.items():
            self.assertEqual(scraped[name][tuple(sorted([cache, *labels]))], value, name)
        self.assertGreater(report["hits"]["ram"] * report["misses"] * report["bypassed"]["error"],
                           0)
        seconds = scraped["cubeshim_misses_seconds_total"][(cache,)]
        self.assertAlmostEqual(seconds * 1e9, report["time_ns"]["misses"], delta=1)
        # The cache has neither disk nor cluster, so nothing is reported about these.
        self.assertEqual([*scraped["cubeshim_hits_total"]], [tuple(sorted([cache, "tier=ram"]))])
        done, written = self.textfile()
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        own = {"cubeshim_exporter_collect_seconds"}
        for name in {*scraped} | {*written}:
            if name not in own and not name.startswith("exposer_") and not name.endswith("_bucket"):
                self.assertEqual(
                    *({key: f"{value:.12g}"
                       for key, value in of[name].items()}
                      for of in (scraped, written)), name)
        # The two texts print the bounds with different numbers of digits.
        buckets = "cubeshim_miss_open_seconds_bucket"
        self.assertEqual([*scraped[buckets].values()], [*written[buckets].values()])

    def test_histograms_add_up(self):
        self.kept_region()
        _, written = self.textfile()
        key = (f"cache={self.name}",)
        counts = [value for value in written["cubeshim_miss_open_seconds_bucket"].values()]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], written["cubeshim_miss_open_seconds_count"][key])
        bounds = [
            float(label[3:])
            for labels in written["cubeshim_miss_open_seconds_bucket"]
            for label in labels
            if label.startswith("le=")
        ]
        reached = next(bound for bound, count in zip(bounds, counts) if count == counts[-1])
        self.assertLess(written["cubeshim_miss_open_seconds_sum"][key] / counts[-1], reached)
        self.assertGreater(written["cubeshim_miss_open_seconds_sum"][key], 0)

    def test_counters_never_fall_while_processes_end(self):
        """When a process ends, its counts move from its own row to the row of its job. For a
        moment, they are in neither row."""
        names = " ".join([str(self.file)] * 20)
        job = self.start_job(
            f"for i in {{1..80}}; do cat {names} > /dev/null; done; echo done; read line")
        exporter = Exporter(self)
        self.go_on(job)
        ended = threading.Event()
        threading.Thread(target=lambda: (job.stdout.readline(), ended.set())).start()
        key, last, looks = tuple(sorted([f"cache={self.name}", "tier=ram"])), 0, 0
        while not ended.is_set():
            now = exporter.scrape()["cubeshim_hits_total"][key]
            self.assertGreaterEqual(now, last)
            last, looks = now, looks + 1
        self.assertGreater(looks, 20)
        self.assertEqual(exporter.scrape()["cubeshim_hits_total"][key], 80 * 20)

    def test_removed_caches_are_not_reported(self):
        job = self.start_job()
        exporter = Exporter(self)
        first = exporter.scrape()
        key = (f"cache={self.name}",)
        self.assertEqual(first["cubeshim_cache_up"], {key: 1})
        job.stdin.close()
        job.wait()
        left = exporter.scrape()
        self.assertEqual(
            [name for name in left if not name.startswith(("exposer_", "cubeshim_exporter_"))], [])
        # The counters of a new cache begin at zero, and the cache reports its start time.
        self.start_job()
        second = exporter.scrape()
        self.assertLess(first["cubeshim_cache_start_time_seconds"][key],
                        second["cubeshim_cache_start_time_seconds"][key])
        self.assertEqual(second["cubeshim_misses_total"][key], 1)
        self.assertEqual(exporter.errors.read_text(), "")

    def test_a_job_that_is_killed_keeps_its_counts_and_has_no_process(self):
        names = self.data.parent / "list"
        names.write_text(f"{self.file}\n")
        job = self.start_job(options=["--prefetch-list", names])
        exporter = Exporter(self)
        key = (f"cache={self.name}",)
        self.assertEqual(exporter.scrape()["cubeshim_processes"][key], 1)
        until(lambda: exporter.scrape()["cubeshim_prefetch_depth"][key] > 0, "it may fetch ahead")
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        # The slot's lock ends with the process's memory, and a reader of the process's /proc files
        # can keep this memory for a moment.
        now = until(lambda: (now := exporter.scrape())["cubeshim_processes"][key] == 0 and now,
                    "the process is gone")
        self.assertEqual([
            now[name][key]
            for name in ("cubeshim_jobs", "cubeshim_misses_total", "cubeshim_prefetch_depth")
        ], [0, 1, 0])

    def test_names(self):
        for name in ("one", "two", "three"):
            self.kept_region(name)
        exporter = Exporter(self, "--name", "one", "--name", "two", "--name", "one", "--name",
                            "later")
        self.assertEqual(exporter.scrape()["cubeshim_cache_up"],
                         {("cache=one",): 1, ("cache=two",): 1, ("cache=later",): 0})
        self.assertEqual(
            exporter.errors.read_text(),
            f"cubeshim: there is no cache named later in {self.ram_dir} yet: "
            "its metrics come when a job makes it\n")
        self.kept_region("later")
        self.assertEqual(exporter.scrape()["cubeshim_cache_up"][("cache=later",)], 1)
        done, written = self.textfile(env={"CUBESHIM_NAME": "three"})
        self.assertEqual(written["cubeshim_cache_up"], {("cache=three",): 1})
        done, written = self.textfile("--name", "nobody")
        self.assertEqual((done.returncode, done.stderr.decode()),
                         (1, f"cubeshim: there is no cache named nobody in {self.ram_dir}\n"))

    def test_a_browser_gets_a_page_that_leads_to_the_metrics(self):
        exporter = Exporter(self)
        root = exporter.url.removesuffix("metrics")
        with urllib.request.urlopen(root, timeout=300) as answer:
            self.assertEqual(answer.headers.get_content_type(), "text/html")
            self.assertIn('<a href="metrics">', answer.read().decode())
        with self.assertRaises(urllib.error.HTTPError) as other:
            urllib.request.urlopen(root + "other", timeout=300)
        self.addCleanup(other.exception.close)
        self.assertEqual(other.exception.code, 404)
        exporter.scrape()

    def test_signals_end_it(self):
        exporters = {number: Exporter(self) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, exporter in exporters.items():
            exporter.scrape()
            exporter.child.send_signal(number)
        for exporter in exporters.values():
            self.assertEqual(exporter.child.wait(60), 0)
            self.assertEqual(exporter.errors.read_text(), "")


class Textfile(ExporterCase):
    def test_file_is_whole_at_any_time_and_removed_with_the_exporter(self):
        self.kept_region()
        file = self.data / "cubeshim.prom"
        child = self.start("exporter", "--textfile", file, "--every", "1", "--ram-dir",
                           self.ram_dir)
        until(file.exists, "no file")
        seen = set()

        def has_changed():
            text = file.read_text()
            self.assertRegex(text, r"\ncubeshim_exporter_collect_seconds \S+\n$")
            seen.add(file.stat().st_ino)
            return len(seen) > 2

        until(has_changed, "it is not written again")
        self.assertEqual(file.stat().st_mode & 0o777, 0o644)
        child.terminate()
        self.assertEqual(child.wait(60), 0)
        self.assertEqual([path.name for path in self.data.iterdir()], ["f"])

    def test_a_file_that_cannot_be_written(self):
        (self.data / "d.prom").mkdir()
        for file, why in ((self.data / "no/x.prom",
                           "No such file or directory"), (self.data / "d.prom", "Is a directory"),
                          (self.file / "x.prom", "Not a directory"), ("/proc/x.prom",
                                                                      "No such file or directory")):
            done = self.command("exporter", "--textfile", file, "--ram-dir", self.ram_dir)
            self.assertEqual((done.returncode, done.stderr.decode()),
                             (1, f"cubeshim: cannot write {file}: {why}\n"))
        self.assertEqual(sorted(path.name for path in self.data.iterdir()), ["d.prom", "f"])

    def test_no_link_in_the_place_of_its_own_file_is_followed(self):
        """Other users may be allowed to write to the folder."""
        victim = self.data.parent / "victim"
        victim.write_text("mine")
        (self.data / "x.prom").symlink_to(victim)
        done = subprocess.run([COMMAND, "exporter", "--once", "--textfile", self.data / "x.prom",
                               "--ram-dir", self.ram_dir])
        self.assertEqual(done.returncode, 0)
        self.assertEqual(victim.read_text(), "mine")
        self.assertIn("cubeshim_exporter_build_info", (self.data / "x.prom").read_text())


class Refused(ExporterCase):
    def test_wrong_arguments_are_refused(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            rows = [(
                ["--listen", "localhost:9437"], 2,
                '--listen "localhost:9437" is not usable: it takes an address and a port, such as '
                "127.0.0.1:9437 or [::1]:9437"
            ), (["--listen", "127.0.0.1"], 2, '--listen "127.0.0.1" is not usable'),
                    (["--listen", "127.0.0.1:70000"], 2,
                     '--listen "127.0.0.1:70000" is not usable'),
                    (["--listen", "127.0.0.1:1x"], 2, '--listen "127.0.0.1:1x" is not usable'),
                    (["--listen", "::1:9437"], 2, '--listen "::1:9437" is not usable'),
                    (["--listen", f"127.0.0.1:{port}"], 1,
                     f"cannot listen on 127.0.0.1:{port}: Address already in use"),
                    (["--listen", "192.0.2.1:9437"], 1,
                     "cannot listen on 192.0.2.1:9437: Cannot assign requested address"),
                    (["--name", "a/b"], 2, '--name "a/b" is not usable: it takes 1 to 64 letters'),
                    (["--ram-dir", "shm"], 2, '--ram-dir "shm" is not usable: it takes'),
                    (["--ram-dir", "/no/such"], 1,
                     "cannot read the directory of the caches, /no/such: No such file or directory"
                    ), (["--once"], 2, "--once and --every need --textfile FILE"),
                    (["--every", "0", "--textfile", "x.prom"], 2, '--every "0" is not usable'),
                    (["--textfile", "x.prom", "--once", "--every",
                      "3"], 2, "give either --once or --every, not both"),
                    (["--textfile", "x.prom", "--listen",
                      "127.0.0.1:0"], 2, "give either --listen or --textfile, not both"),
                    (["--textfile", "x"], 2,
                     "--textfile x: node_exporter only reads files whose names end in .prom"),
                    (["--textfile", "-", "--every",
                      "1"], 2, "--textfile - is standard output, which needs --once")]
            for words, status, text in rows:
                with self.subTest(words=words):
                    done = self.command("exporter", *words)
                    self.assertTrue(done.stderr.decode().startswith("cubeshim: " + text),
                                    done.stderr)
                    self.assertEqual((done.returncode, done.stderr.count(b"\n")), (status, 1))

    def test_ipv6_works_or_is_refused_in_one_line(self):
        """Debian's civetweb is built without it."""
        child = self.start("exporter", "--listen", "[::1]:0", "--ram-dir", self.ram_dir,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if url := child.stdout.readline().decode().strip():
            with urllib.request.urlopen(url, timeout=300) as answer:
                self.assertIn(b"cubeshim_exporter_build_info", answer.read())
            return
        self.assertRegex(child.stderr.read().decode(),
                         r"\Acubeshim: cannot listen on \[::1\]:0: [^\n]+\n\Z")
        self.assertEqual(child.wait(60), 1)


class Hostile(ExporterCase):
    def copy_of(self, region, name, size=None):
        """Makes a copy of a region, with the same holes."""
        path = self.region_of(name)
        layout = Layout(region)
        with region.open("rb") as source, path.open("wb") as target:
            target.write(source.read(layout.segments))
            target.truncate(layout.file_bytes if size is None else size)
        path.chmod(0o600)
        return path

    def spoil(self, path, at, data):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def test_invalid_regions_are_reported_once(self):
        region = self.kept_region("sound")
        self.spoil(self.copy_of(region, "version"), 8, b"\xff\0\0\0")
        self.copy_of(region, "short", PAGE * 3)
        self.copy_of(region, "cut", 100)
        self.copy_of(region, "open").chmod(0o644)
        self.spoil(self.copy_of(region, "sizes"), 16, b"\xff" * 64)
        self.region_of("empty").write_bytes(b"")
        self.region_of("empty").chmod(0o600)
        self.region_of("folder").mkdir()
        os.mkfifo(self.region_of("fifo"))
        self.region_of("link").symlink_to(region)
        os.link(self.copy_of(region, "twice"), self.ram_dir / "other")
        (self.ram_dir / "cubeshim-4711-others").write_text("of another user")
        self.region_of("a b").write_text("no name of a cache")
        wrong = {
            "version", "short", "cut", "open", "sizes", "empty", "folder", "fifo", "link", "twice"
        }
        if os.geteuid() == 0:
            os.chown(self.copy_of(region, "foreign"), 4711, 4711)
            wrong.add("foreign")
        exporter = Exporter(self)
        for _ in range(3):
            self.assertEqual(exporter.scrape()["cubeshim_cache_up"],
                             {(f"cache={name}",): 0 for name in wrong} | {("cache=sound",): 1})
        # Each wrong cache is reported only one time.
        lines = exporter.errors.read_text().splitlines()
        self.assertEqual(sorted(lines), sorted({*lines}))
        self.assertEqual(len(lines), len(wrong), lines)
        self.assertIn(f"cubeshim: {self.region_of('version')} is of layout version 255, ",
                      exporter.errors.read_text())

    def test_a_region_that_is_cut_short_while_it_is_read(self):
        region = self.kept_region("sound")
        cut = self.copy_of(region, "cut")
        whole = cut.stat().st_size
        exporter = Exporter(self)
        ended = threading.Event()
        cutter = os.open(cut, os.O_RDWR)
        self.addCleanup(os.close, cutter)

        def cut_and_mend():
            while not ended.is_set():
                os.ftruncate(cutter, PAGE)
                os.ftruncate(cutter, whole)

        thread = threading.Thread(target=cut_and_mend)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(ended.set)

        def was_cut():
            self.assertEqual(exporter.scrape()["cubeshim_cache_up"][("cache=sound",)], 1)
            return f"{cut} was cut short while it was read" in exporter.errors.read_text()

        until(was_cut, "it was never cut in time")

    def test_random_bytes_in_the_tables(self):
        region = self.kept_region("sound")
        layout = Layout(region)
        dice = random.Random(1)
        servers, jobs = self.copy_of(region, "servers"), self.copy_of(region, "jobs")
        self.spoil(servers, layout.servers, dice.randbytes(192 * 64))
        self.spoil(jobs, layout.jobs, dice.randbytes(layout.pins - layout.jobs))
        chunks = self.copy_of(region, "chunks")
        self.spoil(chunks, layout.segments, b"\xff" * (layout.index[0] - layout.segments))
        exporter = Exporter(self)
        scraped = exporter.scrape()
        # The rows of `chunks` have one name.
        of_cache = [labels[0] for labels in scraped["cubeshim_cluster_server_up"]]
        self.assertEqual([of_cache.count(f"cache={name}") for name in ("servers", "chunks")],
                         [64, 1])
        self.assertTrue(
            all(label.isprintable()
                for labels in scraped["cubeshim_cluster_server_up"]
                for label in labels))
        self.assertEqual(scraped["cubeshim_cache_up"],
                         {(f"cache={name}",): 1 for name in ("sound", "servers", "jobs", "chunks")})
        self.assertEqual(exporter.errors.read_text(), "")

    def test_a_bucket_ends_at_its_bound(self):
        """Each power of two has four buckets, and here all buckets have the same count."""
        region = self.kept_region("sound")
        layout = Layout(region)
        even = self.copy_of(region, "even")
        self.spoil(even, layout.jobs,
                   (1).to_bytes(4, "little") * ((layout.processes - layout.jobs) // 4))
        _, written = self.textfile("--name", "even")
        for name in ("cubeshim_miss_open_seconds_bucket", "cubeshim_hit_open_seconds_bucket"):
            counts = [*written[name].values()]
            jobs = (counts[1] - counts[0]) / 4
            self.assertGreater(jobs, 0)
            # The first reported bound is 256 ns. Below 4 ns, each nanosecond has its own bucket.
            self.assertEqual([count / jobs for count in counts[:-1]],
                             [4 * (bound - 1) for bound in range(8, 35)])

    def test_a_hundred_regions(self):
        region = self.kept_region("sound")
        for i in range(100):
            self.copy_of(region, f"r{i}")
        exporter = Exporter(self)
        self.assertEqual(len(exporter.scrape()["cubeshim_misses_total"]), 101)
        for i in range(99):
            self.region_of(f"r{i}").unlink()
        self.assertEqual(exporter.scrape()["cubeshim_misses_total"], {("cache=r99",): 1,
                                                                      ("cache=sound",): 1})
        # No mapping and no fd of a removed region is held.
        process = Path(f"/proc/{exporter.child.pid}")
        self.assertNotIn(str(self.ram_dir), (process / "maps").read_text())
        self.assertEqual(
            [fd for fd in (process / "fd").iterdir() if str(self.ram_dir) in os.readlink(fd)], [])

    def test_silent_clients_do_not_block_others(self):
        exporter = Exporter(self)
        for i in range(20):
            client = self.enterContext(socket.create_connection(("127.0.0.1", exporter.port)))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost:" if i % 2 else b"")
        self.assertIn("cubeshim_exporter_build_info", exporter.scrape())


if __name__ == "__main__":
    unittest.main()
