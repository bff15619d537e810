"""Nodes share blocks of large files and listings of directories through memcached. CUBESHIM_LIBRARY
and CUBESHIM_LAGFS name the build's files."""
import os
import unittest
from pathlib import Path

from cluster_nodes import FILES, OLD, Cluster, Node
from cluster_servers import wait_until

BLOCK = 64 << 10
LARGE = {"CUBESHIM_MAX_FILE": "32K", "CUBESHIM_BLOCK": "64K", "CUBESHIM_RAM": "64M"}


class Large(Cluster):
    def setUp(self):
        super().setUp()
        self.large = [f"large{i}" for i in range(3)]
        for number, name in enumerate(self.large):
            self.write(name, os.urandom(9 * BLOCK + 777 * number))
        self.blocks = sum(-(-os.path.getsize(self.source / name) // BLOCK) for name in self.large)

    def write(self, name: str, data: bytes, when: float = 1e9):
        (self.source / name).write_bytes(data)
        os.utime(self.source / name, (when, when))

    def share(self, prefix: Path, **settings: str) -> list[str]:
        first = self.node("first", prefix, **(LARGE | settings))
        said = [first.ask("open", prefix / name) for name in self.large]
        wait_until(lambda: len(self.values()) == self.blocks, "all blocks are shared")
        first.end()
        return said

    def read(self, node: Node, prefix: Path) -> list[str]:
        return [node.ask("open", prefix / name) for name in self.large]


class Blocks(Large):
    def test_a_second_node_reads_no_byte_at_the_origin(self):
        prefix = self.mount()
        said = self.share(prefix)
        second = self.node("second", prefix, **LARGE)
        self.assertEqual(self.read(second, prefix), said)
        report = second.end()
        self.assertEqual(report["origin"]["reads"], 0)
        total = sum(os.path.getsize(self.source / name) for name in self.large)
        self.assertEqual((report["blocks"]["cluster"], report["blocks"]["origin"]), (total, 0))
        self.assertEqual(report["cluster"]["offered"], 0,
                         "what came from another node is not offered again")

    def test_disk_of_a_node_gets_blocks_of_another(self):
        prefix, disk = self.mount(), self.scratch / "disk"
        disk.mkdir()
        said = self.share(prefix)
        settings = LARGE | {
            "CUBESHIM_DISK_DIR": str(disk), "CUBESHIM_DISK": "64M", "CUBESHIM_BLOCK": "64K"
        }
        second = self.node("second", prefix, **settings)
        self.assertEqual(self.read(second, prefix), said)
        second.end()
        self.pool[0].flush()
        third = self.node("second", prefix, **settings)
        self.assertEqual(self.read(third, prefix), said)
        report = third.end()
        total = sum(os.path.getsize(self.source / name) for name in self.large)
        self.assertEqual(
            (report["blocks"]["origin"] + report["blocks"]["disk"], report["blocks"]["cluster"]),
            (total, 0))

    def test_blocks_from_the_disk_are_shared(self):
        prefix, disk = self.mount(), self.scratch / "disk"
        disk.mkdir()
        settings = LARGE | {"CUBESHIM_DISK_DIR": str(disk), "CUBESHIM_DISK": "64M"}
        first = self.node("first", prefix, **(settings | {"CUBESHIM_CLUSTER": ""}))
        self.read(first, prefix)
        # On a busy machine, a job that ends can leave blocks unwritten.
        wait_until(lambda: any(f.stat().st_blocks for f in disk.rglob("segment-*")), "a segment")
        first.end()
        again = self.node("first", prefix, **settings)
        self.read(again, prefix)
        wait_until(lambda: len(self.values()) == self.blocks, "all blocks are shared")
        self.assertGreater(again.end()["blocks"]["disk"], 0)

    def test_a_changed_file_is_fetched_and_shared_again(self):
        prefix = self.mount()
        self.share(prefix)
        before = self.values()
        self.write(self.large[1], os.urandom(9 * BLOCK + 777), when=1e9 + 9)
        second = self.node("second", prefix, **LARGE)
        said = self.read(second, prefix)
        report = second.end()
        self.assertGreater(report["cluster"]["outdated"], 0)
        plain = self.node("plain", prefix, CUBESHIM_CLUSTER="", **LARGE)
        self.assertEqual(self.read(plain, prefix), said, "no old byte")
        third = self.node("third", prefix, **LARGE)
        self.assertEqual(self.read(third, prefix), said)
        wait_until(lambda: len(self.values()) == self.blocks and self.values() != before,
                   "the new blocks are shared")
        third.end()

    def test_no_forged_block_is_served(self):
        prefix = self.mount()
        said = self.share(prefix)
        values = self.values()
        keys = sorted(values)
        for turn, (key, other) in enumerate(zip(keys, keys[1:])):
            value = values[key]
            forged = [
                value[:-70] + bytes([value[-70] ^ 1]) + value[-69:], value[:100], values[other],
                b"x" * len(value)
            ][turn % 4]
            self.pool[0].put(key, forged)
        reader = self.node("reader", prefix, CUBESHIM_CLUSTER_FILL="0", **LARGE)
        self.assertEqual(self.read(reader, prefix), said)
        self.assertEqual(reader.end()["cluster"]["damaged"], len(keys) - 1)

    def test_a_private_file_stays_out(self):
        (self.source / self.large[0]).chmod(0o640)
        self.blocks -= 9
        prefix = self.mount()
        self.share(prefix)

    def test_another_size_of_block_is_another_name(self):
        prefix = self.mount()
        said = self.share(prefix)
        other = self.node("other", prefix, **(LARGE | {"CUBESHIM_BLOCK": "128K"}))
        self.assertEqual(self.read(other, prefix), said)
        self.assertEqual(other.end()["blocks"]["cluster"], 0)

    def test_a_server_that_is_killed_costs_its_share(self):
        prefix = self.mount()
        said = self.share(prefix)
        node = self.node("second", prefix, **LARGE)
        self.assertEqual(node.ask("open", prefix / self.large[0]), said[0])
        self.pool[0].kill()
        self.assertEqual(self.read(node, prefix), said)
        node.end()

    def together(self, prefix: Path, **settings: str) -> list[dict]:
        """Returns the reports of three nodes that have read all files at the same time, with the
        same bytes."""
        nodes = [self.node(f"n{i}", prefix, **(LARGE | settings)) for i in range(3)]
        for name in self.large:
            for node in nodes:
                node.send("open", prefix / name)
        said = {tuple(node.hear() for _ in self.large) for node in nodes}
        self.assertEqual(len(said), 1)
        return [node.end() for node in nodes]

    def test_nodes_that_read_one_file_concurrently_read_each_block_about_once(self):
        total = sum(os.path.getsize(self.source / name) for name in self.large)
        reports = self.together(self.mount(latency_us=20_000))
        self.assertGreater(sum(report["cluster"]["waits"] for report in reports), 0)
        # Waits are limited, so on a busy machine some blocks can be read twice.
        self.assertLess(sum(report["blocks"]["origin"] for report in reports), 2 * total)
        wait_until(lambda: all(self.pool[0].get(key) for key in self.pool[0].keys()),
                   "each lease has ended")

    def leases(self) -> int:
        """Returns the number of leases taken so far, for files and blocks, if nothing is shared."""
        return int(self.pool[0].figures()["total_items"])

    def wait_for_leases_to_end(self):
        """Waits until each lease is dropped by its version, or has expired."""
        def dropped() -> int:
            figures = self.pool[0].figures()
            return int(figures["delete_hits"]) + int(figures["delete_misses"])

        wait_until(lambda: dropped() >= self.leases(), "the leases were given back", 20)

    def test_a_private_file_has_no_lease_of_a_block(self):
        for name in self.large:
            (self.source / name).chmod(0o640)
        self.together(self.mount(latency_us=5_000))
        # The open of a file first requests it as a small file.
        self.assertLessEqual(self.leases(), 3 * len(self.large))
        self.wait_for_leases_to_end()

    def test_in_a_closed_directory_the_first_lease_of_a_block_is_the_last(self):
        (self.source / "closed").mkdir(0o700)
        for name in self.large:
            os.rename(self.source / name, self.source / "closed" / name)
        self.large = [f"closed/{name}" for name in self.large]
        self.together(self.mount(latency_us=20_000))
        # Some blocks can be in flight before the first fetch is known to be in vain.
        self.assertLess(self.leases(), self.blocks)
        self.wait_for_leases_to_end()


class Listings(Cluster):
    def share(self, prefix: Path, **settings: str) -> list[str]:
        """Lets a node read all files and list all directories, so that all of them are in the
        pool."""
        first = self.node("first", prefix, CUBESHIM_METADATA="1", **settings)
        for name in self.files:
            first.ask("open", prefix / name)
        said = self.list(first, prefix)
        wait_until(lambda: len(self.values()) >= FILES + 4, "the files and the listings are shared")
        first.end()
        return said

    def list(self, node: Node, prefix: Path) -> list[str]:
        return [node.ask("list", prefix / name) for name in ("", "d0", "d1", "d2")]

    def agree(self, node: Node, prefix: Path):
        """Makes the node open 16 files of the mount, so that it knows that inode numbers are the
        same on both nodes."""
        for name in self.files[:16]:
            node.ask("open", prefix / name)
        # The first listing of a mount is always read, because it shows whether the mount keeps the
        # times of directories.
        node.ask("list", prefix / "first")

    def setUp(self):
        super().setUp()
        (self.source / "first").mkdir()
        for name in ("first", "d0", "d1", "d2", "."):
            os.utime(self.source / name, OLD)

    def test_a_second_node_takes_listings_after_one_stat_of_each_directory(self):
        prefix = self.mount()
        said = self.share(prefix)
        second = self.node("second", prefix, CUBESHIM_METADATA="1")
        self.agree(second, prefix)
        before = self.listed()
        self.assertEqual(self.list(second, prefix), said)
        report = second.end()
        self.assertEqual((report["metadata"]["stored"], self.listed() - before), (4, 0))

    def test_a_changed_directory_is_listed_again(self):
        prefix = self.mount()
        self.share(prefix)
        (self.source / "d1" / "new").write_bytes(b"new")
        second = self.node("second", prefix, CUBESHIM_METADATA="1")
        self.agree(second, prefix)
        self.assertIn("new:", self.list(second, prefix)[2], "no old listing")
        report = second.end()
        self.assertGreaterEqual(report["cluster"]["outdated"], 1)

    def test_a_node_that_does_not_know_the_inodes_lists_for_itself(self):
        prefix = self.mount()
        said = self.share(prefix)
        second = self.node("second", prefix, CUBESHIM_METADATA="1")
        second.ask("list", prefix / "first")
        self.assertEqual(self.list(second, prefix), said)
        self.assertEqual(second.end()["metadata"]["stored"], 0)


if __name__ == "__main__":
    unittest.main()
