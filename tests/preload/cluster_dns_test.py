"""Servers of the cluster by name, by IPv6 and by Unix socket. Everything runs in a network
namespace and a mount namespace, with the test's own name server on port 53 and its own
/etc/resolv.conf and /etc/hosts. This needs root; for other users, the test is skipped."""
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cluster_nodes
from cluster_servers import Memcached, wait_until

PORT = 11311


class NameServer:
    """Answers queries for names with addresses. While it hangs, it does not answer."""
    def __init__(self):
        self.v4: dict[str, str] = {}
        self.v6: dict[str, str] = {}
        self.hangs, self.asked = False, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"end", ("127.0.0.1", 53))
        self.thread.join()
        self.socket.close()

    def serve(self):
        while (got := self.socket.recvfrom(600))[0] != b"end":
            question, place = got
            labels, at = [], 12
            while question[at]:
                labels.append(question[at + 1:at + 1 + question[at]].decode())
                at += 1 + question[at]
            name, kind = ".".join(labels), question[at + 2]
            self.asked.append(name)
            if self.hangs:
                continue
            known = name in self.v4 or name in self.v6
            address = (self.v4 if kind == 1 else self.v6).get(name)
            packed = socket.inet_pton(socket.AF_INET if kind == 1 else socket.AF_INET6,
                                      address) if address else b""
            answer = question[:2] + struct.pack(">HHHHH", 0x8180 | (0 if known else 3), 1,
                                                1 if packed else 0, 0, 0) + question[12:at + 5]
            if packed:
                answer += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 5, len(packed)) + packed
            self.socket.sendto(answer, place)


class At(Memcached):
    """A server at this address or path."""
    def __init__(self, address: str, port: int = PORT):
        super().__init__()
        self.address, self.port, self.is_path = address, port, address.startswith("/")

    def start(self):
        where = ["-s", self.address, "-a", "0777"] if self.is_path else [
            "-l", self.address, "-p", str(self.port)
        ]
        words = [
            shutil.which("memcached") or "/usr/bin/memcached", "-M", "-m", "64", "-I", "17m",
            *where, "-u", "root"
        ]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        wait_until(self.answers, "memcached starts")

    def connect(self) -> socket.socket:
        if self.is_path:
            one = socket.socket(socket.AF_UNIX)
            try:
                one.connect(self.address)
            except OSError:
                one.close()
                raise
            return one
        return socket.create_connection((self.address, self.port), timeout=60)

    def answers(self) -> bool:
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def ask(self, command, is_whole=lambda text: text.endswith(b"\r\n")) -> bytes:
        with self.connect() as connection:
            connection.sendall(command)
            text = b""
            while not is_whole(text) and (more := connection.recv(1 << 20)):
                text += more
            return text


