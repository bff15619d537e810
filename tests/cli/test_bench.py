"""`cubeshim bench` on a mount with a known latency. The mount counts the operations that reach
it."""
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from cli_case import COMMAND, CONTENT, Case

LAGFS = Path(COMMAND).parent / "lagfs"
CHANGES = ("create", "write", "setattr", "mknod", "mkdir", "unlink", "rmdir", "rename", "link",
           "symlink", "setxattr", "fallocate")


class Bench(Case):
    def setUp(self):
        super().setUp()
        self.file.unlink()
        self.mount = self.data.parent / "mount"
        self.disk = self.data.parent / "disk"
        for directory in (self.mount, self.disk):
            directory.mkdir()
        for folder in range(80):
            (self.data / f"d{folder}").mkdir()
            for i in range(5):
                path = self.data / f"d{folder}/{i}"
                path.write_bytes(CONTENT[:100 + 97 * i])

    def mount_with(self, **latency):
        words = [
            f"--{name}-us={latency.get(name, 0)}" for name in ("lookup", "open", "read", "getattr",
                                                               "readdir")
        ]
        subprocess.run([LAGFS, *words, "--entry-timeout=3600", self.data, self.mount], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", self.mount], check=True))

    def bench(self, directory, *words):
        done = self.command("bench", directory, "--json", "--disk-dir", self.disk, *words)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        report = json.loads(done.stdout)
        report["mount"] = {(row["operation"], row["in_flight"]): row for row in report["mount"]}
        return report

    def counters(self):
        return json.loads((self.mount / ".lagfs/counters.json").read_text())

    def test_the_latency_of_the_mount_is_found(self):
        # The kernel keeps the names long enough that a file that is read again is not looked up,
        # even on a busy machine.
        self.mount_with(open=3000, read=2000, lookup=5000, readdir=4000)
        report = self.bench(self.mount)
        least = {"open": 8000, "read": 2000, "stat": 5000, "list": 4000, "file": 10_000}
        for operation, us in least.items():
            for in_flight in (1, 32):
                row = report["mount"][operation, in_flight]
                self.assertGreaterEqual(row["p50_us"], us, row)
                self.assertGreaterEqual(row["p99_us"], row["p50_us"])
        one, many = report["mount"]["file", 1], report["mount"]["file", 32]
        # On a busy machine, the time limit of an operation ends before all 100 files are read.
        self.assertIn(one["count"], range(1, 101))
        self.assertIn(many["count"], range(32, 101))
        self.assertLess(one["per_s"], 1e6 / 10_000)
        self.assertGreater(many["per_s"], 4 * one["per_s"])
        self.assertLess(report["mount"]["file again", 1]["p50_us"], one["p50_us"])
        self.assertEqual((report["files_seen"], report["is_whole"], report["failed"]),
                         (400, True, 0))

    @unittest.skipIf(os.geteuid() != 0, "needs root, to mount")
    def test_hits_are_measured_beside_a_coarse_clock(self):
        """If the times of a disk are whole seconds, files are not cached for two seconds, so the
        measurement must wait."""
        image = self.data.parent / "image"
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        if any(
                subprocess.run(command, capture_output=True).returncode != 0
                for command in (["mkfs.ext4", "-q", "-I", "128", image],
                                ["mount", "-o", "loop", image, self.disk])):
            self.skipTest("no file system can be made here")
        self.addCleanup(lambda: subprocess.run(["umount", "-l", self.disk], check=True))
        machine = self.bench(self.data)["machine"]
        self.assertEqual((machine["not_measured"], machine["unserved"]), ("", ""))
        self.assertGreater(machine["hit"]["count"], 0)

    def test_nothing_is_written_there_and_each_cold_file_is_read_once(self):
        self.mount_with()
        self.bench(self.mount)
        counters = self.counters()
        self.assertEqual({name: counters[name]["count"] for name in CHANGES},
                         dict.fromkeys(CHANGES, 0))
        # The command opens 100 files without the library, the same 100 files again, and 100 other
        # files.
        self.assertEqual(counters["open"]["data_files"], 300)
        self.assertEqual(counters["opendir"]["count"], 81)

    def test_a_hit_is_one_of_the_library_and_nothing_is_left(self):
        before = set(os.listdir("/dev/shm"))
        report = self.bench(self.data)
        machine = report["machine"]
        self.assertEqual(machine["not_measured"], "")
        self.assertGreater(machine["hit"]["count"], 200)
        self.assertLess(machine["hit"]["p50_us"], machine["disk_cold"]["p50_us"])
        # The regions of the project's own benchmarks have another number at their end.
        left = {name for name in os.listdir("/dev/shm") if re.search(r"-bench-\d+$", name)} - before
        self.assertEqual((os.listdir(self.disk), left), ([], set()))

    def test_reports_no_hits_without_the_library(self):
        alone = self.data.parent / "bin/cubeshim"
        alone.parent.mkdir()
        shutil.copy(COMMAND, alone)
        done = subprocess.run([alone, "bench", self.data], capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("hits: not measured: libcubeshim.so is not beside this command", done.stdout)
        self.assertIn("Epoch 2: unknown", done.stdout)

    def test_it_ends_in_time(self):
        self.mount_with(open=200_000)
        report = self.bench(self.mount, "--seconds", 1)
        self.assertIn(report["mount"]["file", 1]["count"], range(1, 3))

    def test_reads_at_most_the_given_number_of_files(self):
        report = self.bench(self.data, "--files", 20)
        self.assertEqual(report["files_read"], 10)

    def test_text_reports_whether_all_files_fit(self):
        for words, wanted in (([], "they fit into the "),
                              (["--ram", "8M"],
                               "and memory holds 8.0 MiB: the rest is read from the mount")):
            done = self.command("bench", self.data, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            text = done.stdout.decode()
            self.assertIn(wanted, text)
            self.assertIn(
                "\n400 were measured: 100 read one at a time, 100 read 32 at once, 100 only "
                "stat'ed one at a time, 100 only stat'ed 32 at once\n", text)
            for begin in ("Today: ", "Epoch 1: ", "Epoch 2: ", "Read again right away",
                          "Not measured: "):
                self.assertEqual(sum(line.startswith(begin) for line in text.splitlines()), 1, text)
            for path in self.data.glob("*/0"):
                path.write_bytes(bytes(1 << 20))

    def test_files_that_are_too_large_are_reported(self):
        for path in self.data.glob("*/0"):
            path.write_bytes(bytes(20_000))
        done = self.command("bench", self.data, "--max-file", "10K")
        self.assertRegex(
            done.stdout.decode(),
            r"\n\d+ files are larger than CUBESHIM_MAX_FILE \(10.0 KiB\): they were not read")

    def test_wrong_use_is_reported_in_one_line(self):
        empty = self.data.parent / "empty"
        empty.mkdir()
        for words, status, text in (([], 2, "DIRECTORY is required"), ([
                "/no/such"
        ], 2, "/no/such: No such file or directory"), ([
                self.data / "d0/0"
        ], 2, "is not a directory: bench takes a directory"), ([
                empty
        ], 1, "holds no regular file"), ([
                self.data, "--files", "0"
        ], 2, '--files "0" is not usable: it takes a whole number from 1 to 1000000'),
                                    ([self.data, "--ram", "12Q"], 2, '--ram "12Q" is not usable'),
                                   ):
            done = self.command("bench", *words)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")),
                             (status, b"", 1), (words, done.stderr))
            self.assertIn(text, done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
