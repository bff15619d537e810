"""One process of the node prefetches for all. Another process takes over when it ends or is killed,
and a stopped leader blocks no other process. Another file can have the socket's name."""
import os
import pathlib
import signal
import socket
import unittest

from support import NOBODY, FaultCase, Job, held, wait_until

DEPTH = 4


class Leaders(FaultCase):
    lagfs = ("--open-us=10000",)
    count = 200

    def setUp(self):
        super().setUp()
        self.opened_before_jobs = 0

    def planned(self, **more):
        return super().planned(**{"PREFETCH_DEPTH": DEPTH} | more)

    def host(self, **more):
        host = super().host(**more)
        self.opened_before_jobs += self.origin_count()
        return host

    def find_leader(self, hosts):
        wait_until(lambda: self.leader() in [host.process.pid for host in hosts],
                   "one of them leads")
        pid = self.leader()
        return next(host for host in hosts if host.process.pid == pid)

    def wait_for_opens(self, opens):
        wait_until(lambda: self.origin_count() >= opens,
                   lambda: f"{opens} opens, but {self.origin_count()}")

    def check_that_all_is_there(self, hosts, leaders=1):
        """Checks that the new leader has fetched the rest, and that only files that were in flight
        were fetched again."""
        self.wait_for_opens(self.count + 1)
        for host in hosts:
            self.check_reads(host)
        # Each host is a job. A leader revalidates files that were fetched before its job began.
        # These are many if a busy machine started the host late.
        under_way = (leaders + len(hosts)) * (DEPTH + 1)
        self.assertLessEqual(self.origin_count(),
                             self.count + under_way + len(hosts) + self.opened_before_jobs)

    def lose_leader(self, how):
        hosts = [self.host(), self.host()]
        leader = self.find_leader(hosts)
        self.wait_for_opens(20)
        how(leader)
        hosts.remove(leader)
        self.find_leader(hosts)
        self.check_that_all_is_there(hosts)

    def test_killed(self):
        self.lose_leader(lambda leader: leader.kill())

    def test_killed_while_the_origin_hangs(self):
        def how(leader):
            self.origin.script("hold open 1 2")
            held(self.origin)
            leader.kill()
            self.origin.script("clear")

        self.lose_leader(how)

    def test_ends(self):
        self.lose_leader(lambda leader: leader.end())

    def test_one_after_the_other(self):
        hosts = [self.host() for _ in range(4)]
        for opens in (15, 40, 65):
            leader = self.find_leader(hosts)
            self.wait_for_opens(opens)
            leader.kill()
            hosts.remove(leader)
        self.find_leader(hosts)
        self.check_that_all_is_there(hosts, leaders=4)

    def stop_leader(self, hosts):
        leader = self.find_leader(hosts)
        self.wait_for_opens(20)
        leader.stop()
        return leader

    def go_on(self, stopped, others):
        """Checks that both jobs are complete, and that no file was fetched twice except files in
        flight."""
        stopped.signal(signal.SIGCONT)
        self.check_reads(stopped)
        self.check_that_all_is_there([*others, stopped], leaders=2)

    def wait_for_all_but_those_under_way(self):
        # The stopped leader keeps its flights: processes that need these files read them at the
        # origin. One file is the trigger.
        self.wait_for_opens(self.count - DEPTH + 1)

    def test_stopped_while_another_waits(self):
        hosts = [self.host(), self.host()]
        stopped = self.stop_leader(hosts)
        hosts.remove(stopped)
        self.find_leader(hosts)
        self.wait_for_all_but_those_under_way()
        self.check_reads(hosts[0])
        self.go_on(stopped, hosts)
        self.assertEqual(self.find_leader(hosts), hosts[0],
                         "a process that has lost the lead does not take it back")

    def test_stopped_before_another_begins(self):
        stopped = self.stop_leader([self.host()])
        late = self.host()
        self.find_leader([late])
        self.wait_for_all_but_those_under_way()
        self.check_reads(late)
        self.go_on(stopped, [late])

    def test_stopped_in_turn(self):
        # A batch system that runs one job at a time stops the others in this way.
        hosts = [self.host(), self.host()]
        stopped = self.stop_leader(hosts)
        for _ in range(3):
            running = next(host for host in hosts if host is not stopped)
            self.assertEqual(self.find_leader([running]), running)
            running.stop()
            stopped.signal(signal.SIGCONT)
            stopped = running
        running = next(host for host in hosts if host is not stopped)
        self.find_leader([running])
        self.wait_for_all_but_those_under_way()
        self.check_reads(running)
        stopped.signal(signal.SIGCONT)
        self.check_that_all_is_there(hosts, leaders=5)

    def test_killed_while_it_is_stopped(self):
        hosts = [self.host(), self.host()]
        stopped = self.stop_leader(hosts)
        hosts.remove(stopped)
        self.find_leader(hosts)
        stopped.kill()
        self.wait_for_all_but_those_under_way()
        self.check_reads(hosts[0])
        self.assertEqual(self.find_leader(hosts), hosts[0])

    def host_that_waits_for_its_list(self):
        lists = self.mount()
        lists.put("list", b"")
        lists.script("hold open 1")
        waits = self.host(PREFETCH_LIST=f"{lists.root}/list")
        held(lists)
        self.assertEqual(self.find_leader([waits]), waits)
        return waits, lists

    def test_ends_while_it_waits_for_its_list(self):
        waits, lists = self.host_that_waits_for_its_list()
        waits.end()
        lists.script("clear")
        self.assertFalse(os.path.lexists(self.socket), "nobody listens there any more")

    def test_may_prefetch_no_more_while_it_waits_for_its_list(self):
        waits, lists = self.host_that_waits_for_its_list()
        self.assertEqual(waits.ask("unshare"), "unshared")
        late = self.host()
        self.find_leader([late])
        self.wait_for_opens(self.count)
        self.check_reads(late)
        lists.script("clear")

    def test_all_killed_and_then_the_next_job(self):
        hosts = [self.host(), self.host()]
        self.wait_for_opens(20)
        for host in hosts:
            host.kill()
        # The cache of these hosts has ended with them.
        before = self.origin_count()
        last = self.host()
        self.wait_for_opens(before + self.count + 1)
        self.check_reads(last)

    def test_leader_with_another_list(self):
        # A leader serves the list of its own job. The next leader serves the other list.
        half = self.count // 2
        names = [f"{self.data}/f{n}" for n in range(self.count)]
        self.write_list(names[:half])
        first = self.host()
        other = self.write_other_list(names[half:])
        second = self.host(PREFETCH_LIST=other)
        self.wait_for_opens(half + 1)
        self.check_reads(first, range(half))
        first.end()
        self.check_that_all_is_there([second])

    def write_other_list(self, paths):
        mine, self.list = self.list, self.dir / "other"
        other, self.list = self.write_list(paths), mine
        return other


