"""Files that other nodes have are fetched before a program opens them. CUBESHIM_LIBRARY and
CUBESHIM_LAGFS name the build's files."""
import os
import unittest
from pathlib import Path

from cluster_nodes import FILES, OLD, Cluster, in_memory
from cluster_servers import wait_until


class Ahead(Cluster):
    def ahead(self, name: str, prefix: Path, waits: bool = True, **settings: str):
        """Starts a node and waits until it has fetched all files of a list. The program has opened
        one file, so that a leader exists."""
        names = self.scratch / f"list-{name}"
        names.write_text("".join(f"{prefix / file}\n" for file in self.files))
        node = self.node(name, prefix, CUBESHIM_PREFETCH="1", CUBESHIM_PREFETCH_LIST=str(names),
                         **settings)
        node.ask("open", prefix / self.files[0])
        if waits:
            wait_until(lambda: in_memory(node) == len(self.files), "the list is fetched")
        return node

    def counted(self, node) -> dict:
        report = node.end()
        return {
            "fetched": report["prefetch"]["fetched"], "opens": report["origin"]["opens"],
            "stats": report["origin"]["stats"], "hits": report["cluster"]["hits"],
            "offered": report["cluster"]["offered"], "misses": report["misses"],
            "lookups": report["hits"]
        }

    def wait_for_memory(self, node, prefix: Path, said: list[str]):
        self.assertEqual([node.ask("open", prefix / file) for file in self.files], said)


