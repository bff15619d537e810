"""Tests of bench/cluster: the nodes and their end, jobs with and without servers, and the targets
that count as reached."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from support import BUILD, LAGFS, ROOT, ScratchTest

from bench.cluster import cluster
from bench.cluster.cluster import ALONE, POOL, Runs, Struck, ratio
from bench.cluster.jobs import (READERS, Epoch, Plan, check_digests, same_order, shares, started,
                                wait_until_shared)
from bench.cluster.nodes import Network, wait_until
from bench.data.sets import FileSet, make_files
from bench.harness.errors import BenchError
from bench.harness.suite import Bench

SIZE, NODES = 20_000, 3
# Fewer than 16 files for each node: after 16 files, an open waits no longer for servers than for
# the origin.
FILES = 15 * NODES
PROGRAM = BUILD / "cubeshim_node_reader"
CAN_HAVE_NODES = os.geteuid() == 0 and shutil.which("memcached") and shutil.which(
    "ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
# Starts nodes, prints the pids of their servers, and waits for the end of its stdin.
HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from bench.cluster.nodes import Network
with Network(2, 8) as network:
    print(*(server.process.pid for server in network.servers), flush=True)
    time.sleep(600)
"""


def epoch_of(seconds: float = 1.0, opens: int = 0, longest_ms: float = 1.0,
             long_ms: float = 0.0) -> Epoch:
    return Epoch(100, seconds, opens, longest_ms, long_ms)


class Figures(unittest.TestCase):
    def test_shares_have_each_file_once(self) -> None:
        orders = shares(100, NODES, READERS, "x")
        self.assertEqual(sorted(file for node in orders for reader in node for file in reader),
                         list(range(100)))
        self.assertEqual((len(orders), {len(node) for node in orders}), (NODES, {READERS}))
        self.assertNotEqual(orders, shares(100, NODES, READERS, "y"))

    def test_one_order_has_each_file_once_a_node(self) -> None:
        orders = same_order(100, NODES, READERS, "x")
        self.assertEqual(orders[0], orders[2])
        self.assertEqual(sorted(file for reader in orders[1] for file in reader), list(range(100)))

    def test_ratios_are_of_one_round(self) -> None:
        found = {
            ALONE: Runs([[epoch_of(8), epoch_of(2)]]), POOL: Runs([[epoch_of(1),
                                                                    epoch_of(1)]])
        }
        self.assertEqual(ratio(found, 0).median, 5)

    def test_lost_time_is_of_all_readers(self) -> None:
        found = Struck([epoch_of(2, longest_ms=3, long_ms=40)],
                       [epoch_of(2, longest_ms=23, long_ms=280)])
        self.assertEqual(found.more_ms().median, 20)
        self.assertAlmostEqual(found.lost().median, 0.01)

    def test_other_bytes_end_the_run(self) -> None:
        check_digests({1}, "x")
        with self.assertRaisesRegex(BenchError, "not the same bytes"):
            check_digests({1, 2}, "x")

    def test_whole_data_have_room_on_uneven_servers(self) -> None:
        self.assertGreaterEqual(NODES * cluster.room_for(300 << 20), 360)
        self.assertLess(NODES * cluster.room_for(300 << 20, 0.5), 155)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def last_answers(network: Network, seconds: float) -> bool:
    """Returns True if the last server answers a request from the first node."""
    try:
        with network.nodes[0].connect(network.servers[-1].address, seconds) as connection:
            connection.sendall(b"version\r\n")
            return connection.recv(100).startswith(b"VERSION")
    except OSError:
        return False


@unittest.skipUnless(CAN_HAVE_NODES, "nodes need root, ip and memcached")
class Nodes(ScratchTest):
    def test_each_node_reaches_each_server_unless_its_cable_is_out(self) -> None:
        with Network(2, 8) as network:
            for node in network.nodes:
                for server in network.servers:
                    node.connect(server.address).close()
            self.assertEqual([server.items() for server in network.servers], [0, 0])
            network.set_cable(1, "down")
            network.servers[1].node.connect(network.servers[1].address).close()
            with self.assertRaises(OSError):
                network.nodes[0].connect(network.servers[1].address, seconds=0.3)
            network.set_cable(1, "up")
            network.nodes[0].connect(network.servers[1].address).close()

    def test_leaves_no_process_after_an_interrupt_or_a_kill(self) -> None:
        for number in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(number.name), subprocess.Popen([sys.executable, "-c", HOLDER, ROOT],
                                                             stdout=subprocess.PIPE,
                                                             stderr=subprocess.DEVNULL,
                                                             text=True) as holder:
                servers = [int(word) for word in holder.stdout.readline().split()]
                self.assertEqual([is_alive(pid) for pid in servers], [True, True])
                holder.send_signal(number)
                holder.wait()
                wait_until(lambda: not any(map(is_alive, servers)), "the servers end")