class Squatted(Job):
    """Another file takes the socket's name before the job starts. It is left unchanged, and the
    list is served."""
    def check_squatted(self, says=None, **options):
        before = self.look()
        done = self.check_gated(self.script("need(COUNT)\nread_all()\n"), quiet=False, **options)
        self.assertLessEqual(len(done.ours), 1, str(done))
        for line in done.ours:
            self.assertIn(".sock", line)
        return before, self.look()

    def look(self):
        if not os.path.lexists(self.socket):
            return None
        st = os.lstat(self.socket)
        return st.st_ino, st.st_mode, st.st_uid, st.st_size

    def check_kept(self):
        self.socket_may_stay = True
        before, after = self.check_squatted()
        self.assertEqual(after, before)

    def test_by_a_directory(self):
        self.socket.mkdir()
        self.check_kept()

    def test_by_a_file(self):
        self.socket.write_bytes(b"mine")
        self.check_kept()

    def test_by_a_link_to_a_file_of_value(self):
        value = self.dir / "value"
        value.write_bytes(b"dear")
        self.socket.symlink_to(value)
        self.check_kept()
        self.assertEqual(value.read_bytes(), b"dear")

    def test_by_a_link_to_nothing(self):
        self.socket.symlink_to(self.dir / "made")
        self.check_kept()
        self.assertFalse((self.dir / "made").exists())

    def bound(self):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(str(self.socket))
        return server

    def test_by_a_socket_of_a_dead_process(self):
        # The socket file of a killed leader is replaced silently, and removed.
        self.bound().close()
        before, after = self.check_squatted()
        self.assertNotEqual(after, before)

    def test_by_a_silent_listener(self):
        self.socket_may_stay = True
        for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with self.subTest(kind), socket.socket(socket.AF_UNIX, kind) as server:
                self.socket.unlink(missing_ok=True)
                server.bind(str(self.socket))
                if kind != socket.SOCK_DGRAM:
                    server.listen(0)
                self.check_squatted()

    def test_by_another_user(self):
        self.copy_for_others()
        plain, command = self.nobodys(*self.script("need(COUNT)\nread_all()\n"))
        native = self.run_one(plain, shim=False, preload=[])
        theirs = pathlib.Path(str(self.socket).replace(f"-{os.geteuid()}-", f"-{NOBODY}-"))
        self.addCleanup(theirs.unlink, missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.bind(str(theirs))
            server.listen(10)
            theirs.chmod(0o777)
            done = self.check_gated(command, native=native, preload=[], quiet=False)
        self.assertLessEqual(len(done.ours), 1, str(done))
        self.assertTrue(theirs.exists(), "what is another user's stays")


if __name__ == "__main__":
    unittest.main()
