"""No setting makes the library wait, or write to anything except its region and the requested
report."""
import os
import subprocess
import threading
import unittest

from support import CONTENT, NOBODY, USER, Case, as_root, as_user, snapshot, write


class Name(Case):
    HOSTILE = [
        "../escaped", "/etc/escaped", "a/b", "..", ".", "-", "x\ny", "x\x1b[31m", "a b", "n" * 65,
        "n" * 255, "n" * 5000, "%n%s", "\udcff\udcfe", "$(id)", "*", "a\\0b", "\x7f", "\u00e4"
    ]

    def test_never_leads_out_of_the_directory(self):
        for name in self.HOSTILE:
            with self.subTest(name=name[:40]):
                done = self.job.python(
                    f"import os\nopen(F).read()\nprint(os.listdir({self.job.ram_dir!r}))",
                    CUBESHIM_NAME=name)
                allowed = name if name in ("..", ".", "-") else "default"
                self.assertEqual(done.stdout.strip(),
                                 str([os.path.basename(self.job.region(name=allowed))]),
                                 done.stderr)
                self.assertEqual(len(self.lines(done)), 0 if allowed == name else 1, done.stderr)
                self.assertLess(len(done.stderr), 1200)
                self.assertEqual(os.listdir(self.job.ram_dir), [])
        self.assertEqual(sorted(os.listdir(self.job.directory)), ["data", "libcubeshim.so", "open"])


class Report(Case):
    """CUBESHIM_STATS is the only path to which the library writes in addition to its region."""
    def read_to(self, path, **settings):
        return self.job.read(CUBESHIM_STATS=path, **settings)

    def test_is_not_written_through_a_link(self):
        victim = write(self.job.path("victim"))
        before = snapshot(victim)
        link = f"{self.job.open_dir}/link"
        os.symlink(victim, link)
        self.assert_one_line(self.read_to(link), "CUBESHIM_STATS", link)
        self.assertEqual(snapshot(victim), before)
        os.unlink(link)
        os.symlink(self.job.path("free"), link)
        self.assert_one_line(self.read_to(link), link)
        self.assertFalse(os.path.exists(self.job.path("free")))

    def test_does_not_wait_for_the_reader_of_a_fifo(self):
        fifo = self.job.path("fifo")
        os.mkfifo(fifo)
        self.assert_one_line(self.read_to(fifo), "CUBESHIM_STATS", fifo)

    def test_goes_to_the_reader_of_a_fifo(self):
        fifo = self.job.path("fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self.assert_well(self.read_to(fifo))
            self.assertIn(b'"misses":1', os.read(reader, 65536))
        finally:
            os.close(reader)

    def test_does_not_wait_for_room_in_a_fifo(self):
        fifo = self.job.path("fifo")
        os.mkfifo(fifo)
        both = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        try:
            with self.assertRaises(BlockingIOError):
                while True:
                    os.write(both, bytes(4096))
            self.assert_one_line(self.read_to(fifo), "CUBESHIM_STATS", fifo)
        finally:
            os.close(both)

    def test_survives_a_limit_of_file_sizes(self):
        """A write beyond the limit causes a signal that ends the program. The region needs some
        size, too, so the report's file is already at the limit."""
        path = self.job.path("full")
        with open(path, "wb") as file:
            file.truncate(1 << 30)
        done = self.job.read(before=["prlimit", f"--fsize={1 << 30}"], CUBESHIM_STATS=path)
        self.assert_one_line(done, "CUBESHIM_STATS", "File too large")
        self.assertEqual(os.stat(path).st_size, 1 << 30)

    def test_is_refused_if_its_place_is_not_a_file(self):
        directory = self.job.path("directory")
        os.mkdir(directory)
        for path in (directory, "/dev/full", self.job.path("no/such"), "/proc/self/mem/x",
                     "/dev/shm", self.job.file + "/x"):
            with self.subTest(path):
                self.assert_one_line(self.read_to(path), "CUBESHIM_STATS", path)
        self.assertEqual(os.listdir(directory), [])
        self.assert_well(self.read_to("/dev/null"))

    @as_root
    def test_is_not_appended_to_files_planted_by_others(self):
        for victim in (0, USER):
            planted = write(f"{self.job.open_dir}/planted", b"", 0o666, NOBODY)
            own = write(f"{self.job.open_dir}/own", b"the victim's own", 0o600, victim)
            second = f"{self.job.open_dir}/second"
            os.link(own, second)
            for path in (planted, second):
                with self.subTest(victim=victim, path=path):
                    before = snapshot(path)
                    done = self.job.read(as_user(victim), CUBESHIM_STATS=path)
                    self.assert_one_line(done, "CUBESHIM_STATS", path)
                    self.assertEqual(snapshot(path), before)
            for path in (planted, own, second):
                os.unlink(path)

    def test_is_appended_to_the_users_own_file(self):
        for path in (self.job.report, self.job.path("own.json")):
            for runs in (1, 2):
                self.assert_well(self.read_to(path))
                with open(path, "rb") as file:
                    self.assertEqual(len(file.read().splitlines()), runs)

    def test_takes_percent_signs_as_they_are(self):
        for name in ("%n%s%x", "%", "%%", "{}", "{0}", "%%p", "a%"):
            with self.subTest(name):
                done = self.job.python("import os; open(F).read(); print(os.getpid())",
                                       CUBESHIM_STATS=self.job.path("r-" + name))
                expected = "r-" + name.replace("%p", done.stdout.strip())
                self.assertEqual(self.lines(done), [], done.stderr)
                self.assertTrue(os.path.exists(self.job.path(expected)),
                                os.listdir(self.job.directory))

    def test_with_an_endless_path_gives_at_most_one_line(self):
        for path in ("/" + "a" * 4093, "a/" * 2040, self.job.directory + "/%p" * 1300,
                     "b" * 100_000):
            with self.subTest(length=len(path)):
                done = self.read_to(path)
                self.assertEqual(done.returncode, 0)
                # stderr has at most one line about the path, followed by the report.
                self.assertLessEqual(len(self.lines(done)), 2, done.stderr)
                self.assertTrue(all(len(line) < 1100 for line in self.lines(done)))

    def test_reader_that_goes_while_it_is_written_does_not_end_the_program(self):
        fifo = self.job.path("fifo")
        os.mkfifo(fifo)
        stop = threading.Event()

        def come_and_go():
            while not stop.is_set():
                os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))

        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            for _ in range(20):
                done = self.job.read(CUBESHIM_STATS=fifo)
                self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            stop.set()
            thread.join()


