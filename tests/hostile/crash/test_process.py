"""Hangs, stops, kills and clock changes. If one process is harmed, the others continue to read."""
import os
import pathlib
import signal
import tempfile

import support
from support import Host, content, whole

SIZE = 100_000


class HeldFetch(support.FaultCase):
    """One process is in the middle of a fetch that does not end."""

    # LOOKUP is left out, because the kernel itself makes all other lookups in the directory wait
    # for it.
    RULES = ("hold open", "hold getattr", "hold read", "hold flush")

    def setUp(self):
        super().setUp()
        self.origin = self.mount("--direct")
        self.data = content(1, SIZE)
        self.others = 0
        for name in ("wanted", "cached"):
            self.origin.put(name, self.data)

    def path(self, name):
        return self.origin.path(name)

    def start(self, rule):
        self.fetcher, self.reader = (Host(self, self.settings(self.origin.root)) for _ in range(2))
        for host in (self.fetcher, self.reader):
            self.assertEqual(host.ask(f"read {self.path('cached')}"), whole(self.data))
        self.origin.script(rule)
        self.fetcher.send(f"read {self.path('wanted')}")
        return self.origin.held() > 0

    def check_that_others_go_on(self):
        newcomer = Host(self, self.settings(self.origin.root))
        self.others += 1
        other = self.origin.put(f"other{self.others}", self.data)
        for host in (self.reader, newcomer):
            self.assertEqual(host.ask(f"read {self.path('wanted')}"), whole(self.data))
            for path in (self.path("cached"), other):
                for command in ("read", "stdio", "child"):
                    self.assertEqual(host.ask(f"{command} {path}"), whole(self.data))
        newcomer.end()
        self.assertEqual(self.reader.ask(f"replace {other} 5 x"), "written")
        self.assertEqual(self.reader.ask(f"read {other}"), whole(b"xxxxx"))

    def each(self, action):
        for rule in self.RULES:
            with self.subTest(rule=rule):
                try:
                    self.assertTrue(self.start(rule), "never came to it")
                    action()
                finally:
                    self.origin.script("clear")
                for host in (self.fetcher, self.reader):
                    host.end()
                self.tried()

    def test_origin_hangs(self):
        def action():
            self.check_that_others_go_on()
            self.origin.script("go")
            self.assertEqual(self.fetcher.answer(), whole(self.data))

        self.each(action)

    def test_fetcher_is_killed(self):
        def action():
            self.reader.send(f"read {self.path('wanted')}")
            self.fetcher.kill()
            self.assertEqual(self.reader.answer(), whole(self.data))
            self.check_that_others_go_on()

        self.each(action)

    def test_fetcher_is_stopped_and_goes_on(self):
        def action():
            # The fetcher waits in the kernel, and stops as soon as it returns from there.
            self.fetcher.signal(signal.SIGSTOP)
            self.origin.script("go")
            self.check_that_others_go_on()
            self.fetcher.signal(signal.SIGCONT)
            # lagfs answers EINTR if a signal interrupts a wait, even without the library.
            self.assertRegex(self.fetcher.answer(), f"{whole(self.data)}|error EINTR .*")
            self.assertEqual(self.fetcher.ask(f"read {self.path('wanted')}"), whole(self.data))

        self.each(action)

    def test_fetcher_is_stopped_and_killed(self):
        def action():
            self.fetcher.signal(signal.SIGSTOP)
            self.origin.script("go")
            self.check_that_others_go_on()
            self.fetcher.kill()
            self.check_that_others_go_on()

        self.each(action)

    def test_one_process_continues_while_all_others_are_stopped(self):
        hosts = [Host(self, self.settings(self.origin.root)) for _ in range(5)]
        for host in hosts:
            self.assertEqual(host.ask(f"read {self.path('cached')}"), whole(self.data))
            host.stop()
        try:
            self.start("hold read")
            self.check_that_others_go_on()
        finally:
            self.origin.script("clear")
            for host in hosts:
                host.signal(signal.SIGCONT)
        self.assertEqual(self.fetcher.answer(), whole(self.data))
        for host in hosts:
            self.assertEqual(host.ask(f"read {self.path('wanted')}"), whole(self.data))
        self.tried(len(hosts))

    def test_fetcher_is_interrupted(self):
        native = self.native()
        host = Host(self, self.settings(self.origin.root))
        for operation in ("lookup", "open", "getattr", "read"):
            with self.subTest(operation=operation):
                seen = []
                for number, reader in enumerate((native, host)):
                    path = self.origin.put(f"{operation}{number}", self.data)
                    self.origin.script(f"hold {operation} 1 1000")
                    answer = reader.ask(f"alarmed 200 {path}")
                    self.origin.script("clear")
                    seen.append(answer.split()[:2])
                    self.assertEqual(reader.ask(f"read {path}"), whole(self.data))
                self.assertEqual(seen[0], seen[1])
                self.assertEqual(seen[1], ["error", "EINTR"])
                self.tried()

    def test_waiter_is_interrupted(self):
        # The reader waits for another process's fetch, but no longer than without the signal. Then
        # it reads.
        self.assertTrue(self.start("hold read"))
        self.assertEqual(self.reader.ask(f"alarmed 50 {self.path('wanted')}"), whole(self.data))
        self.origin.script("go")
        self.assertEqual(self.fetcher.answer(), whole(self.data))
        self.tried()

    def test_hang_of_five_seconds(self):
        slow = self.mount("--direct", "--hang=read:5:1")
        slow.put("file", self.data)
        other = self.origin.put("other", self.data)
        settings = self.settings(f"{slow.root}:{self.origin.root}")
        fetcher, reader = Host(self, settings), Host(self, settings)
        fetcher.send(f"read {slow.path('file')}")
        self.assertEqual(reader.ask(f"read {other}"), whole(self.data))
        reader.send(f"read {slow.path('file')}")
        for host in (fetcher, reader):
            self.assertEqual(host.answer(), whole(self.data))
            self.assertEqual(host.ask(f"read {slow.path('file')}"), whole(self.data))
        self.tried(2)


