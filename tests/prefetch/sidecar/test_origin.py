"""The origin fails, hangs, changes or disappears while the sidecar uses it: the job reads the right
bytes, or gets its own error."""
import os
import subprocess
import unittest

from support import FaultCase, Host, content, held, wait_until, whole


class Origin(FaultCase):
    lagfs = ("--open-us=5000", "--direct")
    count = 100

    def planned(self, **more):
        return super().planned(**{"PREFETCH_DEPTH": 4} | more)

    def start(self, opens=10, **more):
        host = self.host(**more)
        wait_until(lambda: self.origin_count() >= opens, f"{opens} opens")
        return host

    def check_each(self, host):
        """Checks that each read is right, or fails as it does without the library."""
        native = self.native()
        answers = {n: host.ask(f"read {self.data}/f{n}") for n in range(self.count)}
        right = [n for n, answer in answers.items() if answer == whole(content(n, self.size))]
        for n in answers.keys() - set(right):
            self.assertEqual(answers[n], native.ask(f"read {self.data}/f{n}"), f"f{n}")
        self.tried(self.count)
        return right

    def check_end(self, host):
        host.process.stdin.close()
        self.assertEqual(host.process.wait(60), 0)
        self.assertLessEqual(len(host.complaints().splitlines()), 1, host.complaints())

    def test_unmounted_midway(self):
        for how in ("-l", "-f"):
            for engine in ("uring", "threads"):
                with self.subTest(how=how, engine=engine):
                    host = self.start(IO_ENGINE=engine)
                    subprocess.run(["umount", how, str(self.data)], check=False,
                                   capture_output=True)
                    right = self.check_each(host)
                    self.assertGreater(len(right), 0, "what was fetched before is served")
                    self.assertLess(len(right), self.count)
                    self.check_end(host)
                    subprocess.run(["umount", "-l", str(self.data)], check=False,
                                   capture_output=True)
                    self.origin.start()

    def test_connection_aborted_midway(self):
        control = "/sys/fs/fuse/connections"
        minor = os.stat(self.data).st_dev & 0xff
        if not os.path.exists(f"{control}/{minor}"):
            if subprocess.run(["mount", "-t", "fusectl", "none", control],
                              capture_output=True).returncode != 0:
                self.skipTest("no fusectl here")
            self.addCleanup(subprocess.run, ["umount", control])
        host = self.start()
        with open(f"{control}/{minor}/abort", "w") as file:
            file.write("1")
        self.assertGreater(len(self.check_each(host)), 0)
        self.check_end(host)

    def test_daemon_killed_midway(self):
        host = self.start()
        self.origin.kill_daemon()
        self.assertGreater(len(self.check_each(host)), 0)
        self.check_end(host)

    def test_mounted_again(self):
        # The list has ended or was given up, so reads on demand fetch the rest.
        host = self.start()
        self.origin.unmount("-l")
        self.origin.start()
        self.check_reads(host)
        self.check_end(host)

    def failed(self, operation):
        return self.origin_counters()[operation]["errors"]

    def test_errors(self):
        for operation in ("lookup", "open", "getattr", "read"):
            for error in ("EIO", "ESTALE", "EACCES", "EINTR", "ENOMEM"):
                with self.subTest(operation=operation, error=error):
                    self.origin.script("clear", f"fail {operation} {error} 1 30")
                    before = self.failed(operation)
                    host = self.host_beside()
                    wait_until(lambda: self.failed(operation) >= before + 10, "10 failures")
                    self.origin.script("clear")
                    self.check_reads(host, range(0, self.count, 5))
                    self.check_end(host)

    def test_one_file_that_hangs(self):
        # Only the sidecar's own open of the file hangs. No other process waits for this open.
        for operation in ("open", "read"):
            for engine in ("uring", "threads"):
                with self.subTest(operation=operation, engine=engine):
                    self.origin.script(f"hold {operation} 4")
                    host = self.host_beside(IO_ENGINE=engine)
                    held(self.origin)
                    self.check_reads(host)
                    self.check_end(host)
                    self.origin.script("clear")

    def host_beside(self, **more):
        """Starts a host whose trigger is elsewhere, so that only the sidecar talks to the
        origin."""
        aside = self.dir / "aside"
        aside.mkdir(exist_ok=True)
        (aside / "trigger").write_bytes(b"go")
        host = Host(self, self.planned(PREFIXES=f"{self.data}:{aside}", **more))
        self.assertEqual(host.ask(f"read {aside}/trigger").split()[0], "ok")
        return host

    def check_changed(self, rules, change, expected):
        """Calls `change` while the sidecar's first operation of that kind is held. `expected` is
        the answer that the job must then see."""
        path = f"{self.data}/changing"
        self.write_list([path])
        for rule in rules:
            for engine in ("uring", "threads"):
                with self.subTest(rule=rule, engine=engine):
                    self.origin.put("changing", content(7, self.size))
                    os.utime(self.origin.source("changing"), (1_600_000_000, 1_600_000_000))
                    self.origin.script(rule)
                    host = self.host_beside(IO_ENGINE=engine)
                    held(self.origin)
                    change(path)
                    self.origin.script("clear")
                    for _ in range(2):
                        self.assertEqual(host.ask(f"read {path}"), expected)
                    self.tried()
                    self.check_end(host)

    def by_another(self, command, answer):
        def change(path):
            other = Host(self, self.planned())
            self.assertEqual(other.ask(command.format(path)), answer)
            other.end()

        return change

    def test_changed_at_the_origin_while_it_is_fetched(self):
        # The change bypasses the mount, and is made before the only check of a fetch.
        new = content(8, 3 * self.size)
        self.check_changed(["hold open"], lambda path: self.origin.put("changing", new), whole(new))

    def test_written_by_the_job_while_it_is_fetched(self):
        self.check_changed(["hold open", "hold read"],
                           self.by_another("write {} 30000 z", "written"), whole(b"z" * 30000))

    def test_removed_by_the_job_while_it_is_fetched(self):
        self.check_changed(["hold read"], self.by_another("remove {}", "removed"),
                           "error ENOENT open")

    def test_replaced_by_the_job_while_it_is_fetched(self):
        self.check_changed(["hold read"], self.by_another("replace {} 30000 y", "written"),
                           whole(b"y" * 30000))

    def test_short_reads_and_lies(self):
        for lie in ("lie size 100", "lie size -100", "lie size -19999", "lie inode",
                    "lie times 100000"):
            with self.subTest(lie):
                self.origin.script("clear", lie)
                host, native = self.host_beside(), self.native()
                before = self.origin_count()
                wait_until(lambda: self.origin_count() >= before + 10, "10 opens")
                for n in range(0, self.count, 7):
                    self.assertEqual(host.ask(f"read {self.data}/f{n}"),
                                     native.ask(f"read {self.data}/f{n}"))
                    self.tried()
                self.origin.script("clear")
                self.check_end(host)


if __name__ == "__main__":
    unittest.main()