class FromThePool(Ahead):
    def test_a_list_is_fetched_from_the_other_nodes_without_an_open(self):
        prefix = self.mount()
        _, said = self.fill(prefix)
        node = self.ahead("second", prefix)
        self.wait_for_memory(node, prefix, said)
        counts = self.counted(node)
        self.assertEqual((counts["opens"], counts["misses"], counts["offered"]), (0, 0, 0), counts)
        self.assertEqual(counts["hits"], FILES, "each came once from the pool")

    def knowing(self, prefix: Path):
        """Starts a second node of the job that has shared all files. It has opened 16 files, so it
        knows that inode numbers are the same on both nodes."""
        node = self.node(
            "second", prefix, CUBESHIM_CLUSTER_JOB="train-7", CUBESHIM_PREFETCH="1",
            PYTHONPATH=str(Path(__file__).resolve().parent.parent.parent / "prefetch" / "python"))
        for file in self.files[:16]:
            node.ask("open", prefix / file)
        return node

    def announce_the_rest(self, node, prefix: Path):
        node.ask("announce", " ".join(str(prefix / file) for file in self.files[16:]))
        wait_until(lambda: in_memory(node) == FILES, "the rest is fetched")

    def test_no_file_of_the_same_job_is_revalidated(self):
        prefix = self.mount()
        _, said = self.fill(prefix, CUBESHIM_CLUSTER_JOB="train-7")
        node = self.knowing(prefix)
        self.announce_the_rest(node, prefix)
        self.wait_for_memory(node, prefix, said)
        counts = self.counted(node)
        self.assertEqual((counts["opens"], counts["stats"], counts["fetched"]), (0, 16, FILES - 16),
                         counts)

    def test_a_file_that_this_node_has_changed_is_not_taken_from_another(self):
        prefix = self.mount()
        _, said = self.fill(prefix, CUBESHIM_CLUSTER_JOB="train-7")
        node = self.knowing(prefix)
        self.assertEqual(node.ask("write", f"{prefix / self.files[20]} changed"), "written")
        self.announce_the_rest(node, prefix)
        heard = [node.ask("open", prefix / file) for file in self.files]
        self.assertEqual([a == b for a, b in zip(heard, said)], [i != 20 for i in range(FILES)])
        self.assertEqual(heard[20].split()[4], str(int((1e9 + 5) * 1e9)))
        node.end()

    def test_files_that_the_pool_lacks_come_from_the_origin_and_are_shared(self):
        prefix = self.mount()
        node = self.ahead("first", prefix)
        said = [node.ask("open", prefix / file) for file in self.files]
        wait_until(lambda: len(self.values()) == FILES, "all files are shared")
        counts = self.counted(node)
        self.assertEqual(counts["opens"], FILES, "each was opened once")
        self.assertEqual(counts["offered"], FILES)
        second = self.ahead("second", prefix)
        self.wait_for_memory(second, prefix, said)
        self.assertEqual(self.counted(second)["opens"], 0)

    def test_a_changed_file_is_fetched_from_the_origin(self):
        prefix = self.mount()
        _, said = self.fill(prefix)
        changed = self.source / self.files[5]
        changed.write_bytes(b"other bytes")
        os.utime(changed, (1e9 + 3, 1e9 + 3))
        node = self.ahead("second", prefix)
        heard = [node.ask("open", prefix / file) for file in self.files]
        self.assertEqual([a == b for a, b in zip(heard, said)], [i != 5 for i in range(FILES)])
        self.assertIn(" 11 ", heard[5])
        counts = self.counted(node)
        self.assertEqual(counts["opens"], 1, counts)

    def test_large_files_and_names_of_no_file_are_handled_as_usual(self):
        prefix = self.mount()
        self.fill(prefix)
        (self.source / "large").write_bytes(os.urandom(300_000))
        os.utime(self.source / "large", OLD)
        names = self.scratch / "list"
        names.write_text("".join(
            f"{prefix / file}\n" for file in ["none", "d0", "large", *self.files]))
        node = self.node("second", prefix, CUBESHIM_PREFETCH="1", CUBESHIM_PREFETCH_LIST=str(names),
                         CUBESHIM_MAX_FILE="64K", CUBESHIM_BLOCK="64K")
        size = node.ask("open", prefix / "large").split()[1]
        self.assertEqual(size, "300000")
        self.assertEqual(node.ask("open", prefix / "none"), "FileNotFoundError")
        for file in self.files:
            node.ask("open", prefix / file)
        node.end()

    def test_a_list_through_the_ring_comes_from_the_pool_in_each_epoch(self):
        big = self.source / "big"
        big.mkdir()
        self.files = [f"big/{i}" for i in range(80)]
        for name in self.files:
            (self.source / name).write_bytes(os.urandom(1000) * 524)
            os.utime(self.source / name, OLD)
        prefix = self.mount()
        first = self.node("first", prefix, CUBESHIM_RAM="128M")
        said = [first.ask("open", prefix / name) for name in self.files]
        wait_until(lambda: len(self.values()) == len(self.files), "all are shared")
        node = self.ahead("small", prefix, waits=False, CUBESHIM_RAM="16M", CUBESHIM_RING="50%")
        for _ in range(2):
            self.wait_for_memory(node, prefix, said)
        counts = self.counted(node)
        self.assertEqual((counts["opens"], counts["misses"]), (0, 0), counts)

    def test_a_dead_server_is_left_to_the_origin(self):
        prefix = self.mount()
        _, said = self.fill(prefix)
        self.pool[0].kill()
        node = self.ahead("second", prefix)
        self.wait_for_memory(node, prefix, said)
        counts = self.counted(node)
        self.assertEqual((counts["opens"], counts["hits"]), (FILES, 0), counts)


class Together(Ahead):
    def test_nodes_with_one_list_open_each_file_about_once(self):
        prefix = self.mount(latency_us=2000)
        nodes = [self.ahead(f"n{i}", prefix, waits=False) for i in range(3)]
        for file in self.files:
            self.assertEqual(len({node.ask("open", prefix / file).split()[0] for node in nodes}), 1)
        opens = sum(self.counted(node)["opens"] for node in nodes)
        # Waits are limited, so on a busy machine some files can be opened twice.
        self.assertGreaterEqual(opens, FILES)
        self.assertLess(opens, 2 * FILES, opens)


if __name__ == "__main__":
    unittest.main()
