"""`cubeshim warmup` on a mount that counts the operations that reach it, and that hangs on
request."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import unittest

from cli_case import COMMAND, CONTENT, Case
from slow_mount import SlowMount


class Warmup(SlowMount, Case):
    def setUp(self):
        super().setUp()
        self.names = [f"{folder}/{i}" for folder in ("a", "b", "b/c") for i in range(20)]
        for name in self.names:
            path = self.source / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(name.encode() + CONTENT[:3000])
        self.mount_it()

    def asked_of_files(self, *operations):
        counted = json.loads((self.mount / ".lagfs/counters.json").read_text())
        return sum(counted[operation]["data_files"] for operation in operations)

    def words(self, *words, keep=True, ram="32M"):
        return [
            "warmup", "--name", self.name, "--ram", ram, *(["--ram-keep", "1"] if keep else []),
            *map(str, words)
        ]

    def warmup(self, *words, **options):
        """Returns the status, the summary and the other output."""
        done = self.command(*self.words("--json", *words, **options))
        return done.returncode, json.loads(
            done.stdout) if done.stdout else None, done.stderr.decode()

    def reasons(self, summary):
        return {row["reason"]: row["files"] for row in summary["reasons"]}

    def start_job(self, *options):
        """Starts a job that uses the cache, and reads all files when it is told to."""
        job = self.start(
            "run", "-p", self.mount, "--name", self.name, "--ram", "32M", "--stats-format", "json",
            *options, "bash", "-c",
            f'exec 3<{self.mount}/a/0; echo ready; read line; if [[ $line == read ]]; then cat '
            f'{self.mount}/*/* '
            f'{self.mount}/b/c/* 2>/dev/null; fi', stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job


class Load(Warmup):
    def test_files_loaded_into_a_kept_cache_are_hits_for_the_next_job(self):
        status, summary, _ = self.warmup(self.mount / "a", self.mount / "b")
        self.assertEqual((status, summary["fetched"], summary["skipped"]), (0, 60, 0))
        self.assertEqual(summary["ram"]["entries"], 60)
        done = self.command("run", "-p", self.mount, "--name", self.name, "--ram-keep", "1",
                            "--stats-format", "json", "cat",
                            *(self.mount / name for name in self.names))
        self.assertEqual(done.stdout, b"".join(
            (self.source / name).read_bytes() for name in self.names))
        report = json.loads(done.stderr)
        self.assertEqual((report["hits"]["ram"], report["misses"], report["origin"]["reads"]),
                         (60, 0, 0))

    def test_a_running_job_is_joined_and_its_settings_are_taken_over(self):
        (self.source / "large").write_bytes(bytes(100_000))
        job = self.start_job("--max-file", "50K", "--block", "0")
        # The command has neither a prefix nor a limit, and does not keep the region.
        status, summary, _ = self.warmup(self.mount, "/etc/hostname", keep=False)
        self.assertEqual((status, summary["fetched"], summary["cached"]), (1, 59, 1))
        self.assertEqual(self.reasons(summary),
                         {"outside CUBESHIM_PREFIXES": 1, "larger than CUBESHIM_MAX_FILE": 1})
        _, errors = job.communicate(b"read\n", timeout=300)
        report = json.loads(errors)
        self.assertEqual((report["misses"], report["hits"]["ram"], report["prefetch"]["fetched"]),
                         (1, 60, 59))
        self.assertFalse(self.region.exists())

    def test_without_a_job_or_a_cache_to_keep_it_fails_and_makes_nothing(self):
        status, summary, errors = self.warmup(self.mount, keep=False)
        self.assertEqual((status, summary), (3, None))
        self.assertIn(f"no job is running with a cache named {self.name}", errors)
        self.assertIn("--ram-keep 1", errors)
        self.assertFalse(self.region.exists())

    def test_a_kept_cache_that_the_next_job_would_drop_is_left_alone(self):
        self.warmup(self.mount / "a")
        status, summary, errors = self.warmup(self.mount, keep=False)
        self.assertEqual((status, summary, self.region.exists()), (3, None, True))
        self.assertIn("would not take over what is there", errors)

    def test_cache_removed_with_its_job_is_reported(self):
        job = self.start_job()
        self.script("hold open 30")
        child = self.start(*self.words(self.mount, keep=False), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        self.wait_until_held()
        job.communicate(b"end\n", timeout=300)
        self.script("go")
        _, errors = child.communicate(timeout=300)
        self.assertEqual((child.returncode, self.region.exists()), (1, False))
        self.assertIn(b"the job has ended, and the cache with it", errors)

    def test_a_job_that_keeps_its_cache_is_taken_at_its_word(self):
        job = self.start_job("--ram-keep", "1")
        self.script("hold open 30")
        child = self.start(*self.words(self.mount, keep=False), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        self.wait_until_held()
        job.communicate(b"end\n", timeout=300)
        self.script("go")
        child.communicate(timeout=300)
        self.assertEqual((child.returncode, self.region.exists()), (0, True))

    def test_cached_files_are_not_read_again(self):
        self.warmup(self.mount / "b")
        (self.source / "b/3").write_bytes(b"new")
        before = self.asked_of_files("read")
        status, summary, _ = self.warmup(self.mount)
        self.assertEqual((status, summary["cached"], summary["fetched"]), (0, 39, 21))
        self.assertEqual(self.asked_of_files("read") - before, 21)

    def test_each_reason_to_leave_a_file_out_is_counted(self):
        (self.source / "large").write_bytes(bytes(100_000))
        os.mkfifo(self.source / "fifo")
        paths = [
            self.mount / "a", self.mount / "large", self.mount / "fifo", self.mount / "absent",
            "/etc/hostname"
        ]
        status, summary, _ = self.warmup("-p", self.mount, "--max-file", "50K", "--block", "0",
                                         *paths)
        self.assertEqual((status, summary["fetched"], summary["skipped"]), (1, 20, 4))
        self.assertEqual(
            self.reasons(summary), {
                "missing": 1, "not regular files": 1, "outside CUBESHIM_PREFIXES": 1,
                "larger than CUBESHIM_MAX_FILE": 1
            })
        first = {row["reason"]: row["first"] for row in summary["reasons"]}
        self.assertEqual(first["missing"], f"{self.mount}/absent")
        self.script("fail open EACCES")
        status, summary, _ = self.warmup(self.mount / "b/0")
        self.assertEqual((status, [(row["reason"], row["first"]) for row in summary["reasons"]]),
                         (1, [("unreadable", f"{self.mount}/b/0: Permission denied")]))

    def test_a_full_cache_is_reported(self):
        for i in range(12):
            (self.source / f"block{i}").write_bytes(bytes(1 << 20))
        status, summary, _ = self.warmup(*(self.mount / f"block{i}" for i in range(12)), ram="10M")
        self.assertEqual((status, self.reasons(summary)),
                         (1, {"without room in the cache": 12 - summary["fetched"]}))
        self.assertGreater(summary["fetched"], 2)

    def test_an_interrupt_ends_it_with_a_summary_and_it_can_be_taken_up_again(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number):
                self.command("clear", "--name", self.name)
                self.script("hold open 10")
                child = self.start(*self.words("--json", "--prefetch-depth", "4", self.mount),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.wait_until_held()
                child.send_signal(number)
                output, errors = child.communicate(timeout=300)
                self.script("clear")
                summary = json.loads(output)
                self.assertEqual((child.returncode, summary["interrupted"], errors),
                                 (status, True, b""))
                self.assertLess(summary["fetched"], 60)
                again = self.warmup(self.mount)
                self.assertEqual((again[0], again[1]["fetched"] + again[1]["cached"]), (0, 60))
                self.assertGreaterEqual(again[1]["cached"], summary["fetched"])

    def test_wrong_use_is_reported_in_one_line(self):
        for words, text in (([], "nothing to load"), (["--filelist", "/no/such"], "/no/such"),
                            (["--check", "--dry-run",
                              "x"], "--dry-run"), (["--max-file", "12Q",
                                                    "x"], '--max-file "12Q" is not usable'),
                            (["--evict", "--background", "x"], "--evict"),
                           ):
            status, summary, errors = self.warmup(*words)
            self.assertEqual((status, summary, errors.count("\n")), (2, None, 1), errors)
            self.assertIn(text, errors)


class Lists(Warmup):
    def load_list(self, data, *words, **options):
        file = self.source / "list"
        file.write_bytes(data)
        return self.warmup("--filelist", self.mount / "list", *words, **options)

    def test_lines_may_be_files_directories_comments_and_exclusions(self):
        status, summary, _ = self.load_list(
            f"# a comment\na/1\n{self.mount}/a/2\n- b/c\nb\n".encode())
        self.assertEqual((status, summary["fetched"], self.reasons(summary)),
                         (0, 22, {"excluded": 1}))

    def test_names_may_be_separated_by_zeros(self):
        (self.source / "a/with\nnewline").write_bytes(b"x")
        status, summary, _ = self.load_list(b"a/1\0a/with\nnewline\0")
        self.assertEqual((status, summary["fetched"]), (0, 2))

    def test_line_with_an_unusable_path_is_named_with_its_number(self):
        status, summary, _ = self.load_list(b"a/1\n/etc/hostname\n", "-p", self.mount)
        self.assertEqual((status, summary["fetched"]), (1, 1))
        self.assertEqual(summary["reasons"][0]["first"], "/etc/hostname (line 2)")

    def test_standard_input_is_a_list_of_paths_below_the_working_directory(self):
        names = "".join(f"{name}\0" for name in self.names).encode()
        done = subprocess.run([COMMAND, *self.words("--json", "--filelist", "-")], input=names,
                              cwd=self.mount, capture_output=True, timeout=300)
        self.assertEqual((done.returncode, json.loads(done.stdout)["fetched"]), (0, 60),
                         done.stderr)

    def test_paths_are_those_that_the_job_uses_where_a_link_leads_there(self):
        link = self.data.parent / "link"
        link.symlink_to(self.mount)
        for prefix in (link, self.mount):
            self.command("clear", "--name", self.name)
            # A shell that has entered the directory through the link names the link.
            done = subprocess.run([COMMAND, *self.words("--json", "-p", prefix, "a")], cwd=link,
                                  capture_output=True, timeout=300,
                                  env=os.environ | {"PWD": str(link)})
            self.assertEqual((done.returncode, json.loads(done.stdout)["fetched"]), (0, 20),
                             done.stderr)
            self.assertEqual(self.warmup("--check", prefix / "a")[1]["cached"], 20)


class Looks(Warmup):
    def test_check_counts_cached_files_and_reads_nothing(self):
        status, summary, _ = self.warmup("--check", self.mount, keep=False)
        self.assertEqual((status, summary["cached"], summary["absent"], self.region.exists()),
                         (1, 0, 60, False))
        self.warmup(self.mount / "a", self.mount / "b/c")
        before = self.asked_of_files("open", "read")
        status, summary, _ = self.warmup("--check", self.mount, keep=False)
        self.assertEqual((status, summary["cached"], summary["absent"]), (1, 40, 20))
        size = sum((self.source / name).stat().st_size
                   for name in self.names
                   if not name.startswith("b/") or "c" in name)
        self.assertEqual(summary["cached_bytes"], size)
        status, summary, _ = self.warmup("--check", self.mount / "a", keep=False)
        self.assertEqual((status, summary["cached"], summary["absent"]), (0, 20, 0))
        self.assertEqual(self.asked_of_files("open", "read"), before)
        self.assertTrue(self.region.exists())

    def test_a_file_that_has_changed_is_not_cached_any_more(self):
        self.warmup(self.mount / "a")
        (self.source / "a/5").write_bytes(b"new")
        status, summary, _ = self.warmup("--check", self.mount / "a")
        self.assertEqual((status, summary["cached"], summary["absent"]), (1, 19, 1))

    def test_dry_run_reports_its_plan_and_loads_nothing(self):
        (self.source / "list").write_text("a\nb/0\nabsent\nlist\n")
        before = self.asked_of_files("read")
        status, summary, _ = self.warmup("--dry-run", "--filelist", self.source / "list", "-p",
                                         self.mount)
        self.assertEqual(self.asked_of_files("read"), before)
        self.assertEqual((status, summary["absent"], summary["cached"]), (1, 22, 0))
        self.assertEqual(self.reasons(summary), {"missing": 1})
        self.assertEqual(summary["ram"]["entries"], 0)

    def test_dry_run_reports_a_lack_of_room(self):
        for i in range(12):
            (self.source / f"block{i}").write_bytes(bytes(1 << 20))
        done = self.command(*self.words("--dry-run", self.mount, ram="10M"))
        self.assertIn(b"there is not room for all of it", done.stdout)

    def test_a_dry_run_counts_the_room_that_a_used_cache_has_left(self):
        for i in range(36):
            path = self.source / ("here" if i < 20 else "next") / str(i)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes(1 << 20))
        text = b"there is not room for all of it"
        self.assertNotIn(text, self.command(*self.words("--dry-run", self.mount / "next")).stdout)
        self.warmup(self.mount / "here")
        self.assertIn(text, self.command(*self.words("--dry-run", self.mount / "next")).stdout)

    def test_a_dry_run_needs_no_job_and_makes_no_cache(self):
        for words, fits in ((["--ram", "32M"], True), (["--ram", "8M"], False)):
            (self.source / "large").write_bytes(bytes(9 << 20))
            done = self.command("warmup", "--name", self.name, *words, "--dry-run", self.mount)
            self.assertEqual((done.returncode, done.stderr, self.region.exists()), (0, b"", False))
            text = done.stdout.decode()
            self.assertIn("61 files, ", text)
            self.assertIn("61 to be fetched", text)
            self.assertEqual("there is not room for all of it" in text, not fits, text)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to mount")
    def test_a_dry_run_counts_the_room_that_the_directory_of_the_region_has(self):
        ram = self.data.parent / "ram"
        ram.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", ram], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", ram], check=True))
        (self.source / "large").touch()
        os.truncate(self.source / "large", 100 << 20)
        done = self.command("warmup", "--name", self.name, "--ram", "200M", "--ram-dir", ram,
                            "--dry-run", self.mount)
        self.assertIn(b"there is not room for all of it", done.stdout)


class Evicts(Warmup):
    def test_evicted_files_are_fetched_again_and_the_rest_is_not(self):
        self.warmup(self.mount)
        before = self.asked_of_files("read")
        status, summary, _ = self.warmup("--evict", self.mount / "a", self.mount / "b/3")
        self.assertEqual((status, summary["evicted"], summary["absent"], summary["what"]),
                         (0, 21, 0, "evict"))
        self.assertEqual(self.asked_of_files("read"), before)
        self.assertEqual(self.warmup("--evict", self.mount / "a")[1]["evicted"], 0)
        # --evict frees no memory, and says so if it has evicted something.
        self.assertEqual(summary["freed_bytes"], 0)
        used = summary["ram"]["used"]
        told = [
            self.command(*self.words("--evict", self.mount / "b/4")).stdout.decode()
            for _ in range(2)
        ]
        self.assertEqual(["this frees no memory" in text for text in told], [True, False], told)
        self.assertEqual(self.warmup("--check", self.mount)[1]["ram"]["used"], used)
        self.warmup(self.mount / "b/4")
        status, summary, _ = self.warmup("--check", self.mount)
        self.assertEqual((summary["cached"], summary["absent"]), (39, 21))
        self.assertEqual(self.warmup(self.mount)[1]["fetched"], 21)
        self.assertEqual(self.asked_of_files("read") - before, 22)

    def test_a_running_job_fetches_evicted_files_again(self):
        job = self.start_job()
        status, summary, _ = self.warmup("--evict", self.mount / "a/0", keep=False)
        self.assertEqual((status, summary["evicted"]), (0, 1))
        _, errors = job.communicate(b"read\n", timeout=300)
        report = json.loads(errors)
        self.assertEqual(
            report["misses"] + report["prefetch"]["fetched"] - report["prefetch"]["duplicate"], 61)

    def test_evict_without_a_cache_does_nothing(self):
        status, summary, _ = self.warmup("--evict", self.mount, keep=False)
        self.assertEqual((status, summary["evicted"], summary["absent"], self.region.exists()),
                         (0, 0, 60, False))


class Background(Warmup):
    def test_continues_after_the_command_has_ended(self):
        self.script("hold open 30")
        log = self.data.parent / "log"
        with open(log, "wb") as out:
            command = self.start(*self.words("--json", "--background", self.mount), stdout=out,
                                 stderr=subprocess.PIPE)
        line = command.stderr.readline().decode()
        self.assertEqual(command.wait(60), 0)
        pid = int(line.split("process ")[1].split()[0])
        self.assertIn(f"cubeshim: process {pid} loads in the background; ", line)
        self.wait_until_held()
        self.assertEqual((os.getsid(pid), log.read_bytes()), (pid, b""))
        ended = os.pidfd_open(pid)
        self.addCleanup(os.close, ended)
        self.script("go")
        self.assertEqual(len(select.select([ended], [], [], 60)[0]), 1)
        self.assertEqual(json.loads(log.read_text())["fetched"], 60)
        self.assertEqual(self.warmup("--check", self.mount)[0], 0)

    def test_wrong_use_is_reported_as_usual(self):
        for words, keep, status, text in ((["--filelist", "/no/such"], True, 2, "/no/such"),
                                          ([self.mount], False, 3, "no job is running"),
                                          (["--max-file", "12Q",
                                            "x"], True, 2, '--max-file "12Q"')):
            done = self.command(*self.words("--background", *words, keep=keep))
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")),
                             (status, b"", 1), done.stderr)
            self.assertIn(text, done.stderr.decode())


class Shows(Warmup):
    def test_prints_lines_without_a_terminal(self):
        self.script("hold open 20 1000")
        child = self.start(*self.words("--interval", "1", "--prefetch-depth", "1", self.mount),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = child.stderr.readline().decode()
        self.script("clear")
        output, _ = child.communicate(timeout=300)
        self.assertRegex(
            line,
            r"^cubeshim: \d+ of 60 files, [\d.]+ (KiB|bytes), .*/s, \d+ files/s(, \d+:\d\d "
            r"left)?\n$"
        )
        self.assertRegex(
            output.decode(),
            r"^60 files: 60 fetched \(.* KiB\), 0 cached already, 0 skipped; .* s, .*/s\n")

    def test_a_bar_on_a_terminal(self):
        self.script("hold open 20 1000")
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        child = self.start(*self.words("--prefetch-depth", "1", self.mount), stdout=subprocess.PIPE,
                           stderr=slave)
        os.close(slave)
        got = ""
        while " of 60 files" not in got:
            got += os.read(master, 4096).decode()
        self.script("clear")
        child.communicate(timeout=300)
        os.set_blocking(master, False)
        try:
            while more := os.read(master, 4096).decode():
                got += more
        except OSError:
            pass  # the other end is closed
        os.close(master)
        # The line is redrawn in place, leaves the last column free, and is erased at the end.
        self.assertEqual(max(map(len, got.replace("\x1b[K", "").split("\r"))), 19)
        self.assertNotIn("\n", got)
        self.assertTrue(got.endswith("\r\x1b[K"), got)

    def test_prints_nothing_if_quiet(self):
        self.script("hold open 20 1000")
        master, slave = pty.openpty()
        child = self.start(*self.words("-q", "--prefetch-depth", "1", self.mount),
                           stdout=subprocess.PIPE, stderr=slave)
        self.wait_until_held()
        self.script("clear")
        child.communicate(timeout=300)
        # Only this process still has the other end of the terminal, so no text arrives except its
        # own.
        os.write(slave, b"end")
        os.close(slave)
        self.assertEqual(os.read(master, 4096), b"end")
        os.close(master)


class Large(Warmup):
    """Files that are larger than CUBESHIM_MAX_FILE, and so are served in blocks."""
    SIZE = 5_000_001

    def setUp(self):
        super().setUp()
        for i in range(3):
            (self.source / f"a/large{i}").write_bytes(os.urandom(self.SIZE))
            os.utime(self.source / f"a/large{i}", (1e9, 1e9))

    def words(self, *words, block="1M", **options):
        return super().words("--max-file", "1M", "--block", block, *words, **options)

    def test_whole_files_are_loaded_and_are_hits_for_the_next_job(self):
        status, summary, errors = self.warmup(self.mount, ram="64M")
        self.assertEqual((status, summary["fetched"], summary["skipped"], errors), (0, 63, 0, ""))
        self.assertGreater(summary["fetched_bytes"], 3 * self.SIZE)
        before = self.asked_of_files("read")
        done = self.command("run", "-p", self.mount, "--name", self.name, "--ram-keep", "1",
                            "--max-file", "1M", "--block", "1M", "--stats-format", "json", "cat",
                            *(self.mount / f"a/large{i}" for i in range(3)))
        self.assertEqual(done.stdout, b"".join(
            (self.source / f"a/large{i}").read_bytes() for i in range(3)))
        report = json.loads(done.stderr)
        self.assertEqual(
            (report["blocks"]["files"], report["blocks"]["misses"], self.asked_of_files("read")),
            (3, 0, before))
        again = self.warmup(self.mount, ram="64M")
        self.assertEqual((again[0], again[1]["fetched"], again[1]["cached"]), (0, 0, 63))

    def test_check_and_evict_count_cached_bytes(self):
        path, part = f"{self.mount}/a/large0", f"{self.mount}/a/large0@1M+2M"
        for words, status, cached, cached_bytes, absent_bytes in (([
                "--dry-run", path
        ], 0, 0, 0, self.SIZE), ([part], 0, None, None,
                                 None), (["--check", part], 0, 1, 2 << 20,
                                         0), (["--check", path], 1, 0, 2 << 20,
                                              self.SIZE - (2 << 20)), ([path], 0, None, None, None),
                                                                  (["--check",
                                                                    path], 0, 1, self.SIZE, 0),
                                                                 ):
            with self.subTest(words):
                found = self.warmup(*words)
                self.assertEqual(found[0], status, found)
                if cached is not None:
                    counts = {
                        key: found[1][key] for key in ("cached", "cached_bytes", "absent_bytes")
                    }
                    self.assertEqual(counts, {
                        "cached": cached, "cached_bytes": cached_bytes, "absent_bytes": absent_bytes
                    })
        found = self.warmup("--evict", path)
        self.assertEqual((found[0], found[1]["evicted"], found[1]["evicted_bytes"]),
                         (0, 1, self.SIZE))
        self.assertEqual(self.warmup("--check", path)[0], 1)
        before = self.asked_of_files("read")
        self.assertEqual(self.warmup(path)[1]["fetched"], 1)
        self.assertGreater(self.asked_of_files("read"), before)

    def test_files_without_room_are_reported_with_their_size(self):
        for name in ("large", "other"):
            (self.source / "b" / name).write_bytes(bytes(30_000_000))
            os.utime(self.source / "b" / name, (1e9, 1e9))
        status, summary, _ = self.warmup(self.mount / "b/large", self.mount / "b/other", ram="24M")
        row, = summary["reasons"]
        self.assertEqual((status, row["reason"], row["files"], row["bytes"]),
                         (1, "without room in the cache", 2, 60_000_000))
        self.assertEqual(row["missing_bytes"], 60_000_000 - summary["fetched_bytes"])
        self.assertGreater(summary["fetched_bytes"], 8_000_000)
        done = self.command(*self.words(self.mount / "b/large", ram="24M"))
        self.assertRegex(
            done.stdout.decode(),
            r"skipped: 1 without room in the cache \([\d.]+ MiB of 28.6 MiB missing\), the first "
            r"is "
        )

    def test_the_settings_of_a_running_job_are_taken_over(self):
        self.start_job("--max-file", "1M", "--block", "1M")
        # The first job's row counts, although more jobs were added since then.
        self.start_job("--max-file", "50K", "--block", "0")
        done = self.command("warmup", "--name", self.name, "--json", self.mount / "a/large1")
        self.assertEqual((done.returncode, json.loads(done.stdout)["fetched"]), (0, 1), done)

    def test_progress_in_bytes(self):
        master, slave = pty.openpty()
        self.script("hold read 30")
        child = self.start(
            *self.words("--prefetch-depth", "1", *(self.mount / f"a/large{i}" for i in range(3))),
            stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        got = ""
        # When the total is known, a bar precedes the text.
        line = r"\r\[#+ +\] +\d+ % 0 of 3 files, "
        while not re.search(line + r"[^\r]* of at least [^\r]*/s", got):
            got += os.read(master, 4096).decode()
        self.wait_until_held()
        self.script("clear")
        output, _ = child.communicate(timeout=300)
        os.close(master)
        self.assertRegex(
            got, line +
            r"[\d.]+ (bytes|[KM]iB) of at least 4\.8 MiB, [^ ]+ [^ ]+/s, (0 files/s|\d+:\d\d left)")
        self.assertRegex(
            output.decode(),
            r"^3 files: 3 fetched \(14.3 MiB\), 0 cached already, 0 skipped; .* s, .*/s\n")

    def test_interrupt_keeps_the_bytes_already_loaded(self):
        self.script("hold read 3 1000")
        child = self.start(*self.words("--json", self.mount / "a/large0"), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        self.wait_until_held()
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=300)
        self.script("clear")
        summary = json.loads(output)
        self.assertEqual((child.returncode, summary["interrupted"], summary["fetched"], errors),
                         (130, True, 0, b""))
        self.assertEqual(self.warmup(self.mount / "a/large0")[1]["fetched"], 1)

    def test_blocks_of_0_skip_large_files(self):
        status, summary, _ = self.warmup(self.mount / "a/large0", block="0")
        self.assertEqual((status, self.reasons(summary)), (1, {"larger than CUBESHIM_MAX_FILE": 1}))


class Packed(Warmup):
    """The data is only in a pack; for the kernel, the named files do not exist."""
    def setUp(self):
        super().setUp()
        self.pack, self.prefix = self.data.parent / "set.cube", self.data.parent / "packed"
        (self.source / "b/link").symlink_to("../a/0")
        self.command("pack", "-q", self.source, self.pack)
        self.packs = f"{self.prefix}={self.pack}"

    def command(self, *words, env=None, **options):
        packs = {"CUBESHIM_PACKS": self.packs} if hasattr(self, "packs") else {}
        return super().command(*words, env=packs | (env or {}), **options)

    def read_all(self):
        done = self.command("run", "--name", self.name, "--ram-keep", "1", "--stats-format", "json",
                            "cat", *(self.prefix / name for name in self.names))
        self.assertEqual(done.stdout, b"".join(
            (self.source / name).read_bytes() for name in self.names))
        return json.loads(done.stderr)

    def test_its_directories_and_links_are_loaded(self):
        status, summary, errors = self.warmup(self.prefix)
        self.assertEqual((status, summary["fetched"], summary["skipped"], errors), (0, 61, 0, ""))
        report = self.read_all()
        self.assertEqual((report["hits"]["ram"], report["misses"], report["origin"]["reads"]),
                         (60, 0, 0))

    def test_check_counts_cached_files_of_a_pack(self):
        for status, cached, absent in (1, 0, 60), (0, 60, 0):
            found = self.warmup("--check", self.prefix / "a", self.prefix / "b/c",
                                *(self.prefix / f"b/{i}" for i in range(20)))
            self.assertEqual((found[0], found[1]["cached"], found[1]["absent"]),
                             (status, cached, absent), found)
            self.assertEqual(self.warmup(self.prefix)[0], 0)

    def test_list_reports_missing_paths(self):
        names = self.data.parent / "list"
        names.write_text("".join(f"{self.prefix}/{name}\n" for name in [*self.names, "no/such"]))
        status, summary, _ = self.warmup("--filelist", names)
        self.assertEqual((status, summary["fetched"], self.reasons(summary)),
                         (1, 60, {"missing": 1}))

    def test_pack_of_a_running_job_is_found(self):
        packs, self.packs = self.packs, f"{self.prefix}=set.cube"
        environment = {"CUBESHIM_PACKS": self.packs, "PATH": os.environ["PATH"]}
        job = subprocess.Popen([
            COMMAND, "run", "--name", self.name, "--ram", "32M", "--stats-format", "json", "bash",
            "-c", f"exec 3<{self.prefix}/a/0; echo ready; read line; cat {self.prefix}/*/*[0-9]"
        ], env=environment, cwd=self.pack.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        del self.packs
        status, summary, errors = self.warmup(self.prefix, keep=False)
        self.assertEqual((status, summary["fetched"] + summary["cached"], errors), (0, 61, ""))
        out, told = job.communicate(b"\n", timeout=300)
        expected = sorted(f"{folder}/{i}" for folder in ("a", "b") for i in range(20))
        self.assertEqual(len(out), sum(len((self.source / name).read_bytes()) for name in expected))
        self.assertEqual(json.loads(told)["misses"], 1, told)
        self.packs = packs

    def test_invalid_pack_is_reported_in_one_line(self):
        self.pack.write_bytes(b"x" * 9999)
        status, summary, errors = self.warmup(self.prefix)
        self.assertEqual((status, summary), (2, None))
        self.assertRegex(
            errors,
            r"^cubeshim: CUBESHIM_PACKS: .*set.cube is not a pack.*; it takes PREFIX=FILE[^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
