"""Nodes that share their files through memcached. Tests which files are shared, when the origin is
asked, and which users may read the files."""
import os
import struct
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cluster_nodes import FILES, OLD, Cluster  # noqa: E402
from cluster_servers import wait_until  # noqa: E402


class Sharing(Cluster):
    server_count = 3

    def test_a_second_node_opens_nothing_at_the_origin(self):
        prefix = self.mount()
        first, said = self.fill(prefix)
        self.assertGreater(min(server.items() for server in self.pool), 0,
                           "each server has a share")
        self.assertEqual(first.end()["cluster"]["offered"], FILES)
        opens = self.origin("open", "read")
        self.assertGreaterEqual(opens, FILES)
        second = self.node("second", prefix)
        self.assertEqual([second.ask("open", prefix / file) for file in self.files], said,
                         "the bytes and the stat are the same")
        report = second.end()
        self.assertEqual(self.origin("open", "read"), opens)
        self.assertEqual((report["hits"]["cluster"], report["misses"], report["origin"]["opens"]),
                         (FILES, 0, 0))
        self.assertEqual(report["cluster"]["hits"], FILES)
        self.assertEqual(report["cluster"]["offered"], 0,
                         "what came from another node is not offered again")
        self.assertEqual(report["origin"]["stats"], FILES,
                         "without a name for the job, each file is revalidated once")

    def test_a_program_whose_stack_holds_an_old_action_of_a_signal_asks_the_pool(self):
        prefix = self.mount()
        self.fill(prefix)
        second = self.node("second", prefix,
                           TEST_WORDS=[os.environ["PRELOAD_HELPER"], "old-action"])
        sizes = [second.ask("open", prefix / file) for file in self.files]
        self.assertEqual(sizes, [str((self.source / file).stat().st_size) for file in self.files])
        self.assertGreater(second.end()["hits"]["cluster"], 0)

    def test_a_node_that_is_full_serves_through_its_ring(self):
        big = self.source / "big"
        big.mkdir()
        # The files have 40 MiB, and the region has 16 MiB.
        names = [f"big/{i}" for i in range(80)]
        for name in names:
            (self.source / name).write_bytes(os.urandom(1000) * 524)
            os.utime(self.source / name, OLD)
        prefix = self.mount()
        first = self.node("first", prefix, CUBESHIM_RAM="128M")
        said = [first.ask("open", prefix / name) for name in names]
        wait_until(lambda: len(self.values()) == len(names), "all are shared")
        small = self.node("small", prefix, CUBESHIM_RAM="16M", CUBESHIM_RING="50%")
        for _ in range(2):
            self.assertEqual([small.ask("open", prefix / name) for name in names], said)
        report = small.end()
        self.assertGreater(report["hits"]["cluster"], len(names),
                           "the second pass needs the pool, too")

    def test_nodes_may_mount_at_other_paths(self):
        here = self.mount()
        first, said = self.fill(here, CUBESHIM_CLUSTER_ORIGIN=f"{here}=data-set")
        there = self.mount()
        self.assertNotEqual(here, there)
        second = self.node("second", there, CUBESHIM_CLUSTER_ORIGIN=f"{there}=data-set")
        for file, before in zip(self.files, said):
            words = second.ask("open", there / file).split()
            self.assertEqual(words[:2], before.split()[:2])
            self.assertEqual(int(words[2]),
                             os.stat(there).st_dev, "the device is the one that is mounted here")
        self.assertEqual(second.end()["hits"]["cluster"], FILES)
        self.assertEqual(self.origin("open", "read"), 0)

    def test_a_node_that_takes_smaller_files_keeps_its_connection(self):
        (self.source / "large").write_bytes(os.urandom(200_000))
        os.utime(self.source / "large", OLD)
        prefix = self.mount()
        first, said = self.fill(prefix)
        first.ask("open", prefix / "large")
        wait_until(lambda: len(self.values()) == FILES + 1, "the large one is shared, too")
        small = self.node("small", prefix, CUBESHIM_MAX_FILE="32K", CUBESHIM_BLOCK="0")
        self.assertEqual(small.ask("open", prefix / "large").split()[1], "200000")
        self.assertEqual([small.ask("open", prefix / file) for file in self.files], said)
        report = small.end()
        self.assertEqual((report["cluster"]["trips"], report["cluster"]["damaged"]), (0, 0))
        self.assertEqual(report["hits"]["cluster"], FILES)

    def test_another_name_is_another_namespace(self):
        prefix = self.mount()
        self.fill(prefix)
        other = self.node("other", prefix, CUBESHIM_CLUSTER_NAME="other")
        for file in self.files:
            other.ask("open", prefix / file)
        self.assertEqual(other.end()["hits"]["cluster"], 0)

    def test_a_node_that_only_reads_offers_nothing(self):
        prefix = self.mount()
        reader = self.node("reader", prefix, CUBESHIM_CLUSTER_FILL="0")
        for file in self.files:
            reader.ask("open", prefix / file)
        report = reader.end()
        self.assertEqual((report["misses"], self.items()), (FILES, 0))

    def test_records_that_the_memory_had_before_are_shared_as_well(self):
        prefix = self.mount()
        alone = self.node("node", prefix, CUBESHIM_CLUSTER="")
        for file in self.files:
            alone.ask("open", prefix / file)
        node = self.node("node", prefix)
        (self.source / "new").write_bytes(b"a miss starts the thread")
        os.utime(self.source / "new", OLD)
        node.ask("open", prefix / "new")
        wait_until(lambda: len(self.values()) == FILES + 1, "all files are shared")
        self.assertEqual(node.end()["cluster"]["offered"], FILES + 1)


