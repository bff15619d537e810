"""A second job finds the files of the first job on the disk, even if the first job was killed. A
failing disk harms no program."""
import json
import os
import resource
import shutil
import signal
import subprocess
import time

from support import FILES, DiskCase, crash

SILENCE_S = 2.5  # longer than k_writer_is_gone_ns (cache/region/segments.cc)


def check_that_nothing_was_read(case):
    """Fails if a fetch has read from the origin. An open that has waited a second for the prefetch
    of its file leaves the reads to the program."""
    report = json.loads(case.report.read_text())
    case.assertEqual((report["misses"], report["origin"]["reads"]), (0, 0), report)
    if report["bypassed"]["busy"] == 0:
        case.assertEqual(case.counters()["read"], 0, report)


class Warm(DiskCase):
    def first(self, **more):
        job, right = self.start(**more)
        self.assertEqual(right, FILES)
        self.wait_for_disk(job, FILES)
        return job

    def check_warm(self, **more):
        self.reset()
        right, report, said = self.run_job(**more)
        counts = self.counters()
        self.assertEqual(right, FILES)
        self.assertEqual(said, [])
        self.assertEqual(counts["read"], 0, counts)
        self.assertEqual(counts["open"], 0, counts)
        # The mount is new, so each name is looked up first, which already revalidates it at the
        # server.
        self.assertEqual((counts["lookup"], counts["getattr"]), (FILES, 0), counts)
        self.assertEqual(report["origin"]["reads"], 0)
        self.assertEqual(report["origin"]["stats"], FILES, "one for each file")
        self.assertEqual(report["hits"], {"ram": 0, "disk": FILES})
        self.assertEqual(report["misses"], 0)
        self.assertEqual(report["hit_rate"], 1.0)
        self.assertEqual(report["disk"]["entries"], FILES)
        times = report["time_ns"]
        self.assertTrue(times["hits"] >= times["slow_hits"] > 0 == times["misses"], times)

    def test_every_file_survives_sigkill(self):
        self.kill(self.first())
        self.check_warm()

    def test_every_file_survives_an_orderly_end(self):
        self.assertEqual(self.end(self.first()), 0)
        self.assertFalse(os.path.exists(self.region))
        self.check_warm()

    def test_files_read_by_the_shortest_jobs_are_there(self):
        # The writing thread must run before such a job ends, and has only 50 ms. So some files can
        # be missing, and on a busy machine only a few files are on the disk after the first jobs.
        for _ in range(5):
            for n in range(20):
                subprocess.run(["cat", f"{self.origin.root}/f{n}"], env=self.environment(),
                               stdout=subprocess.DEVNULL, check=True)
            if self.entries() >= 10:
                break
        right, report, said = self.run_job()
        self.assertEqual((right, said), (FILES, []))
        self.assertGreaterEqual(report["hits"]["disk"], 10)

    def test_a_record_from_the_disk_is_not_searched_there_again(self):
        # Searches go through the page cache; reads for a program bypass it.
        self.assertEqual(self.end(self.first()), 0)
        self.drop_segments()
        if self.segment_pages() != 0:
            self.skipTest("the page cache keeps what it has of these files: a tmpfs?")
        self.check_warm()
        # Only header and footer are read through the page cache; a search for each file would read
        # at least two pages.
        self.assertLess(self.segment_pages(), FILES)

    def test_every_file_survives_the_loss_of_the_index(self):
        self.kill(self.first())
        (self.cache_directory / "index").unlink()
        self.check_warm()

    def test_modes_that_ask_the_origin_at_each_open(self):
        self.kill(self.first(CONSISTENCY="open"))
        self.check_warm(CONSISTENCY="open")

    def test_files_of_a_pack_are_served_without_asking_the_origin(self):
        pack = self.work / "set.cube"

        def make_pack():
            pack.unlink(missing_ok=True)
            command = os.path.join(os.path.dirname(crash.LIBRARY), "cubeshim")
            subprocess.run(
                [command, "pack", "-q", self.origin.source("."), pack], check=True,
                stdout=subprocess.DEVNULL)

        make_pack()
        packs = f"{self.origin.root}={pack}"
        for consistency in ("immutable", "open"):
            self.kill(self.first(PACKS=packs, CONSISTENCY=consistency))
            right, report, said = self.run_job(PACKS=packs, CONSISTENCY=consistency)
            self.assertEqual((right, report["hits"], said), (FILES, {"ram": 0, "disk": FILES}, []))
            self.assertEqual((report["origin"]["reads"], report["origin"]["stats"]), (0, 0))
        # The new pack has files of the same sizes. No bytes of the old pack may be served.
        self.put(3, generation=1)
        make_pack()
        right, report, said = self.run_job(PACKS=packs)
        self.assertEqual((right, report["hits"]["disk"], said), (FILES, 0, []))

    def test_files_that_have_changed_meanwhile_come_from_the_origin(self):
        self.kill(self.first())
        for n in range(0, FILES, 4):
            self.put(n, generation=1)
        self.reset()
        right, report, said = self.run_job()
        self.assertEqual((right, said), (FILES, []))
        self.assertEqual(report["hits"]["disk"], FILES - FILES // 4)
        self.assertEqual(report["misses"], FILES // 4)

    def test_changed_mode_does_not_hide_a_file_from_the_rights_that_opened_it(self):
        for n, mode in ((0, 0o640), (1, 0o604), (2, 0o644), (3, 0o600)):
            os.chmod(self.origin.source(f"f{n}"), mode)
            if n != 3:
                os.chown(self.origin.source(f"f{n}"), 1234, 1234)
        self.kill(self.first())
        self.reset()
        right, report, said = self.run_job()
        self.assertEqual((right, said), (FILES, []))
        counts = self.counters()
        self.assertEqual((counts["open"], counts["read"]), (0, 0), counts)
        self.assertEqual(report["hits"], {"ram": 0, "disk": FILES})

    def test_path_through_a_link_has_a_separate_record(self):
        os.symlink("f5", self.origin.source("link"))
        self.files["link"] = self.files["f5"]
        (self.work / "sums").write_text("".join(
            f"{name} {crc}\n" for name, crc in self.files.items()))
        job, right = self.start()
        self.assertEqual(right, FILES + 1)
        self.wait_for_disk(job, FILES + 1)
        self.kill(job)
        self.reset()
        right, report, said = self.run_job()
        self.assertEqual((right, report["hits"], said),
                         (FILES + 1, {"ram": 0, "disk": FILES + 1}, []))
        self.assertEqual(self.counters()["open"], 0)
        # A file is replaced by a link.
        self.reset()
        os.rename(self.origin.source("f5"), self.origin.source("g5"))
        os.symlink("g5", self.origin.source("f5"))
        script = (f"import os; open('{self.origin.root}/f5').read(); "
                  f"print(os.path.islink('{self.origin.root}/f5'))")
        done = subprocess.run(["/usr/bin/python3", "-c", script], env=self.environment(),
                              capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("True\n", ""))
        self.tried()

    def test_a_write_that_sets_the_mtime_back_is_seen(self):
        self.kill(self.first())
        for n in range(0, FILES, 4):
            self.put(n, generation=1, modified=0)
        self.reset()
        right, report, said = self.run_job()
        self.assertEqual((right, said), (FILES, []))
        self.assertEqual(report["misses"], FILES // 4)

    def test_a_file_read_as_soon_as_it_is_written_is_fetched_again_once(self):
        now = int(time.time()) - 1_600_000_000
        for n in range(FILES):
            self.put(n, modified=now + 3600)
        self.kill(self.first())
        self.reset()
        right, report, _ = self.run_job()
        self.assertEqual((right, report["hits"]["disk"], report["misses"]), (FILES, 0, FILES))

    def test_a_listed_prefetch_takes_it_from_the_disk(self):
        self.kill(self.first())
        self.reset()
        (self.work / "list").write_text("".join(
            f"{self.origin.root}/{name}\n" for name in self.files))
        job, right = self.start(PREFETCH=1, PREFETCH_LIST=self.work / "list")
        self.assertEqual(right, FILES)
        self.assertEqual(self.end(job), 0)
        check_that_nothing_was_read(self)
        self.tried()

    def test_forked_readers_share_it(self):
        self.kill(self.first())
        self.reset()
        script = (
            "import os\nfor n in range(4):\n if os.fork() == 0:\n"
            f"  for i in range(n, {FILES}, 4): open(f'{self.origin.root}/f{{i}}', 'rb').read()\n"
            "  os._exit(0)\nfor n in range(4): assert os.wait()[1] == 0\n")
        done = subprocess.run(["/usr/bin/python3", "-c", script], env=self.environment(),
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.counters()["read"], 0)
        self.tried()


class Writer(DiskCase):
    def test_one_process_of_the_node_has_the_thread_until_it_is_gone(self):
        first, right = self.start()
        self.assertEqual(right, FILES)
        self.wait_for_disk(first, FILES)
        second, right = self.start()
        self.assertEqual(right, FILES)
        threads = lambda job: len(os.listdir(f"/proc/{job.pid}/task"))
        # Each worker has a keeper thread.
        self.assertEqual((threads(first), threads(second)), (3, 1))
        # A writer that is silent for SILENCE_S, as on a slow disk, is not replaced.
        self.addCleanup(first.kill)
        first.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline:
            self.assertEqual(self.again(second), FILES)
        self.assertEqual(threads(second), 1)
        self.end(first, by=9)
        deadline = time.monotonic() + 60
        while threads(second) < 3 and time.monotonic() < deadline:
            self.assertEqual(self.again(second), FILES)
        self.assertEqual(threads(second), 3)
        self.assertEqual(self.end(second), 0)
        self.tried()


# Reads all files with four processes, each of which reads a quarter, as often as requested.
WORKERS = """
import os, sys, zlib
sums = [line.split() for line in open(sys.argv[2])]
for epoch in range(int(sys.argv[3])):
    for n in range(4):
        if os.fork() == 0:
            for name, crc in sums[n::4]:
                with open(f'{sys.argv[1]}/{name}', 'rb') as f:
                    assert zlib.crc32(f.read()) == int(crc), name
            os._exit(0)
    for n in range(4): assert os.wait()[1] == 0
"""


class LargerThanMemory(DiskCase):
    """80 files of 800 kB, and memory for 20 of them."""
    size = 800_000
    ram = {"RAM": "16M"}

    def all_to_disk(self, **more):
        job, right = self.start(**self.ram, **more)
        self.assertEqual(right, FILES)
        # If files arrived faster than the disk could write them, they are written in the next
        # epoch.
        epochs = 1
        while self.entries() < FILES and epochs < 100:
            self.assertEqual(self.again(job), FILES)
            epochs += 1
        self.assertEqual(self.entries(), FILES, f"after {epochs} epochs")
        self.kill(job)
        self.assertEqual(self.complaints(), [])
        return epochs

    def check(self, report, counts, times=1):
        self.assertEqual((counts["open"], counts["read"]), (0, 0), counts)
        self.assertEqual(sum(report["hits"].values()), times * FILES, report)
        self.assertTrue(report["hits"]["disk"] >= FILES, report)
        self.assertEqual((report["misses"], sum(report["bypassed"].values())), (0, 0), report)

    def test_second_job_reads_every_file_from_the_disk(self):
        self.all_to_disk()
        self.reset()
        job, right = self.start(**self.ram)
        self.assertEqual((right, self.again(job)), (FILES, FILES))
        self.assertEqual(self.end(job), 0)
        self.check(json.loads(self.report.read_text()), self.counters(), times=2)
        self.tried()

    def test_job_that_wrote_the_files_reads_them_from_the_disk(self):
        job, right = self.start(**self.ram)
        for _ in range(100):
            if self.entries() >= FILES:
                break
            self.assertEqual(self.again(job), FILES)
        self.reset()
        self.assertEqual(self.again(job), FILES)
        counts = self.counters()
        self.assertEqual((counts["open"], counts["read"]), (0, 0), counts)
        self.assertEqual(self.end(job), 0)
        self.tried()

    def run_workers(self, epochs, **more):
        done = subprocess.run(
            ["/usr/bin/python3", "-c", WORKERS, self.origin.root, self.work / "sums",
             str(epochs)], env=self.environment(**more), capture_output=True, text=True,
            timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_forked_readers_fill_it_and_are_served(self):
        more = {"RAM": "32M", "RING": "16M"}
        for _ in range(50):
            if self.entries() >= FILES:
                break
            self.run_workers(1, **more)
        self.assertEqual(self.entries(), FILES)
        self.reset()
        self.run_workers(2, **more)
        counts = self.counters()
        self.assertEqual((counts["open"], counts["read"]), (0, 0), counts)
        self.tried()

    def test_with_a_listed_prefetch(self):
        (self.work / "list").write_text("".join(
            f"{self.origin.root}/{name}\n" for name in self.files))
        more = {"PREFETCH": 1, "PREFETCH_LIST": self.work / "list"}
        self.all_to_disk(**more)
        self.reset()
        job, right = self.start(**self.ram, **more)
        self.assertEqual((right, self.again(job)), (FILES, FILES))
        self.assertEqual(self.end(job), 0)
        check_that_nothing_was_read(self)
        self.tried()

    def test_full_disk_delays_no_reader(self):
        job, right = self.start(DISK="24M", **self.ram)
        for _ in range(3):
            self.assertEqual(self.again(job), FILES)
        self.read_until_told(job)
        self.assertEqual(right, FILES)
        self.assertTrue(self.entries() > 10, self.entries())
        self.assertEqual(self.end(job), 0)
        said = self.complaints()
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "is full")
        self.tried()


class Trouble(DiskCase):
    size = 200_000

    def check_job(self, says, **more):
        """Runs a job, which reads the right bytes twice and prints one line."""
        job, right = self.start(**more)
        self.assertEqual(right, FILES)
        self.assertEqual(self.again(job), FILES)
        self.read_until_told(job)
        self.assertEqual(self.end(job), 0)
        said = self.complaints()
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], says)
        self.tried()

    def test_missing_directory_is_named(self):
        shutil.rmtree(self.disk)
        absent = f"{self.disk}/of/nobody"
        self.check_job(f"CUBESHIM_DISK_DIR={absent}: No such file", DISK_DIR=absent)

    def test_another_version_is_left_alone(self):
        self.cache_directory.mkdir(mode=0o700)
        (self.cache_directory / "version").write_text("cubeshim disk 99\n")
        self.check_job("cubeshim disk 99")
        self.assertEqual(os.listdir(self.cache_directory), ["version"])

    def test_a_bound_without_a_directory_is_reported(self):
        self.check_job('CUBESHIM_DISK="10M" has no effect', DISK="10M", DISK_DIR="")

    def test_an_invalid_bound_is_reported(self):
        self.check_job('CUBESHIM_DISK="much" is not usable: it takes a size', DISK="much")

    def test_limit_of_file_sizes_ends_no_process(self):
        # The index of such a disk would be larger.
        self.check_job("File too large", DISK="1T", RAM="16M", limit=64 << 20)

    def test_later_limit_of_file_sizes_ends_no_process(self):
        job, right = self.start()
        self.assertEqual(right, FILES)
        self.wait_for_disk(job, FILES)
        resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        self.assertEqual(self.change(job, 5), FILES)
        self.assertEqual(self.end(job), 0)
        self.tried()

    def test_a_quota_is_kept(self):
        job, right = self.start(DISK="10M")
        self.assertEqual(right, FILES)
        self.wait_for_disk(job, 30)
        self.assertEqual(self.again(job), FILES)
        self.assertEqual(self.end(job), 0)
        used = sum(os.stat(entry).st_blocks * 512 for entry in os.scandir(self.cache_directory))
        self.assertLessEqual(used, (10 << 20) + (64 << 10))
        self.assertLessEqual(len(self.complaints()), 1, self.complaints())
        self.tried()

    def test_removed_directory_ends_no_process(self):
        job, right = self.start()
        self.assertEqual(right, FILES)
        self.wait_for_disk(job, FILES)
        shutil.rmtree(self.disk)
        self.put(0, generation=1)
        self.assertEqual(self.again(job), FILES,
                         "a file that was cached does not change under a job")
        self.assertEqual(self.end(job), 0)
        self.assertLessEqual(len(self.complaints()), 1, self.complaints())
        self.tried()

    def test_a_full_disk(self):
        self.disk = self.tmpfs("16m")
        with open(self.disk / "filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 10 << 20)
        self.check_job("is full|allows|No space left", DISK="64M")

    def test_a_disk_that_answers_errors(self):
        broken = crash.Mount(self)
        self.disk = broken.root
        job, right = self.start()
        self.assertEqual(right, FILES)
        self.wait_for_disk(job, FILES)
        self.kill(job)
        broken.script("fail read EIO 1 1000000")
        right, _, said = self.run_job()
        self.assertEqual(right, FILES)
        self.assertLessEqual(len(said), 1, said)
        broken.script("clear")


if __name__ == "__main__":
    crash.main("__main__")
