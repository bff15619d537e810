"""Nodes that share their files through memcached, with servers and processes that fail, hang, are
full or refuse requests."""
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cluster_nodes import FILES, LIBRARY, OLD, PYTHON, Cluster, Node  # noqa: E402
from cluster_servers import DEADLINE_S, wait_until  # noqa: E402


class Herd(Cluster):
    def test_nodes_that_miss_one_file_concurrently_open_it_once(self):
        prefix = self.mount(latency_us=4000)
        nodes = [self.node(f"n{i}", prefix) for i in range(3)]
        for node in nodes:
            # The first open starts the threads and connections of the node.
            node.ask("open", prefix / self.files[0])
        opens = []
        for file in self.files[1:]:
            before = self.origin("open")
            for node in nodes:
                node.send("open", prefix / file)
            self.assertEqual(len({node.hear().split()[0] for node in nodes}), 1)
            opens.append(self.origin("open") - before)
        reports = [node.end() for node in nodes]
        # Waits are limited, so on a busy machine some files can be opened twice.
        self.assertIn(1, opens)
        self.assertLessEqual(sum(opens), 2 * len(opens), opens)
        self.assertGreater(sum(report["cluster"]["waits"] for report in reports), 0)
        self.assertGreater(sum(report["hits"]["cluster"] for report in reports), 0)

    def test_node_ahead_of_the_others_keeps_taking_leases_at_a_slow_origin(self):
        names = [f"many/{i}" for i in range(300)]
        (self.source / "many").mkdir()
        for name in names:
            (self.source / name).write_bytes(b"x" * 500)
            os.utime(self.source / name, OLD)
        for latency_us in (3000, 0):
            with self.subTest(latency_us=latency_us):
                self.pool[0].flush()
                node = self.node(f"ahead{latency_us}", self.mount(latency_us=latency_us))
                for name in names:
                    node.ask("open", self.slow.path / name)
                report = node.end()
                self.assertEqual((report["misses"], report["hits"]["cluster"]), (len(names), 0))
                # 256 lookups without a hit make a pool cold.
                self.assertEqual(report["cluster"]["skipped"] > 0, latency_us == 0,
                                 report["cluster"])