class Freshness(Cluster):
    def looks(self, prefix: Path, name: str, **settings: str) -> dict:
        node = self.node(name, prefix, **settings)
        for file in self.files:
            node.ask("open", prefix / file)
        return node.end()

    def test_a_node_of_the_same_job_stops_asking_the_origin(self):
        prefix = self.mount()
        self.fill(prefix, CUBESHIM_CLUSTER_JOB="train-7")
        same = self.looks(prefix, "same", CUBESHIM_CLUSTER_JOB="train-7")
        self.assertEqual((same["hits"]["cluster"], same["origin"]["stats"]), (FILES, 16),
                         "16 files show that the inodes are the same")
        for name, settings in {
                "another": {"CUBESHIM_CLUSTER_JOB": "train-8"}, "none": {},
                "ttl": {"CUBESHIM_CLUSTER_JOB": "train-7", "CUBESHIM_CONSISTENCY": "ttl:60"},
                "open": {"CUBESHIM_CLUSTER_JOB": "train-7", "CUBESHIM_CONSISTENCY": "open"}
        }.items():
            with self.subTest(name):
                other = self.looks(prefix, name, **settings)
                self.assertEqual((other["hits"]["cluster"], other["misses"]), (FILES, 0))
                self.assertGreaterEqual(other["origin"]["stats"], FILES)

    def test_variables_of_an_allocation_do_not_name_the_job(self):
        """Each step of an allocation is a separate job, and SLURM_JOB_ID is the same for all
        steps."""
        prefix = self.mount()
        self.fill(prefix, SLURM_JOB_ID="17", SLURM_STEP_ID="0", TORCHELASTIC_RUN_ID="7")
        self.assertEqual(
            self.looks(prefix, "next", SLURM_JOB_ID="17", SLURM_STEP_ID="0",
                       TORCHELASTIC_RUN_ID="7")["origin"]["stats"], FILES)

    def test_a_changed_file_is_fetched_and_shared_again(self):
        prefix = self.mount()
        self.fill(prefix)[0].end()
        changed = self.source / self.files[3]
        before = set(self.values().values())
        changed.write_bytes(b"new bytes of another length")
        os.utime(changed, (1e9 + 9, 1e9 + 9))
        # A file is shared only after it was unchanged for 2 s, and its ctime is the current time.
        node = self.node("second", prefix)
        self.assertIn(" 27 ", node.ask("open", prefix / self.files[3]))
        wait_until(lambda: len(set(self.values().values()) - before) == 1,
                   "the new bytes are shared")
        report = node.end()
        self.assertEqual(
            (report["cluster"]["outdated"], report["hits"]["cluster"], report["misses"]), (1, 0, 1))
        third = self.node("third", prefix)
        self.assertIn(" 27 ", third.ask("open", prefix / self.files[3]))
        self.assertEqual(third.end()["hits"]["cluster"], 1)

    def test_a_file_that_this_node_has_changed_is_revalidated(self):
        prefix = self.mount()
        self.fill(prefix, CUBESHIM_CLUSTER_JOB="train-7")[0].end()
        node = self.node("second", prefix, CUBESHIM_CLUSTER_JOB="train-7", CUBESHIM_RAM="32M")
        for file in self.files[:20]:
            node.ask("open", prefix / file)
        path = prefix / self.files[-1]
        size = path.stat().st_size
        self.assertEqual(node.ask("write", f"{path} changed"), "written")
        said = node.ask("open", path)
        self.assertEqual(said.split()[1], str(size))
        self.assertEqual(said.split()[4], str(int((1e9 + 5) * 1e9)),
                         "not the old one, which the pool still has")
        self.assertEqual(node.end()["cluster"]["outdated"], 1)

    def test_a_young_file_is_not_shared(self):
        prefix = self.mount()
        young = self.source / "young"
        young.write_bytes(b"x" * 1000)
        os.utime(young, (time.time() + 3600,) * 2)
        node = self.node("first", prefix)
        node.ask("open", prefix / "young")
        for file in self.files:
            node.ask("open", prefix / file)
        wait_until(lambda: len(self.values()) == FILES, "the others are shared")
        self.assertFalse(any(b"young" in value for value in self.values().values()))
        node.end()


