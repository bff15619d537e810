"""`cubeshim plan`: compares the counts of its forecasts with real runs of the same job. Also tests
its output, and runs that it cannot use."""
import json
import re
import shutil
import sys
import unittest
from pathlib import Path

from cli_case import COMMAND, Case

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.harness.mount import SlowMount  # noqa: E402
from bench.harness.suite import Bench  # noqa: E402
from bench.jobs import planned  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
OBSERVED = ("--observe",)
JOBS = (planned.Job("random epochs", 500, 20 * KIB, 120 * KIB, "24M", OBSERVED),
        planned.Job("mmap", 300, 64 * KIB, 256 * KIB, "24M", OBSERVED, how="mmap"),
        planned.Job("mixed sizes", 600, 2 * KIB, 256 * KIB, "20M", OBSERVED, processes=2,
                    takes_turns=True),
        planned.Job("data 4 x memory", 600, 40 * KIB, 100 * KIB, "12M", OBSERVED),
        planned.Job("shards", 4, 20 * MIB, 28 * MIB, "72M", OBSERVED, how="parts", order="same"))


class Plan(Case):

    def setUp(self):
        super().setUp()
        self.bench = Bench(Path(COMMAND).parent, self.data.parent, True)
        self.out = self.data.parent / "run"

    def refused(self, *words, status=1):
        done = self.command("plan", *words)
        text = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout, text.count("\n")), (status, b"", 1), text)
        return text

    def observe_cat(self, *words):
        done = self.command("profile", "--observe", "-p", self.data, "--stats", "off", "--out",
                            self.out, "--", "cat", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return next(self.out.glob("raw.*"))

    def test_hit_ratios_are_those_of_the_cache(self):
        for job in JOBS:
            with self.subTest(job.name):
                root = self.data / job.name.replace(" ", "-")
                planned.make_files(job, root)
                with SlowMount(self.bench.lagfs, root, self.data.parent, 0) as mount:
                    planned.observe(self.bench, job, mount.path, self.out)
                    found = planned.plan(self.bench, self.out, job)
                    first, *later = planned.run(self.bench, job, mount.path, 3)
                self.assertAlmostEqual(found["first"]["hit_ratio"], first.hit_ratio, delta=0.03)
                for epoch in later:
                    self.assertAlmostEqual(found["later"]["hit_ratio"], epoch.hit_ratio, delta=0.03)
                self.assertTrue(0.1 < found["later"]["hit_ratio"] < 0.9, "the memory is no limit")
                shutil.rmtree(root)

    def test_file_counts_though_its_fd_was_that_of_a_directory(self):
        done = self.command(
            "profile", "--observe", "-p", self.data, "--stats", "off", "--out", self.out, "--",
            sys.executable, "-c", "import os, sys\n"
            "os.listdir(sys.argv[1])\nopen(sys.argv[2], 'rb').read()", self.data, self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.command("plan", self.out, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["observed"]["files"], 1)

    def test_the_text_fits_a_terminal_and_names_the_settings(self):
        self.observe_cat(self.file, self.file)
        done = self.command("plan", self.out, "--nodes", "1,2")
        text = done.stdout.decode()
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
        self.assertLessEqual(text.count("\n"), 60)
        self.assertRegex(text, r"Observed without a cache: 50\.0 KiB in 1 file")
        self.assertIn("not measured from memory", text)
        self.assertRegex(text, r"\n  export CUBESHIM_RAM=\d+M\n$")
        self.assertRegex(text, r"(?m)^ +8\.0 MiB +100\.0 % +>\d+\.\d\d s \|#{40}$")

    def test_files_beyond_the_memory_get_a_disk_that_holds_them(self):
        raw = self.observe_cat(self.file)
        size, mib = 1 << 40, 17 << 16  # memory for all files; with the second, a sixteenth more
        raw.write_text(re.sub(r"(?m)^file\t.*",
                              lambda line: re.sub(r"\b51200\b", str(size), line[0]),
                              raw.read_text()))
        found = json.loads(self.command("plan", self.out, "--json").stdout)["settings"]
        self.assertEqual(set(found), {"CUBESHIM_RAM", "CUBESHIM_DISK", "CUBESHIM_DISK_DIR"})
        self.assertGreater(int(found["CUBESHIM_DISK"].removesuffix("M")), mib)

    def test_json_has_the_sizes_that_were_asked_for(self):
        self.observe_cat(self.file)
        done = self.command("plan", self.out, "--json", "--ram", "16M,1G", "--disk", "0,2G",
                            "--nodes", "3")
        found = json.loads(done.stdout)
        self.assertEqual([(p["ram"], p["disk"], p["nodes"], p["pack"]) for p in found["plans"]],
                         [(ram, disk, 3, pack)
                          for pack in (False, True)
                          for disk in (0, 2 << 30)
                          for ram in (16 << 20, 1 << 30)])
        self.assertEqual(found["observed"]["files"], 1)
        self.assertIsNone(found["observed"]["memory_us"])
        self.assertGreater(found["observed"]["origin_us"], 0)

    def test_runs_that_cannot_be_used_are_refused_in_a_line(self):
        self.assertRegex(self.refused(self.out),
                         "cannot read .*No such file.*profile --observe --out")
        self.out.mkdir()
        self.assertRegex(self.refused(self.out), "there is no observed run in")
        raw = self.observe_cat(self.file)
        text = raw.read_text()
        raw.write_text(text.removesuffix("end\n"))
        self.assertRegex(self.refused(self.out), "cut off")
        raw.write_text(re.sub(r"^cubeshim-profile\t\d+", "cubeshim-profile\t99", text))
        self.assertRegex(self.refused(self.out), "another version")
        raw.write_text(re.sub(r"(?m)^file\t.*\n", "", text))
        self.assertRegex(self.refused(self.out), "the run is empty")
        self.assertRegex(self.refused(self.out, "--ram", "4M", status=2),
                         "--ram \"4M\" .*at least 8")
        self.assertRegex(self.refused(self.out, "--nodes", "0", status=2), "--nodes")


if __name__ == "__main__":
    unittest.main()