class Failures(Cluster):
    server_count = 3

    def read_all(self, node: Node, prefix: Path, said: list[str]):
        for file, before in zip(self.files, said):
            self.assertEqual(node.ask("open", prefix / file), before)

    def test_a_server_that_is_killed_costs_its_share(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        share = self.pool[1].items()
        node = self.node("second", prefix)
        node.ask("open", prefix / self.files[0])
        self.pool[1].kill()
        self.read_all(node, prefix, said)
        report = node.end()
        self.assertGreaterEqual(report["hits"]["cluster"], FILES - share)
        self.assertGreaterEqual(report["cluster"]["trips"], 1)

    def test_a_server_that_hangs_is_waited_for_once(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        first.end()
        for server in self.pool:
            server.stop()
        try:
            # The kernel still accepts the connections.
            node = self.node("second", prefix, CUBESHIM_CLUSTER_DEADLINE="20ms")
            self.read_all(node, prefix, said)
            report = node.end()
        finally:
            for server in self.pool:
                server.go_on()
        self.assertEqual((report["hits"]["cluster"], report["misses"]), (0, FILES))
        self.assertEqual(report["cluster"]["trips"], 3)
        # One open waits for each server. Another open can ask before the thread has noted the
        # failure; it stops waiting together with the first.
        self.assertLessEqual(report["cluster"]["late"], 6)
        self.assertEqual(report["cluster"]["skipped"] + report["cluster"]["late"], FILES)

    def test_no_open_waits_longer_than_25_ms(self):
        prefix = self.mount()
        self.fill(prefix)[0].end()
        for server in self.pool:
            server.stop()
        try:
            # One open waits for each of the three servers. Other programs of the machine can cause
            # delays, too; then another trial is made.
            waits, late = [], 0
            for trial in range(60):
                node = self.node(f"trial{trial}", prefix, CUBESHIM_CLUSTER_DEADLINE="20ms")
                waits.append(
                    sorted(float(node.ask("time", prefix / file))
                           for file in self.files)[-len(self.pool)])
                late = node.end()["cluster"]["late"]
                if late > 0 and waits[-1] < 0.025 + 0.010:
                    break
        finally:
            for server in self.pool:
                server.go_on()
        self.assertGreater(late, 0, "somebody has waited")
        self.assertLess(waits[-1], 0.025 + 0.010, waits)

    def test_a_server_that_comes_back_is_used_again(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        first.end()
        node = self.node("second", prefix)
        self.read_all(node, prefix, said[:1])
        for server in self.pool:
            server.kill()
            server.start()
        # The server was restarted, so it is empty and its connections are closed. The other files
        # are read from the origin and shared again.
        self.read_all(node, prefix, said)
        wait_until(lambda: len(self.values()) >= FILES - 1, "the files are shared anew")
        self.assertEqual(node.end()["cluster"]["trips"], 0)

    def test_lists_that_differ_cost_hits_and_nothing_else(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        first.end()
        node = self.node("second", prefix,
                         CUBESHIM_CLUSTER=f"memcached://{self.pool[2].name},{self.pool[0].name}")
        self.read_all(node, prefix, said)
        report = node.end()
        self.assertEqual(report["hits"]["cluster"] + report["misses"], FILES)
        self.assertGreater(report["hits"]["cluster"], 0)

    def test_a_fork_an_exec_and_a_closefrom_go_on(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        first.end()
        node = self.node("second", prefix)
        self.assertEqual(node.ask("open", prefix / self.files[0]), said[0])
        self.assertEqual(node.ask("fork", prefix / self.files[1]), said[1])
        self.assertEqual(node.ask("exec", prefix / self.files[2]), said[2].split()[1])
        self.assertEqual(node.ask("closefrom", prefix / self.files[3]), said[3])
        self.read_all(node, prefix, said)
        report = node.end()
        self.assertEqual((report["hits"]["cluster"], report["misses"]), (FILES, 0))

    def test_processes_end_while_others_wait(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        first.end()
        text = """
import os, sys, threading
paths = sys.argv[1:]
def read(part):
    for path in part:
        open(path, 'rb').read()
threads = [threading.Thread(target=read, args=(paths[i::4],)) for i in range(4)]
for thread in threads: thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        try:
            read(paths[:6])
            os._exit(0)
        except BaseException:
            os._exit(1)
    if os.waitpid(pid, 0)[1] != 0: sys.exit(3)
for thread in threads: thread.join()
print('done')
"""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        for trial in range(4):
            env = clean | {
                "CUBESHIM_NAME": f"cluster-{os.getpid()}-forks{trial}",
                "CUBESHIM_PREFIXES": str(prefix), "CUBESHIM_STATS": "off", "CUBESHIM_RAM": "32M",
                "CUBESHIM_CLUSTER": self.servers(), "LD_PRELOAD": LIBRARY
            }
            done = subprocess.run(
                [PYTHON, "-c", text, *(str(prefix / file) for file in self.files)], env=env,
                capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)


class Full(Cluster):
    memory_mb = 4
    server_options = ("-I", "1m")

    def test_a_full_server_is_offered_nothing_for_a_while(self):
        prefix = self.mount()
        for number in range(40):
            (self.source / f"big{number}").write_bytes(os.urandom(400_000))
            os.utime(self.source / f"big{number}", OLD)
        node = self.node("first", prefix, CUBESHIM_RAM="64M")
        for number in range(40):
            self.assertIn(" 400000 ", node.ask("open", prefix / f"big{number}"))
        sizes = []

        def is_settled() -> bool:
            sizes.append(self.items())
            return sizes[-1] > 0 and len(sizes) > 50 and len(set(sizes[-50:])) == 1

        wait_until(is_settled, "no more is taken")
        report = node.end()
        self.assertEqual((report["misses"], report["cluster"]["refused"]), (40, 1))
        self.assertEqual(report["cluster"]["trips"], 0, "it answers reads still")


class Few(Cluster):
    server_options = ("-c", "20")

    def test_server_with_too_many_connections_is_not_asked(self):
        prefix = self.mount()
        held = [socket.create_connection(("127.0.0.1", self.pool[0].port)) for _ in range(40)]
        for connection in held:
            self.addCleanup(connection.close)
        node = self.node("first", prefix)
        for file in self.files:
            self.assertNotIn("Error", node.ask("open", prefix / file))
        report = node.end()
        self.assertEqual((report["misses"], report["hits"]["cluster"]), (FILES, 0))


class Login(Cluster):
    def setUp(self):
        self.accounts = Path(
            self.enterContext(tempfile.NamedTemporaryFile(prefix="cubeshim-accounts-")).name)
        self.accounts.chmod(0o644)
        self.accounts.write_text("anna:secret\n")
        self.server_options = ("-Y", str(self.accounts))
        super().setUp()

    def offered(self, name: str, **settings: str) -> dict:
        prefix = self.source
        node = self.node(name, prefix, CUBESHIM_STATS_INTERVAL="0", **settings)
        for file in self.files:
            node.ask("open", prefix / file)
        self.last = node
        return node

    def test_login_is_sent_first(self):
        login = self.scratch / "login"
        login.write_text("anna:secret\n")
        node = self.offered("right", CUBESHIM_CLUSTER_LOGIN_FILE=str(login))
        second = None

        def is_shared() -> bool:
            nonlocal second
            second = self.offered(f"second{time.monotonic_ns()}",
                                  CUBESHIM_CLUSTER_LOGIN_FILE=str(login), CUBESHIM_CLUSTER_FILL="0")
            return second.end()["hits"]["cluster"] == FILES

        wait_until(is_shared, "a second node finds all of it")
        node.end()
        login.write_text("anna:wrong\n")
        report = self.offered("wrong", CUBESHIM_CLUSTER_LOGIN_FILE=str(login)).end()
        self.assertEqual((report["hits"]["cluster"], report["misses"]), (0, FILES))
        login.write_text("no login\n")
        broken = self.offered("broken", CUBESHIM_CLUSTER_LOGIN_FILE=str(login))
        broken.end()
        self.assertIn("CUBESHIM_CLUSTER_LOGIN_FILE", broken.errors.read_text())


if __name__ == "__main__":
    unittest.main()