class Forged(Cluster):
    def test_no_forged_byte_is_served(self):
        prefix = self.mount()
        first, said = self.fill(prefix, CUBESHIM_CLUSTER_JOB="train-7")
        first.end()
        values = self.values()
        file = self.files[0]
        key, value = next((k, v) for k, v in values.items() if file.encode() + b"\0" in v[256:300])
        server = self.pool[0]
        # A node that already trusts the mount examines each forged record.
        node = self.node("second", prefix, CUBESHIM_CLUSTER_JOB="train-7", CUBESHIM_RAM="32M",
                         CUBESHIM_CLUSTER_FILL="0")
        damaged = 0
        for at in range(256 + len(file)):
            forged = bytearray(value)
            forged[at] ^= 1 << at % 8
            server.put(key, bytes(forged))
            other = self.node("other", prefix, CUBESHIM_CLUSTER_JOB="train-7",
                              CUBESHIM_CLUSTER_FILL="0") if at % 32 == 0 else None
            for reader in filter(None, (other,)):
                self.assertEqual(reader.ask("open", prefix / file), said[0], at)
                report = reader.end()
                self.assertEqual((report["hits"]["cluster"], report["cluster"]["damaged"]), (0, 1),
                                 at)
                damaged += 1
                self.assertIsNone(server.get(key), "it is dropped")
        self.assertGreaterEqual(damaged, 8)
        for name, forged in {
                "cut": value[:-64], "longer": value + bytes(64),
                "data": value[:-100] + bytes([value[-100] ^ 1]) + value[-99:], "empty": b"\0",
                "another file's": next(v for k, v in values.items() if k != key)
        }.items():
            with self.subTest(name):
                server.put(key, forged)
                reader = self.node("other", prefix, CUBESHIM_CLUSTER_FILL="0")
                self.assertEqual(reader.ask("open", prefix / file), said[0])
                report = reader.end()
                self.assertEqual((report["hits"]["cluster"], report["cluster"]["damaged"]), (0, 1))
        node.end()


class Rights(Cluster):
    def test_files_not_readable_by_all_are_not_shared(self):
        secret, hidden = self.source / "secret", self.source / "hidden"
        secret.write_bytes(b"s" * 500)
        secret.chmod(0o640)
        hidden.mkdir()
        (hidden / "inside").write_bytes(b"h" * 600)
        hidden.chmod(0o750)
        for path in (secret, hidden / "inside"):
            os.utime(path, OLD)
        for trust, more in (("0", 0), ("1", 2)):
            with self.subTest(trust=trust):
                self.pool[0].flush()
                node = self.node(f"first{trust}", self.source, CUBESHIM_CLUSTER_TRUST=trust)
                for file in ("secret", "hidden/inside", *self.files):
                    node.ask("open", self.source / file)
                # The first two files were read first, so they would have been shared first.
                found = wait_until(
                    lambda: values if len(values := self.values()) >= FILES + more else None,
                    "the others are shared")
                self.assertEqual(
                    sum(b"ssssssss" in value or b"hhhhhhhh" in value for value in found.values()),
                    more)
                node.end()

    @unittest.skipUnless(os.geteuid() == 0, "another user needs root")
    def test_another_user_is_refused_files_without_read_right(self):
        private = self.source / "private"
        private.write_bytes(b"p" * 700)
        private.chmod(0o600)
        os.utime(private, OLD)
        refused = ["private"]
        # The file's mode lets all users read it, but an entry of its access control list denies
        # this user: USER_OBJ, USER, GROUP_OBJ, MASK, OTHER.
        listed = self.source / "listed"
        listed.write_bytes(b"l" * 700)
        os.utime(listed, OLD)
        entries = ((1, 6, -1), (2, 0, 65534), (4, 4, -1), (16, 4, -1), (32, 4, -1))
        try:
            os.setxattr(
                listed, "system.posix_acl_access",
                struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries))
            refused.append("listed")
        except OSError:
            pass  # a file system without such lists
        first = self.node("first", self.source, CUBESHIM_CLUSTER_TRUST="1",
                          CUBESHIM_CLUSTER_JOB="j")
        for file in (*refused, *self.files):
            first.ask("open", self.source / file)
        wait_until(lambda: len(self.values()) == FILES + len(refused), "all are shared")
        self.scratch.chmod(0o777)
        other = self.node("other", self.source, CUBESHIM_CLUSTER_TRUST="1",
                          CUBESHIM_CLUSTER_JOB="j", TEST_USER="65534")
        for file in self.files:
            self.assertNotIn("Error", other.ask("open", self.source / file))
        for file in refused:
            self.assertEqual(other.ask("open", self.source / file), "PermissionError", file)
        report = other.end()
        self.assertEqual(report["hits"]["cluster"], FILES)
        opens = FILES + 2 * len(refused)
        self.assertEqual((report["origin"]["opens"], report["origin"]["reads"]), (opens, 0),
                         "another user's records are revalidated, and opened")


if __name__ == "__main__":
    unittest.main()
