"""`cubeshim top` and `cubeshim stats`: one line for each server of the cluster, as the leader of
the node sees it."""
import itertools
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from cli_case import CONTENT, Case

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "preload"))
from cluster_servers import Memcached, free_port, wait_until  # noqa: E402


@unittest.skipUnless(shutil.which("memcached"), "memcached is not installed")
class Servers(Case):
    def setUp(self):
        super().setUp()
        # Only files whose directories all users may enter are shared, and only if they have not
        # just changed.
        self.data.parent.chmod(0o755)
        os.utime(self.file, (1e9, 1e9))

    def job(self, *servers):
        """Starts a job that has read its file, and reads it again for each line that it
        receives."""
        job = self.start(
            "run", "-p", self.data, "--name", self.name, "--ram", "32M", "--stats", "off",
            "--cluster", "memcached://" + ",".join(servers), "--cluster-name", self.name, "bash",
            "-c",
            f"exec 3<{self.file}; echo ready; while read path; do exec 4<$path; echo read; done",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(job.stdout.readline(), b"ready\n")
        return job

    def sights(self):
        return {
            server["server"]: server for server in json.loads(
                self.command("stats", "--json", "--name", self.name).stdout)["servers"]
        }

    def until(self, name, is_so):
        return wait_until(lambda: (sight := self.sights().get(name)) and is_so(sight) and sight,
                          f"the state of {name} ({self.sights()})")

    def test_each_has_a_line(self):
        good, other = self.enterContext(Memcached(memory_mb=64)), self.enterContext(
            Memcached(memory_mb=65))
        # The address of a server that refuses connections, because no process listens there.
        missing = f"127.0.0.1:{free_port()}"
        self.job(good.name, other.name, missing, "no-such-host")
        for server, memory in ((good, 64), (other, 65)):
            self.until(
                server.name, lambda sight: (sight["state"], sight["capacity"], sight["entries"]) ==
                ("answers", memory << 20, server.items()))
        self.until(missing, lambda sight: sight["state"].startswith(
            ("rests", "no answer yet", "silent")))
        self.assertEqual(self.sights()["no-such-host:11211"]["state"], "left out")
        self.assertEqual([*self.sights()], [good.name, other.name, missing, "no-such-host:11211"])
        text = self.command("stats", "--name", self.name).stdout.decode()
        self.assertRegex(
            text, rf"\nserver {good.name}: answers; \S+ (bytes|KiB) of 64\.0 MiB used, \d items\n")
        top = self.command("top", "--name", self.name, "--count", "1").stdout.decode()
        self.assertRegex(top, r"\n  SERVER +used +of +items  state\n")
        self.assertRegex(top, rf"\n  {good.name} +\S+ +64\.0M +\d  answers\n")
        self.assertRegex(top, r"\n  no-such-host:11211 +0 +0 +0  left out\n")
        looked = json.loads(
            self.command("top", "--name", self.name, "--count", "1", "--json").stdout)
        self.assertEqual([server["server"] for server in looked["servers"]],
                         [good.name, other.name, missing, "no-such-host:11211"])

    def read(self, job, name):
        """Makes the job read a new file, for which the job asks its server."""
        path = self.data / name
        path.write_bytes(CONTENT)
        os.utime(path, (1e9, 1e9))
        job.stdin.write(f"{path}\n".encode())
        job.stdin.flush()
        self.assertEqual(job.stdout.readline(), b"read\n")

    def test_shows_items_and_outages_of_servers(self):
        # One test has both servers, because a server counts as silent only after six seconds.
        silent, killed = self.enterContext(Memcached()), self.enterContext(Memcached())
        for i in range(3):
            self.assertTrue(
                killed.ask(b"ms fill%d %d\r\n%s\r\n" %
                           (i, len(CONTENT), CONTENT)).startswith(b"HD"))
        job = self.job(silent.name, killed.name)
        self.until(
            killed.name,
            lambda sight: sight["entries"] >= 3 and (sight["entries"], sight["used"]) ==
            (killed.items(), int(killed.figures()["bytes"])))
        self.until(silent.name, lambda sight: sight["state"] == "answers")
        silent.stop()
        killed.kill()
        killed.start()
        self.until(killed.name, lambda sight: sight["state"] == "answers" and sight["entries"] < 3)
        self.until(silent.name, lambda sight: sight["state"].startswith("silent for "))
        silent.go_on()
        # The figures of a server that was silent are requested only after half a minute. Files are
        # requested immediately, and some of these are on that server.
        new = itertools.count()
        self.until(silent.name,
                   lambda sight: sight["state"] == "answers" or self.read(job, f"new{next(new)}"))

    def test_one_that_rests(self):
        server = self.enterContext(Memcached())
        job = self.job(server.name)
        self.until(server.name, lambda sight: sight["state"] == "answers")
        server.stop()
        self.read(job, "new")
        self.until(server.name, lambda sight: sight["state"].startswith(
            ("rests for ", "silent for ")))
        server.go_on()

    def test_a_full_one(self):
        server = self.enterContext(Memcached())
        size = 40000
        while server.ask(b"ms fill%d %d\r\n%s\r\n" %
                         (server.items(), size, bytes(size))).startswith(b"HD"):
            pass
        self.job(server.name)
        self.until(server.name, lambda sight: sight["state"] == "full")

    def test_no_servers_are_shown_without_a_cluster(self):
        self.keep_a_region()
        self.assertEqual(self.sights(), {})
        self.assertNotIn("SERVER",
                         self.command("top", "--name", self.name, "--count", "1").stdout.decode())


if __name__ == "__main__":
    unittest.main()
