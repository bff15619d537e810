"""`cubeshim pool`: starts, queries and ends the real memcached. Also tests the causes that keep it
from starting."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from cli_case import COMMAND, Case

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "preload"))
from cluster_servers import free_port  # noqa: E402

FLAGS = "-M -m 64 -I 17m -t 4 -c {} -X -o slab_chunk_max=16384 -l {} -p {} -U 0"


def talk(port, text, address="127.0.0.1"):
    with socket.create_connection((address, port), timeout=300) as one:
        one.sendall(text)
        found = b""
        while not found.endswith((b"END\r\n", b"STORED\r\n", b"EN\r\n",
                                  b"HD\r\n")) and not found.startswith(b"SERVER_ERROR"):
            some = one.recv(1 << 20)
            if not some:
                break
            found += some
        return found


class Pool(Case):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.state = Path(f"/dev/shm/cubeshim-pool-{os.geteuid()}-{self.name}")
        self.addCleanup(lambda: self.pool("stop") if self.state.exists() else None)

    def pool(self, *words, **more):
        return self.command("pool", *words, "--name", self.name, **more)

    def start(self, *words, memory="64M", **more):
        return self.pool("start", *(["--memory", memory] if memory else []), "--port", self.port,
                         *words, **more)

    def refused(self, done, text, status=1):
        self.assertEqual(done.returncode, status, done.stderr)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], f"^cubeshim: {text}")

    def fake(self, version):
        """Makes a memcached that prints this version, and returns a PATH that has nothing else."""
        program = self.data / "bin" / "memcached"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)
        return {"PATH": f"{program.parent}"}


@unittest.skipUnless(shutil.which("memcached"), "memcached is not installed")
class Real(Pool):
    def pid(self):
        return int(self.state.read_text().split(".")[0])

    def test_start_status_stop(self):
        done = self.start()
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        lines = done.stdout.decode().splitlines()
        self.assertRegex(
            lines[0], "/memcached " +
            re.escape(FLAGS.format("N", "127.0.0.1", self.port)).replace("N", r"\d+"))
        self.assertEqual(lines[2], f"CUBESHIM_CLUSTER=memcached://127.0.0.1:{self.port}")
        self.assertEqual(lines[3], "only this node can reach it; --listen ADDRESS opens it to "
                                   "others")
        # The memcached runs in its own session, keeps its contents when it is full, and accepts
        # records of 17 MB.
        self.assertEqual(os.getsid(self.pid()), self.pid())
        settings = talk(self.port, b"stats settings\r\n").decode()
        for row in ("evictions off", "item_size_max 17825792", "slab_chunk_max 16384",
                    "num_threads 4", f"tcpport {self.port}", "inter 127.0.0.1"):
            self.assertIn(f"STAT {row}\r\n", settings)
        value = bytes(16 << 20)
        self.assertEqual(talk(self.port, b"ms key %d ME\r\n%s\r\n" % (len(value), value)),
                         b"HD\r\n")
        self.assertTrue(
            talk(self.port, b"get key\r\n") == b"VALUE key 0 %d\r\n%s\r\nEND\r\n" %
            (len(value), value))
        shown = self.pool("status").stdout.decode()
        self.assertRegex(
            shown,
            rf"^pool {self.name}: memcached 1\.\S+ \(process {self.pid()}\) at "
            rf"127\.0\.0\.1:{self.port}\n"
            r"memory 16\.0 MiB of 64\.0 MiB, 1 items; 1 of 1 gets were hits; \d+ connections\n$")
        pid = self.pid()
        self.refused(
            self.pool("start", "--memory", "64M", "--port", free_port()),
            rf"pool {self.name} is already running at 127\.0\.0\.1:{self.port} \(process {pid}\): ")
        self.assertEqual(
            self.pool("stop").stdout.decode(), f"pool {self.name} has ended (process {pid})\n")
        self.assertFalse(self.state.exists() or os.path.exists(f"/proc/{pid}/exe"))
        self.refused(self.pool("status"),
                     f"no pool named {self.name} runs here; cubeshim pool start")
        self.refused(self.pool("stop"), f"no pool named {self.name} runs here")

    def test_one_that_was_killed_is_forgotten(self):
        self.assertEqual(self.start().returncode, 0)
        pid = self.pid()
        os.kill(pid, 9)
        end = time.monotonic() + 60
        while self.pool("status").returncode == 0:
            self.assertLess(time.monotonic(), end)
        self.assertEqual(self.start().returncode, 0)
        self.assertNotEqual(self.pid(), pid)

    def test_one_that_hangs(self):
        self.assertEqual(self.start().returncode, 0)
        os.kill(self.pid(), 19)
        self.addCleanup(lambda pid=self.pid(): os.path.exists(f"/proc/{pid}") and os.kill(pid, 18))
        self.refused(
            self.pool("status"),
            rf"pool {self.name}: memcached \(process {self.pid()}\) does not answer at .* within "
            r"5 s"
        )
        # A stopped process reacts only to SIGKILL.
        self.assertEqual(self.pool("stop").returncode, 0)

    def test_a_port_that_is_taken(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            self.refused(self.start(), "memcached exited immediately: .*[Aa]ddress already in use")
        self.assertFalse(self.state.exists())

    def test_a_state_that_cannot_be_written(self):
        """If the state cannot be written, the memcached is ended, because the command could not
        stop it later."""
        self.refused(self.start("--ram-dir", "/no/such"),
                     "cannot write /no/such/.*: No such file or directory")
        end = time.monotonic() + 60
        while not self.is_free():
            self.assertLess(time.monotonic(), end)

    def is_free(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def test_memcached_of_another_pool_on_the_port_is_left_running(self):
        self.assertEqual(self.start().returncode, 0)
        self.refused(
            self.command("pool", "start", "--memory", "64M", "--port", self.port, "--name",
                         "other"), "memcached exited immediately: ")
        self.assertEqual(self.pool("status").returncode, 0)

    def test_addresses(self):
        for address, where in (("::1", f"[::1]:{self.port}"),
                               ("0.0.0.0", f"{socket.gethostname()}:{self.port}"),
                               ("127.0.0.2", f"127.0.0.2:{self.port}")):
            done = self.start("--listen", address)
            self.assertIn(f"CUBESHIM_CLUSTER=memcached://{where}\n", done.stdout.decode(),
                          done.stderr)
            self.assertEqual("keep it in a private network" in done.stdout.decode(),
                             address == "0.0.0.0")
            self.assertEqual(self.pool("status").returncode, 0)
            self.assertEqual(self.pool("stop").returncode, 0)
        self.refused(self.start("--listen", "192.0.2.77"), "memcached exited immediately: ")

    def test_nvme(self):
        os.chmod(self.data.parent, 0o755)
        done = self.start("--nvme", self.data, "--nvme-size", "512M")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        file = self.data / f"cubeshim-pool-{self.name}"
        self.assertIn(f" -o ext_path={file}:512M,ext_wbuf_size=32\n", done.stdout.decode())
        self.assertRegex(
            self.pool("status").stdout.decode(), rf"\nNVMe {file}: 0 bytes of 512\.0 MiB used\n$")
        self.assertEqual(self.pool("stop").returncode, 0)
        self.assertFalse(file.exists())

    def test_two_never_have_one_file_on_nvme(self):
        os.chmod(self.data.parent, 0o755)
        words = ("--nvme", self.data, "--nvme-size", "512M")
        self.assertEqual(self.start(*words).returncode, 0)
        file = self.data / f"cubeshim-pool-{self.name}"
        inode = file.stat().st_ino
        # The pool of another user or container has the same name and directory, but its state is
        # elsewhere.
        in_use = f"{file} is in use by another memcached: choose another --name or --nvme"
        with tempfile.TemporaryDirectory(dir="/dev/shm") as states:
            self.refused(
                self.pool("start", "--memory", "64M", "--port", free_port(), "--ram-dir", states,
                          *words), in_use)
            self.assertEqual(file.stat().st_ino, inode,
                             "the failed start leaves the file of the other")
            # memcached holds the lock until it ends in any way.
            os.kill(self.pid(), 9)
            end = time.monotonic() + 60
            while self.pool("status").returncode == 0:
                self.assertLess(time.monotonic(), end)
            second = self.pool("start", "--memory", "64M", "--port", self.port, "--ram-dir", states,
                               *words)
            self.addCleanup(self.pool, "stop", "--ram-dir", states)
            self.assertEqual((second.returncode, second.stderr), (0, b""))
            self.refused(self.pool("start", "--memory", "64M", "--port", free_port(), *words),
                         in_use)
            self.assertEqual(self.pool("stop", "--ram-dir", states).returncode, 0)
        self.assertFalse(file.exists())

    def test_a_file_that_others_may_have_open_is_not_taken(self):
        file, words = self.data / f"cubeshim-pool-{self.name}", ("--nvme", self.data, "--nvme-size",
                                                                 "512M")
        file.write_bytes(b"kept")
        file.chmod(0o600)

        def refused():
            self.refused(self.start(*words), f"{file}: others may read or change it; remove it")
            self.assertEqual(file.read_bytes(), b"kept")

        file.chmod(0o640)
        refused()
        file.chmod(0o600)
        os.link(file, self.data / "other name")
        refused()
        (self.data / "other name").unlink()
        if os.geteuid() == 0:
            os.chown(file, 12345, 12345)
            refused()

    def test_one_of_two_concurrent_starts_succeeds(self):
        """The other start ends, and removes nothing that belongs to the first."""
        os.chmod(self.data.parent, 0o755)
        file = self.data / f"cubeshim-pool-{self.name}"
        for _ in range(2):
            starts = [
                subprocess.Popen([
                    COMMAND, "pool", "start", "--memory", "64M", "--port",
                    str(free_port()), "--name", self.name, "--nvme", self.data, "--nvme-size",
                    "512M"
                ], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)
            ]
            said = [start.communicate()[1] for start in starts]
            self.assertEqual(sorted(start.returncode for start in starts), [0, 1], said)
            self.assertEqual(len(b"".join(said).splitlines()), 1, said)
            opened = [fd.resolve() for fd in Path(f"/proc/{self.pid()}/fd").iterdir()]
            self.assertEqual(opened.count(file), 2,
                             "the one that is locked is the one that memcached has opened")
            self.assertEqual(self.pool("stop").returncode, 0)


class Refused(Pool):
    def test_wrong_arguments_are_refused(self):
        rows = [({"memory": None}, [], "--memory is missing"),
                ({"memory": "much"}, [], '--memory "much" is not usable: it takes a size'),
                ({"memory": "63M"}, [], r"--memory 63M: it takes at least 64\.0 MiB"),
                ({"memory": "900T"}, [], "--memory 900T: .* are free on this node"),
                ({}, ["--listen", "all"], '--listen "all" is not usable: it takes an address'),
                ({}, ["--nvme-size", "1G"], "--nvme-size needs --nvme"),
                ({}, ["--nvme", "/no/such"], "--nvme /no/such: No such file or directory"),
                ({}, ["--nvme", self.file], "--nvme .*: not a directory"),
                ({}, ["--nvme", self.data, "--nvme-size", "1M"], r"--nvme: 1\.0 MiB is too little"),
                ({}, ["--nvme", self.data, "--nvme-size",
                      "900T"], "--nvme .*: 900.* are wanted and .* are free"),
                ({}, ["--nvme", self.data, "--nvme-size", "x"], '--nvme-size "x" is not usable')]
        for more, words, text in rows:
            with self.subTest(text):
                self.refused(self.start(*words, env=self.fake("memcached 1.6.18"), **more), text)
        self.assertEqual(self.pool("begin").returncode, 2)
        self.assertEqual(self.start("--port", "70000").returncode, 2)
        for action in ("status", "stop"):
            self.refused(self.pool(action, "--memory", "64M"),
                         "--memory, --nvme, --nvme-size and --listen are for: cubeshim pool start",
                         2)

    def test_versions(self):
        for version in ("memcached 1.6.17", "memcached 1.5.22", "something else", ""):
            self.refused(
                self.start(env=self.fake(version)),
                f".*bin/memcached is {version or 'no memcached'}, but 1.6.18 or later is needed")
        # A version that is new enough is started; the fake memcached then ends immediately.
        for version in ("memcached 1.6.18", "memcached 1.6.21_1", "memcached 1.10.0",
                        "memcached 2.0"):
            self.refused(self.start(env=self.fake(version)),
                         "memcached exited immediately: it does not say why")

    def test_no_memcached(self):
        self.refused(self.start(env={"PATH": str(self.data)}),
                     "memcached is not installed: apt install memcached")

    def test_a_state_of_another_process(self):
        """A reused pid belongs to another process, which is left alone."""
        child = subprocess.Popen(["sleep", "100"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        namespace = os.stat("/proc/self/ns/pid").st_ino
        self.state.write_text(f"{child.pid}.1.{namespace}\n127.0.0.1\n{self.port}\n")
        self.refused(self.pool("stop"), f"no pool named {self.name} runs here")
        self.assertIsNone(child.poll())


if __name__ == "__main__":
    unittest.main()