class Directory(Case):
    def test_that_is_relative_or_missing_is_reported_in_one_line(self):
        for directory in ("relative", "../up", "/dev/shm/../../tmp", "/no/such", self.job.file,
                          "/proc", "/" + "d" * 5000):
            with self.subTest(directory[:40]):
                done = self.job.read(CUBESHIM_RAM_DIR=directory, CUBESHIM_STATS="off",
                                     CUBESHIM_NAME=os.path.basename(self.job.ram_dir))
                self.assert_well(done, lines=1)
                self.assertIn(
                    b"CUBESHIM_RAM_DIR" if directory[0] == "."
                    or directory in ("relative", "/no/such") else b"", done.stderr)
                self.assertLess(len(done.stderr), 1200)

    def test_that_is_a_link_is_followed(self):
        link = self.job.path("link")
        os.symlink(self.job.ram_dir, link)
        done = self.job.python(
            f"import os; open(F).read(); print(os.listdir({self.job.ram_dir!r}))",
            CUBESHIM_RAM_DIR=link)
        self.assertEqual(done.stdout.strip(), str([os.path.basename(self.job.region())]))
        self.assertTrue(os.path.islink(link))

    @as_root
    def test_that_others_may_write_to_shows_them_nothing(self):
        """Without the sticky bit, another user can take the name. The job then has no cache; the
        other user's region is never used."""
        os.chmod(self.job.ram_dir, 0o777)
        region = self.job.region()
        move = " ".join(as_user(NOBODY) + ["mv", region, region + ".moved"])
        done = self.job.python(f"""
import os, subprocess
open(F).read()
subprocess.run({move!r}, shell=True, check=True, env={{}})
subprocess.run({' '.join(as_user(NOBODY) + ['touch', region])!r}, shell=True, check=True, env={{}})
st = os.stat({region + '.moved'!r})
assert (st.st_mode & 0o777, st.st_uid) == (0o600, 0)
print(len(open(F).read()))
""")
        self.assert_well(done)
        self.assertEqual(os.stat(region).st_size, 0)
        # The next job with this name finds the other user's file.
        self.assert_one_line(self.job.read(), "refused")


class JobVariable(Case):
    def test_arbitrary_text_is_harmless(self):
        own = f"{os.getpid()}.1.1"
        for text in ("0.0.0", "-1.0.0", "4294967295.0.0", "2147483648.1.1",
                     "1.0." + str(os.stat("/proc/self/ns/pid").st_ino),
                     "0.0." + str(os.stat("/proc/self/ns/pid").st_ino), own, "x" * 100_000,
                     "1.2.3.4", "%n.%n.%n"):
            with self.subTest(text[:30]):
                self.assert_well(self.job.read(CUBESHIM_JOB=text))


if __name__ == "__main__":
    unittest.main()
