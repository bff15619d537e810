"""`cubeshim warmup --to-cluster`: several nodes fill the servers together. The mount counts the
operations that reach it, and hangs on request."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from cli_case import CONTENT, Case
from slow_mount import SlowMount

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "preload"))
from cluster_servers import Memcached, free_port, wait_until  # noqa: E402

FILES = 600


class MalformedOnce:
    """A server whose first answer is malformed, and is followed by another, which nobody has asked
    for: that the file is there."""
    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.name = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._has_begun = False
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self):
        talks = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            talks.append(threading.Thread(target=self._talk, args=(connection,)))
            talks[-1].start()
        for talk in talks:
            talk.join()

    def _talk(self, connection):
        with connection, connection.makefile("rwb") as stream:
            for line in stream:
                words = line.split()
                if not self._has_begun:
                    self._has_begun = True
                    stream.write(b"VA 1 c1 O1\r\nHD s70 c1 O1\r\n")
                elif words[0] == b"mg":
                    stream.write(b"HD s0 c2 O1 W\r\n")
                else:
                    stream.read(int(words[2]) + 2)
                    stream.write(b"HD O1\r\n")
                stream.flush()


@unittest.skipUnless(shutil.which("memcached"), "memcached is not installed")
class ToCluster(SlowMount, Case):
    def setUp(self):
        super().setUp()
        self.data.parent.chmod(0o755)
        self.names = [f"d{i % 7}/f{i}" for i in range(FILES)]
        for number, name in enumerate(self.names):
            self.write(name, CONTENT[:number * 13])

    def write(self, name, content, time=1e9):
        path = self.source / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        if time:
            os.utime(path, (time, time))
        return path

    def origin(self, operation):
        return json.loads(
            (self.mount / ".lagfs/counters.json").read_text())[operation]["data_files"]

    def pool(self, count=2, *options, **more):
        self.servers = [self.enterContext(Memcached(*options, **more)) for _ in range(count)]
        self.text = "memcached://" + ",".join(server.name for server in self.servers)

    def words(self, *words):
        return [
            "warmup", "--to-cluster", "--json", "-p", self.mount, "--name", self.name, "--cluster",
            self.text, "--cluster-name", self.name, *words
        ]

    def node(self, *words):
        return self.start(*self.words(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, node, status=0):
        out, errors = node.communicate(timeout=120)
        self.assertEqual(node.returncode, status, errors + out)
        return json.loads(out)

    def fill(self, *words, status=0):
        return self.end(self.node(*words), status)

    def reasons(self, summary):
        return {row["reason"]: row["files"] for row in summary["reasons"]}

    def in_pool(self):
        """Returns the number of records with bytes; leases have no bytes."""
        return sum(size != 0 for server in self.servers for size in server.sizes().values())

    def test_nodes_share_the_work(self):
        self.pool()
        self.mount_it("--direct", latency_us=300)
        nodes = [self.node(self.mount) for _ in range(3)]
        summaries = [self.end(node) for node in nodes]
        self.assertEqual([s["there"] + s["shared"] + s["by_others"] for s in summaries],
                         [FILES] * 3)
        self.assertEqual((sum(s["shared"] for s in summaries), sum(
            s["read"] for s in summaries), self.in_pool()), (FILES, FILES, FILES))
        self.assertEqual(sum(s["shared_bytes"] for s in summaries),
                         sum(path.stat().st_size for path in self.source.glob("*/*")))
        self.assertEqual(self.origin("open"), FILES)
        # The command uses no cache of this node.
        self.assertFalse(self.region.exists())
        # The second time, there is nothing to do.
        again = self.fill(self.mount)
        self.assertEqual((again["there"], again["read"], self.origin("open")), (FILES, 0, FILES))

    def test_a_file_that_another_node_reads_is_waited_for(self):
        self.pool(1)
        self.mount_it("--direct")
        self.script("hold open 1")
        first = self.node(self.mount, "--prefetch-depth", "1")
        self.wait_until_held()
        second = self.node(self.mount)
        wait_until(lambda: self.in_pool() == FILES - 1, "all but the one that is held")
        self.script("clear")
        first, second = self.end(first), self.end(second)
        self.assertEqual((first["shared"], first["there"] + first["by_others"]), (1, FILES - 1))
        self.assertEqual((second["shared"], second["by_others"], second["skipped"]),
                         (FILES - 1, 1, 0))
        self.assertEqual((self.origin("open"), self.in_pool()), (FILES, FILES))

    def test_job_is_served_the_filled_records(self):
        self.pool()
        self.mount_it("--direct")
        self.fill(self.mount)
        opened = self.origin("open")
        paths = [self.mount / name for name in self.names]
        report = self.data.parent / "report"
        done = self.command("run", "-p", self.mount, "--name", self.name, "--ram", "32M",
                            "--cluster", self.text, "--cluster-name", self.name,
                            "--cluster-deadline", "10s", "--prefetch", "0", "--metadata", "0",
                            "--stats", report, "--stats-format", "json", "cat", *paths)
        self.assertEqual(done.stdout, b"".join(
            (self.source / name).read_bytes() for name in self.names))
        counted = json.loads(report.read_text())
        self.assertEqual((counted["hits"]["cluster"], counted["misses"], self.origin("open")),
                         (FILES, 0, opened))

    def test_files_that_are_left_out_are_reported(self):
        self.pool(1)
        self.write("large", bytes(100_000))
        self.write("young", b"x", time=None)
        os.utime(self.source / "young", (4e9, 4e9))
        self.write("restricted", b"x").chmod(0o640)
        self.write("inner/f", b"x")
        (self.source / "inner").chmod(0o750)
        self.mount_it("--direct")
        listed = self.data.parent / "list"
        listed.write_text("".join(
            f"{self.mount}/{name}\n" for name in ("large", "young", "restricted", "inner/f", "none",
                                                  "d0", "/else/where")))
        summary = self.fill("--filelist", listed, "--max-file", "60000", status=1)
        folder = len([name for name in self.names if name.startswith("d0/")])
        self.assertEqual((summary["shared"], self.in_pool()), (folder, folder))
        self.assertEqual(
            self.reasons(summary), {
                "larger than CUBESHIM_MAX_FILE": 1, "changed less than 2 s before it was read": 1,
                "missing": 2, "not readable for all users (CUBESHIM_CLUSTER_TRUST)": 2
            })
        # No failed file keeps a lease for which other nodes would wait.
        self.assertEqual(len(self.servers[0].keys()), folder)
        trusted = self.fill("--filelist", listed, "--max-file", "60000", "--cluster-trust", "1",
                            status=1)
        self.assertEqual((trusted["shared"], trusted["there"]), (2, folder))

    def test_a_file_that_is_open_for_writing_is_left_out(self):
        self.pool(1)
        self.write("written", b"half of it")
        self.mount_it("--direct")
        written = self.mount / "written"
        with open(written, "r+b"):
            summary = self.fill(written, self.mount / "d0", status=1)
            self.assertEqual(self.reasons(summary), {"open for writing on this node": 1})
            # The file leaves no lease for which other nodes would wait.
            self.assertEqual((summary["shared"], len(self.servers[0].keys())),
                             (summary["read"], summary["read"]))
        self.assertEqual(self.fill(written)["shared"], 1)

    def test_a_full_server(self):
        self.pool(1)
        size = 40_000
        while self.servers[0].ask(b"ms fill%d %d\r\n%s\r\n" %
                                  (self.servers[0].items(), size, bytes(size))).startswith(b"HD"):
            pass
        for i in range(100):
            self.write(f"big/{i}", bytes(size))
        self.mount_it("--direct")
        summary = self.fill(self.mount / "big", "--prefetch-depth", "1", status=1)
        self.assertEqual(self.reasons(summary), {"without room on its server": 100})
        # The first file is read in vain; the other files are not read.
        self.assertEqual((summary["shared"], summary["read"]), (0, 1))

    def test_a_server_without_room_for_a_lease(self):
        self.pool(1)
        self.mount_it("--direct")
        there = self.fill(self.mount / "d0")["shared"]
        server, size, count = self.servers[0], 40_000, 2000
        while server.ask(b"ms fill%d %d\r\n%s\r\n" %
                         (server.items(), size, bytes(size))).startswith(b"HD"):
            pass
        longest = len(server.keys()[0])
        while True:
            begun = server.items()
            keys = [b"%d" % number for number in range(begun, begun + count)]
            server.ask(b"".join(b"ms %s 0\r\n\r\n" % key.ljust(longest, b".") for key in keys),
                       lambda text: text.count(b"\r\n") == count)
            if server.items() == begun:
                break
        summary = self.fill(self.mount / "d0", self.mount / "d1", status=1)
        self.assertEqual((summary["there"], summary["shared"]), (there, 0))
        self.assertEqual(set(self.reasons(summary)), {"without room on its server"})

    def test_a_server_that_takes_small_items_alone(self):
        self.pool(1, "-I", "1m")
        self.write("big/1", bytes(2_000_000))
        self.mount_it("--direct")
        summary = self.fill(self.mount / "big", self.mount / "d0", status=1)
        self.assertEqual(self.reasons(summary), {"larger than its server takes (memcached -I)": 1})
        self.assertGreater(summary["shared"], 0)

    def test_servers_that_are_gone(self):
        self.pool(1)
        self.text += f",127.0.0.1:{free_port()}"
        self.mount_it("--direct")
        summary = self.fill(self.mount, status=1)
        lost = self.reasons(summary)["of a server that does not answer"]
        self.assertEqual((summary["shared"] + lost, summary["shared"]), (FILES, self.in_pool()))
        self.assertTrue(FILES / 4 < lost < FILES * 3 / 4, lost)
        # No file was read for the missing server.
        self.assertEqual(summary["read"], summary["shared"])

    def test_the_rest_of_a_malformed_answer_is_not_taken_for_the_next(self):
        server = self.enterContext(MalformedOnce())
        self.text = f"memcached://{server.name}"
        self.mount_it("--direct")
        summary = self.fill(self.mount / self.names[1], "--prefetch-depth", "1")
        self.assertEqual((summary["there"], summary["shared"]), (0, 1))

    def test_an_interrupt_gives_leases_back(self):
        self.pool(1)
        self.mount_it("--direct")
        self.script("hold open 30")
        node = self.node(self.mount)
        self.wait_until_held()
        wait_until(lambda: self.in_pool() == FILES - 1, "all but the one that is held")
        other = self.node(self.mount)
        node.send_signal(signal.SIGINT)
        self.script("clear")
        self.assertEqual(self.end(node, 128 + signal.SIGINT)["interrupted"], True)
        summary = self.end(other)
        self.assertEqual(
            (summary["there"] + summary["shared"] + summary["by_others"], self.in_pool()),
            (FILES, FILES))

    def test_a_node_that_dies_is_followed_by_another(self):
        self.pool(1)
        self.mount_it("--direct")
        self.script("hold open 30")
        node = self.node(self.mount)
        self.wait_until_held()
        other = self.node(self.mount)
        wait_until(lambda: self.in_pool() == FILES - 1, "all but the one that is held")
        node.kill()
        self.script("clear")
        # The dead node's lease would end after 30 s; here it ends immediately.
        server, = self.servers
        # The server leaves out an item that a client is using.
        leases = []
        wait_until(
            lambda: leases.extend(key for key, size in server.sizes().items() if size == 0) or
            leases, "the lease is listed")
        lease, = leases
        self.assertRegex(server.ask(f"mg {lease} t\r\n".encode()), rb"^HD t([12]?\d|30)\b")
        self.assertEqual(server.ask(f"md {lease}\r\n".encode()), b"HD\r\n")
        summary = self.end(other)
        self.assertEqual((summary["skipped"], self.in_pool()), (0, FILES))
        self.assertEqual(self.origin("open"), FILES + 1)

    def test_the_rate_is_that_of_the_setting(self):
        self.pool(1)
        for i in range(40):
            self.write(f"big/{i}", bytes(50_000))
        self.mount_it("--direct")
        summary = self.fill(self.mount / "big", "--cluster-fill", "1M")
        # The 2 MB are sent at 1 MB/s, after a first burst of a fifth of a megabyte.
        self.assertGreater(summary["seconds"], 1.4)
        self.assertEqual(summary["shared"], 40)

    def test_wrong_arguments_are_refused(self):
        self.pool(1)
        self.mount_it("--direct")
        for words, text in ((["--cluster-fill", "0", self.mount],
                             "--to-cluster: CUBESHIM_CLUSTER_FILL=0 lets this node only read"),
                            ([], "nothing to load"), (["--check", self.mount], "--to-cluster"),
                            (["--metadata-only", self.mount], "--to-cluster")):
            done = self.command(*self.words(*words))
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(text, done.stderr.decode())
        for words, text in ((["-p", self.mount], "--to-cluster: CUBESHIM_CLUSTER names no servers"),
                            (["--cluster",
                              self.text], "--to-cluster: CUBESHIM_PREFIXES is not set")):
            done = self.command("warmup", "--to-cluster", *words, self.mount)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(text, done.stderr.decode())

    def test_the_text(self):
        self.pool(1)
        self.mount_it("--direct")
        words = [word for word in self.words(self.mount) if word != "--json"]
        done = self.command(*words)
        self.assertRegex(
            done.stdout.decode(),
            rf"^{FILES} files: 0 there already, {FILES} shared \(\S+ MiB\), 0 shared by other "
            r"nodes, 0 skipped; \S+ s, .*/s\n"
            rf"{FILES} read at the origin \(\S+ MiB\)\n$")


if __name__ == "__main__":
    unittest.main()
