"""`cubeshim warmup` and metadata: a later job finds listings and stats in the cache, and requests
nothing from the mount."""
import json
import os
import subprocess
import sys
import time
import unittest

from cli_case import COMMAND
from test_warmup import Warmup

OLD = (1_700_000_000, 1_700_000_000)
LOOK = """
import os, sys
names = [os.path.join(top, name) for top, _, files in os.walk(sys.argv[1]) for name in files]
print(len(names), sum(map(os.path.getsize, names)), os.path.exists(sys.argv[1] + "/a/none"))
"""


class Names(Warmup):
    def setUp(self):
        super().setUp()
        self.age(self.source)

    def age(self, root):
        """Makes directories old, because the listing of a directory that was just changed is not
        kept."""
        for top, _, files in os.walk(root):
            for name in files:
                os.utime(os.path.join(top, name), OLD)
            os.utime(top, OLD)

    def asked(self):
        counted = json.loads((self.mount / ".lagfs/counters.json").read_text())
        return sum(sum(by.values()) for by in counted.values() if isinstance(by, dict))

    def asked_by(self, act):
        """Returns the operations at the mount that `act` causes, without those caused by reading
        the counters."""
        first, second = self.asked(), self.asked()
        act()
        return self.asked() - second - (second - first)

    def look(self):
        """Runs a job that walks the tree and requests the size of each file."""
        done = self.command("run", "-p", self.mount, "--name", self.name, "--ram", "32M",
                            "--ram-keep", "1", "--stats", "off", sys.executable, "-c", LOOK,
                            self.mount, env={"CUBESHIM_METADATA_TTL": "600"})
        self.assertEqual(
            done.stdout.decode().split(),
            ["60",
             str(sum((self.source / name).stat().st_size for name in self.names)), "False"])

    def test_a_job_after_it_asks_the_mount_for_nothing(self):
        status, summary, _ = self.warmup("-p", self.mount, "--metadata-only", self.mount)
        self.assertEqual(
            (status, summary["what"], summary["directories"], summary["names"], summary["stats"]),
            (0, "metadata", 4, 63, 63))
        self.assertEqual(self.asked_by(self.look), self.asked_by(self.idle))

    def idle(self):
        """Runs a job that reads nothing, so that only the command uses its prefix."""
        self.command("run", "-p", self.mount, "--name", self.name, "--ram", "32M", "--ram-keep",
                     "1", "--stats", "off", "true")

    def test_mount_is_asked_without_a_warmup(self):
        self.assertGreater(self.asked_by(self.look), 60)

    def test_a_usual_warmup_loads_listings_too(self):
        status, summary, _ = self.warmup("-p", self.mount, self.mount)
        self.assertEqual((status, summary["fetched"], summary["names"]),
                         (0, 60, {"directories": 4, "names": 63}))
        self.assertEqual(self.asked_by(lambda: self.walk(4)), self.asked_by(self.idle))

    def walk(self, directories):
        done = self.command("run", "-p", self.mount, "--name", self.name, "--ram", "32M",
                            "--ram-keep", "1", "--stats", "off", sys.executable, "-c",
                            "import os, sys; print(len(list(os.walk(sys.argv[1]))))", self.mount,
                            env={"CUBESHIM_METADATA_TTL": "600"})
        self.assertEqual(done.stdout.decode().split(), [str(directories)])

    def test_listings_loaded_before_are_counted_again(self):
        for _ in range(2):
            status, summary, _ = self.warmup("-p", self.mount, "--metadata-only", self.mount)
            self.assertEqual((status, summary["directories"], summary["stats"]), (0, 4, 63))

    def test_a_running_job_is_joined(self):
        job = self.start_job("--metadata-ttl", "600")
        status, summary, _ = self.warmup("--metadata-only", self.mount, keep=False)
        self.assertEqual((status, summary["stats"]), (0, 63))
        job.communicate(b"end\n", timeout=300)

    def test_a_directory_that_was_just_changed_is_reported_and_walked(self):
        (self.source / "b/new").write_bytes(b"new")
        soon = time.time() + 3600  # so that the change is still new on a busy machine
        os.utime(self.source / "b", (soon, soon))
        status, summary, _ = self.warmup("-p", self.mount, "--metadata-only", self.mount)
        self.assertEqual((status, summary["directories"]), (1, 3))
        self.assertEqual(summary["reasons"], [{
            "reason": "changed less than two seconds before", "directories": 1,
            "first": f"{self.mount}/b"
        }])

    def test_metadata_beyond_its_room_is_reported(self):
        many = self.source / "many"
        many.mkdir()
        for i in range(400):
            (many / f"{i}{'x' * 200}").touch()
        self.age(many)
        status, summary, _ = self.warmup("-p", self.mount, "--metadata-ram", "64K",
                                         "--metadata-only", self.mount)
        self.assertEqual(status, 1)
        self.assertIn("beyond CUBESHIM_METADATA_RAM", [row["reason"] for row in summary["reasons"]])

    def test_more_uncached_directories_than_files_may_be_open(self):
        for i in range(300):
            path = self.source / f"many/{i}"
            path.mkdir(parents=True)
            os.utime(path, (4e9, 4e9))
        os.utime(path.parent, (4e9, 4e9))
        done = subprocess.run([
            "prlimit", "--nofile=200", COMMAND,
            *self.words("--json", "-p", self.mount, "--metadata-only", self.mount / "many")
        ], capture_output=True, timeout=300)
        reasons = {row["reason"]: row["directories"] for row in json.loads(done.stdout)["reasons"]}
        self.assertEqual(reasons, {"changed less than two seconds before": 301})

    def test_wrong_use_is_reported_in_one_line(self):
        for words, said in ((["--metadata-only",
                              self.mount / "a/1"], "--metadata-only takes only directories"),
                            (["--metadata-only", "--filelist", "-",
                              self.mount], "--metadata-only takes directories, and no --filelist"),
                            (["--metadata-only", "--metadata", "0",
                              self.mount], "no metadata is cached with CUBESHIM_METADATA=0"),
                            (["--metadata-only", "--check",
                              self.mount], "--check excludes --metadata-only")):
            with self.subTest(said):
                status, summary, errors = self.warmup("-p", self.mount, *words)
                self.assertEqual((status, summary, errors.count("\n")), (2, None, 1), errors)
                self.assertIn(said, errors)

    def test_a_directory_outside_the_prefixes_is_left_out(self):
        status, summary, _ = self.warmup("-p", self.mount / "a", "--metadata-only",
                                         self.mount / "b")
        self.assertEqual((status, summary["directories"], summary["reasons"][0]["reason"]),
                         (1, 0, "outside CUBESHIM_PREFIXES"))


del Warmup

if __name__ == "__main__":
    unittest.main(verbosity=2)