@unittest.skipUnless(
    CAN_HAVE_NODES and LAGFS and PROGRAM.exists() and (BUILD / "libcubeshim.so").exists(),
    "nodes need root, ip, memcached, lagfs and cubeshim_node_reader")
class Jobs(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.scratch.chmod(0o755)
        self.bench = Bench(BUILD, self.scratch, quick=True)
        path = self.scratch / "data"
        make_files(path, SIZE, FILES)
        for file in path.rglob("*.bin"):
            os.utime(file, (1e9, 1e9))
        self.plan = Plan(FileSet("small", path, FILES, FILES * SIZE), 32 << 20, 300, readers=2,
                         settings=(("CUBESHIM_CLUSTER_DEADLINE", "10s"),))

    def orders(self, seed: str) -> list:
        return shares(FILES, NODES, 2, seed)

    def test_both_ways_read_the_same_bytes_and_only_the_servers_spare_the_origin(self) -> None:
        digests: set[int] = set()
        opens = {}
        with Network(NODES, 16) as network:
            for pool in (False, True):
                with started(self.bench, network, self.plan, pool) as job:
                    first = job.epoch(self.orders("first"), digests)
                    shared = wait_until_shared(network)
                    second = job.epoch(self.orders("second"), digests)
                opens[pool] = (first.opens, second.opens, shared)
                self.assertEqual((first.files, second.files), (FILES, FILES))
        self.assertEqual(len(digests), 1)
        self.assertEqual((opens[True][0], opens[False][0]), (FILES, FILES))
        self.assertEqual(opens[False][2], 0)
        self.assertGreater(opens[False][1], FILES // 3, "a node has a third of the files in memory")
        self.assertEqual(opens[True][1:], (0, FILES))

    def test_digest_changes_with_one_byte(self) -> None:
        digests: set[int] = set()
        with Network(1, 16) as network:
            for _ in range(2):
                with started(self.bench, network, self.plan, pool=False) as job:
                    job.epoch(shares(FILES, 1, 2, "x"), digests)
                with next(self.plan.files.path.rglob("*.bin")).open("r+b") as file:
                    file.seek(SIZE - 1)
                    last = file.read(1)
                    file.seek(SIZE - 1)
                    file.write(bytes([last[0] ^ 1]))
        self.assertEqual(len(digests), 2)

    def test_a_fault_strikes_in_the_midst_and_is_mended(self) -> None:
        with Network(NODES, 16) as network:
            for fault in cluster.FAULTS:
                answers = []

                def look(act, network, seconds, answers=answers) -> None:
                    act(network)
                    answers.append(last_answers(network, seconds))

                watched = cluster.Fault(
                    fault.name,
                    lambda network, act=fault.strike, look=look: look(act, network, 0.5),
                    lambda network, act=fault.mend, look=look: look(act, network, 15.0))
                with self.subTest(fault.name), mock.patch.object(cluster, "PAUSE_US", 20_000):
                    found = cluster.run_fault(self.bench, network, self.plan.files, watched, 1)
                    self.assertEqual((found.whole[0].files, found.struck[0].files), (FILES, FILES))
                    self.assertEqual(answers, [False, True])

    def test_instructions_of_a_hit_are_counted(self) -> None:
        with Network(1, 16) as network, started(self.bench, network, self.plan, pool=True) as job:
            job.epoch(shares(FILES, 1, 2, "x"), set())
            steps = job.steps()
        self.assertTrue(1000 < steps < 100_000, steps)

    def test_missing_file_ends_the_run(self) -> None:
        with Network(1, 16) as network, self.assertRaisesRegex(BenchError, "a reader ended with 1"):
            with started(self.bench, network, self.plan, pool=False) as job:
                next(self.plan.files.path.rglob("*.bin")).unlink()
                job.epoch(shares(FILES, 1, 2, "x"), set())


if __name__ == "__main__":
    unittest.main()