class OutOfMemory(support.FaultCase):
    def setUp(self):
        super().setUp()
        self.groups = [pathlib.Path(p) for p in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory")]

    def limited_group(self, limit):
        for root in self.groups:
            for file in ("memory.max", "memory.limit_in_bytes"):
                group = root / self.name
                if not (root / "cgroup.procs").exists():
                    continue
                try:
                    group.mkdir(exist_ok=True)
                    (group / file).write_text(str(limit))
                except OSError:
                    continue
                self.addCleanup(group.rmdir)
                return group
        self.skipTest("no memory control group can be made")

    def test_reader_is_killed_for_want_of_memory(self):
        group = self.limited_group(40 << 20)
        origin = self.mount("--direct")
        data = content(1, SIZE)
        for i in range(20):
            origin.put(f"f{i}", data)
        survivor = Host(self, self.settings(origin.root))
        self.assertEqual(survivor.ask(f"read {origin.path('f0')}"), whole(data))
        for i in range(3):
            victim = Host(self, self.settings(origin.root))
            (group / "cgroup.procs").write_text(str(victim.process.pid))
            for number in range(5):
                self.assertEqual(victim.ask(f"read {origin.path(f'f{i * 5 + number}')}"),
                                 whole(data))
            victim.killed = True
            victim.send("eat 400000000")
            self.assertEqual(victim.process.wait(support.WATCHDOG_S), -signal.SIGKILL,
                             "it was to be killed by the kernel")
            for number in range(20):
                self.assertEqual(survivor.ask(f"read {origin.path(f'f{number}')}"), whole(data))
            self.tried()

    def test_no_memory_for_the_region(self):
        group = self.limited_group(24 << 20)
        origin = self.temporary()
        for i in range(60):
            (origin / f"f{i}").write_bytes(content(i, 500_000))
        host = Host(self, self.settings(origin, RAM="64M"))
        (group / "cgroup.procs").write_text(str(host.process.pid))
        for _ in range(2):
            for i in range(60):
                self.assertEqual(host.ask(f"read {origin}/f{i}"), whole(content(i, 500_000)))
        self.tried()


class Clocks(support.FaultCase):
    """The wall clock is changed while the job runs, and between jobs."""

    DAY = 86400
    FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

    def setUp(self):
        super().setUp()
        if not os.path.exists(self.FAKETIME):
            self.skipTest("no libfaketime")
        self.origin = self.mount("--direct")
        self.clock = tempfile.NamedTemporaryFile("w", prefix="cubeshim-crash-")
        self.addCleanup(self.clock.close)

    def set_clock(self, offset):
        self.clock.seek(0)
        self.clock.truncate()
        self.clock.write(f"{offset:+d}s\n")
        self.clock.flush()

    def host(self, **more):
        settings = self.settings(self.origin.root, **more)
        settings |= {
            "PRELOAD_TOO": self.FAKETIME, "FAKETIME_TIMESTAMP_FILE": self.clock.name,
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "FAKETIME_DONT_RESET": "1"
        }
        return Host(self, settings)

    def put_old(self, name, data, age):
        path = self.origin.put(name, data)
        at = self.origin.source(name).stat().st_ctime - age
        os.utime(self.origin.source(name), (at, at))
        return path

    def test_set_while_the_job_runs(self):
        data, other = content(1, SIZE), content(2, SIZE)
        for consistency in ("immutable", "open", "ttl:1000"):
            for jump in (10, self.DAY, 10000 * self.DAY, -10, -self.DAY, -10000 * self.DAY):
                with self.subTest(consistency=consistency, jump=jump):
                    path = self.put_old("file", data, 1000)
                    self.set_clock(0)
                    first = self.host(CONSISTENCY=consistency)
                    self.assertEqual(first.ask(f"read {path}"), whole(data))
                    self.set_clock(jump)
                    second = self.host(CONSISTENCY=consistency)
                    for host in (first, second):
                        self.assertEqual(host.ask(f"read {path}"), whole(data))
                    # The read is still a hit without a request to the origin, or is as fresh as the
                    # setting requires.
                    self.put_old("file", other, 500)
                    expected = other if consistency == "open" else data
                    for host in (first, second):
                        self.assertEqual(host.ask(f"read {path}"), whole(expected))
                    first.end()
                    second.end()
                    self.tried()

    def test_set_between_jobs(self):
        # A file that a job has fetched while the clock was ahead does not stay fresh forever.
        for jump in (self.DAY, 10000 * self.DAY, -self.DAY):
            with self.subTest(jump=jump):
                path = self.put_old("file", content(1, SIZE), 1000)
                self.set_clock(jump)
                first = self.host(RAM_KEEP=1)
                self.assertEqual(first.ask(f"read {path}"), whole(content(1, SIZE)))
                first.end()
                self.put_old("file", content(2, SIZE), 500)
                self.set_clock(0)
                second = self.host(RAM_KEEP=1)
                self.assertEqual(second.ask(f"read {path}"), whole(content(2, SIZE)))
                second.end()
                os.unlink(self.region)
                self.tried()

    def test_clock_set_during_a_wait_for_the_region(self):
        # A stopped process can hold the region's lock. A change of the clock must not make other
        # processes wait longer.
        data = content(1, SIZE)
        path = self.put_old("file", data, 1000)
        for jump in (-self.DAY, self.DAY):
            with self.subTest(jump=jump):
                self.set_clock(0)
                first = self.host()
                self.assertEqual(first.ask(f"read {path}"), whole(data))
                first.stop()
                self.set_clock(jump)
                second = self.host()
                self.assertEqual(second.ask(f"read {path}"), whole(data))
                second.end()
                first.signal(signal.SIGCONT)
                self.assertEqual(first.ask(f"read {path}"), whole(data))
                first.end()
                self.tried()


if __name__ == "__main__":
    support.main(__name__)