class Names(cluster_nodes.Cluster):
    server_count = 0

    def setUp(self):
        super().setUp()
        self.names = NameServer()
        self.addCleanup(self.names.close)
        Path("/etc/resolv.conf").write_text(
            "search job.svc.cluster.local svc.cluster.local\n"
            "options ndots:5 timeout:1 attempts:1\nnameserver 127.0.0.1\n"
        )

    def servers(self) -> str:
        return self.text

    def server(self, address, port=PORT):
        server = self.enterContext(At(address, port))
        self.pool.append(server)
        return server

    def shared(self, prefix, text):
        """Checks that one node shares the files that it reads, and that the pool serves them to
        another node."""
        self.text = f"memcached://{text}"
        first, said = self.fill(prefix)
        second = self.node("second", prefix)
        server, number = self.pool[0], iter(range(10_000))
        asked = server.figures()["cmd_get"]

        def has_asked():
            """Opens new files until one asks a server, because the first opens do not wait for the
            server's name."""
            path = self.source / f"only{next(number)}"
            path.write_bytes(b"x")
            second.ask("open", prefix / path.name)
            return server.figures()["cmd_get"] != asked

        wait_until(has_asked, "the server has a name")
        opened = self.origin("open")
        self.assertEqual([second.ask("open", prefix / file) for file in self.files], said)
        self.assertEqual((second.end()["hits"]["cluster"], self.origin("open")),
                         (cluster_nodes.FILES, opened))
        first.end()
        self.assertEqual(first.errors.read_text(), "")

    def test_a_name_of_a_kubernetes_service(self):
        self.names.v4["pool-0.pool.svc.cluster.local"] = "127.0.0.1"
        self.server("127.0.0.1")
        self.shared(self.mount(), f"pool-0.pool:{PORT}")
        self.assertEqual(self.names.asked[:2],
                         ["pool-0.pool.job.svc.cluster.local", "pool-0.pool.svc.cluster.local"])

    def test_ipv6_by_name_and_by_address(self):
        self.names.v6["six.job.svc.cluster.local"] = "::1"
        self.server("::1")
        prefix = self.mount()
        self.shared(prefix, f"six:{PORT}")
        self.pool[0].flush()
        self.shared(prefix, f"[::1]:{PORT}")

    def test_a_unix_socket(self):
        path = self.scratch / "m.sock"
        self.server(str(path))
        self.shared(self.mount(), str(path))
        doctor = self.doctor(str(path))
        self.assertIn(f"ok    server {path}: memcached 1.", doctor)

    def doctor(self, text):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CUBESHIM_")}
        return subprocess.run([
            str(Path(cluster_nodes.LIBRARY).parent / "cubeshim"), "doctor", "-p", self.source,
            "--ram", "32M", "--cluster", f"memcached://{text}"
        ], env=clean, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    def line(self, node, text):
        """Waits for a line of the log. The program's next call writes it."""
        def look():
            node.ask("open", self.prefix / self.files[0])
            return text in node.errors.read_text()

        wait_until(look, f"a line: {text}")

    def test_a_name_that_does_not_exist_until_it_does(self):
        self.text, self.prefix = f"memcached://later:{PORT}", self.mount()
        node = self.node("first", self.prefix)
        self.line(
            node,
            f"CUBESHIM_CLUSTER: later:{PORT} is left out as long as its name has no address: "
            "there is no such name"
        )
        server = self.server("127.0.0.1")
        self.names.v4["later.job.svc.cluster.local"] = "127.0.0.1"
        self.line(node, f"CUBESHIM_CLUSTER: later:{PORT} has an address now")
        for file in self.files[1:]:
            node.ask("open", self.prefix / file)
        wait_until(server.items, "what the node reads from now on is shared")
        self.assertEqual(node.errors.read_text().count("is left out"), 1)
        self.assertIn(f"fail  server none:{PORT}: there is no such name",
                      self.doctor(f"none:{PORT}"))

    def test_hanging_name_server_delays_no_open(self):
        self.names.hangs = True
        self.text, self.prefix = f"memcached://slow:{PORT}", self.mount()
        # A wait for the name server takes a second. A busy machine can delay an open or an end, but
        # not in each of several trials.
        longest, ends = [], []
        for trial in range(20):
            node = self.node(f"trial{trial}", self.prefix)
            longest.append(max(float(node.ask("time", self.prefix / file)) for file in self.files))
            self.line(node,
                      "is left out as long as its name has no address: no name server could answer")
            asked = len(self.names.asked)
            wait_until(lambda: len(self.names.asked) > asked, "it is looked up again")
            began = time.monotonic()
            node.end()
            ends.append(time.monotonic() - began)
            if longest[-1] < 0.5 and ends[-1] < 0.9:
                break
        self.assertLess(longest[-1], 0.5, longest)
        self.assertLess(ends[-1], 0.9, ends)
        self.assertIn(f"fail  server slow:{PORT}: no name server ", self.doctor(f"slow:{PORT}"))

    def test_a_server_that_has_moved_is_found(self):
        self.names.v4["pool.job.svc.cluster.local"] = "127.0.0.1"
        old, prefix = self.server("127.0.0.1"), self.mount()
        self.text = f"memcached://pool:{PORT}"
        first, said = self.fill(prefix, CUBESHIM_CLUSTER_DEADLINE="200ms")
        old.kill()
        self.pool.clear()
        new = self.server("127.0.0.2")
        self.names.v4["pool.job.svc.cluster.local"] = "127.0.0.2"
        number = iter(range(10_000))

        def has_moved():
            path = self.source / f"new{next(number)}"
            path.write_bytes(b"x" * 1000)
            os.utime(path, cluster_nodes.OLD)
            first.ask("open", prefix / path.name)
            return new.items()

        wait_until(has_moved, "the server is found at its new address")


def go_inside():
    """Enters new namespaces, in which the test's files are mounted over those of the machine."""
    os.execvp("unshare", [
        "unshare", "--net", "--mount", "--propagation", "private", sys.executable, __file__,
        "inside"
    ])


def prepare():
    with socket.socket() as one:
        # SIOCSIFFLAGS: brings the loopback interface up.
        fcntl.ioctl(one, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))
    made = tempfile.mkdtemp(prefix="cubeshim-names-")
    for name, text in (("resolv.conf", ""), ("hosts", "127.0.0.1 localhost\n")):
        file = Path(made) / name
        file.write_text(text)
        subprocess.run(["mount", "--bind", file, Path("/etc", name).resolve()], check=True)
    return made


if __name__ == "__main__":
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"],
                                           stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: no namespaces here")
        sys.exit(0)
    if sys.argv[-1] != "inside":
        go_inside()
    folder = prepare()
    try:
        unittest.main(argv=[sys.argv[0], *sys.argv[1:-1]])
    finally:
        for name in ("resolv.conf", "hosts"):
            subprocess.run(["umount", Path("/etc", name).resolve()], check=False)
        shutil.rmtree(folder)
