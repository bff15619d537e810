"""The nodes of a cluster, on one machine. Each node is a network namespace with a memcached server
and readers; a bridge connects the namespaces.

The namespaces have no names and no permanent processes. File descriptors of this process hold them,
so they end with this process, even if it is killed."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from bench.harness.errors import BenchError
from bench.harness.mount import end
from bench.harness.shim import Shim, child_environment

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PORT = 11211
LEAST_RECORD = 1000  # bytes of an item; files of a benchmark are larger, leases are smaller
START_SECONDS = 15.0
# Servers have a high priority, so that they answer as fast as servers with their own processors,
# although all nodes here share the processors of one machine.
SERVER_NICE = -10
Found = TypeVar("Found")


def checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def die_with_parent() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Namespace:
    """A network namespace that lives as long as this object is open."""
    def __init__(self) -> None:
        # Popen returns when the child has made its namespace and has executed `cat`.
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE,
                              preexec_fn=lambda: checked(LIBC.unshare(CLONE_NEWNET))) as holder:
            self._fd = os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            holder.stdin.close()

    def close(self) -> None:
        os.close(self._fd)

    @property
    def name(self) -> str:
        """The name of the namespace for `ip`."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def enter(self) -> None:
        """Moves the calling thread into the namespace. A child may call it before its exec."""
        checked(LIBC.setns(self._fd, CLONE_NEWNET))

    def ip(self, words: str) -> None:
        done = subprocess.run(["ip", *words.split()], preexec_fn=self.enter, capture_output=True,
                              text=True)
        if done.returncode:
            raise BenchError(f"ip {words}: {done.stderr.strip()}")

    def connect(self, address: str, seconds: float = START_SECONDS) -> socket.socket:
        """Connects from a thread that enters the namespace, because a socket belongs to the
        namespace in which it was made."""
        made: list[socket.socket] = []

        def make() -> None:
            self.enter()
            made.append(socket.socket())

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        made[0].settimeout(seconds)
        try:
            made[0].connect((address, PORT))
        except OSError:
            made[0].close()
            raise
        return made[0]


class Server:
    """memcached on a node."""
    def __init__(self, node: Namespace, address: str, memory_mb: int):
        self.node, self.address, self.memory_mb = node, address, memory_mb
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        def enter() -> None:
            self.node.enter()
            die_with_parent()
            os.nice(SERVER_NICE)

        command = [
            "memcached", "-M", "-m",
            str(self.memory_mb), "-I", f"{min(17, self.memory_mb // 2)}m", "-t", "1", "-c", "1024",
            "-o", "slab_chunk_max=16384", "-l", self.address, "-p",
            str(PORT), "-u", "root"
        ]
        # The server has its own session: Ctrl-C reaches only the caller, which then ends the
        # server.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True, preexec_fn=enter)
        wait_until(self._answers, "memcached starts")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise BenchError(f"memcached ended with {self.process.returncode}")
        try:
            self.node.connect(self.address).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, command: bytes, end_of_answer: bytes) -> str:
        with self.node.connect(self.address) as connection:
            connection.sendall(command)
            text = b""
            while not text.endswith(end_of_answer):
                more = connection.recv(1 << 16)
                if not more:
                    raise BenchError("memcached has closed the connection")
                text += more
        return text.decode()

    def items(self) -> int:
        """Returns the number of records that the server has. Leases are not counted, because they
        are empty."""
        lines = self.ask(b"lru_crawler metadump all\r\n", b"END\r\n").splitlines()
        sizes = [
            int(word[5:]) for line in lines for word in line.split() if word.startswith("size=")
        ]
        return sum(size >= LEAST_RECORD for size in sizes)


class Network:
    """`with Network(3, megabytes) as network:` makes three nodes on one bridge, each with an empty
    server."""
    def __init__(self, nodes: int, memory_mb: int):
        self._count, self._memory_mb = nodes, memory_mb
        self.nodes: list[Namespace] = []
        self.servers: list[Server] = []

    def __enter__(self) -> Network:
        check_tools()
        try:
            self._switch = Namespace()
            self._switch.ip("link add name bridge type bridge")
            self._switch.ip("link set dev bridge up")
            for number in range(self._count):
                self._add(number)
            for server in self.servers:
                server.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add(self, number: int) -> None:
        node, address = Namespace(), f"10.77.0.{number + 1}"
        self.nodes.append(node)
        self._switch.ip(f"link add port{number} type veth peer name eth0 netns {node.name}")
        self._switch.ip(f"link set dev port{number} master bridge up")
        for words in (f"address add {address}/24 dev eth0", "link set dev eth0 up",
                      "link set dev lo up"):
            node.ip(words)
        self.servers.append(Server(node, address, self._memory_mb))

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()
        for namespace in [*self.nodes, *([self._switch] if hasattr(self, "_switch") else [])]:
            namespace.close()

    def pool(self) -> str:
        return "memcached://" + ",".join(f"{server.address}:{PORT}" for server in self.servers)

    def items(self) -> int:
        return sum(server.items() for server in self.servers)

    def empty(self) -> None:
        for server in self.servers:
            server.kill()
            server.start()

    def set_cable(self, number: int, state: str) -> None:
        """Sets a node's network link to `up` or `down`."""
        self._switch.ip(f"link set dev port{number} {state}")


class Readers:
    """The readers of one node: processes that share a cache, or have none."""
    def __init__(self, program: Path, listed: Path, node: Namespace, number: int,
                 shim: Shim | None):
        self.shim = shim
        self._children: list[subprocess.Popen] = []

        def enter() -> None:
            node.enter()
            die_with_parent()

        for _ in range(number):
            self._children.append(
                subprocess.Popen([program, listed], env=child_environment(shim),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 preexec_fn=enter))

    def wait_until_ready(self) -> None:
        for child in self._children:
            self._hear(child)

    def send(self, lines: Sequence[str]) -> None:
        for child, line in zip(self._children, lines):
            child.stdin.write(line + "\n")
            child.stdin.flush()

    def hear(self) -> list[dict]:
        return [self._hear(child) for child in self._children]

    def hear_one(self) -> dict:
        """Returns the first reader's answer to a line that was sent only to this reader."""
        return self._hear(self._children[0])

    def _hear(self, child: subprocess.Popen) -> dict:
        text = child.stdout.readline()
        if not text:
            raise BenchError(f"a reader ended with {child.wait()}")
        return json.loads(text)

    def finish(self) -> None:
        for child in self._children:
            child.stdin.close()
        for child in self._children:
            child.stdout.close()
            if child.wait():
                raise BenchError(f"a reader ended with {child.returncode}")

    def kill(self) -> None:
        for child in self._children:
            end(child, first_wait=0.0)
            child.stdin.close()
            child.stdout.close()


def check_tools() -> None:
    for tool in ("ip", "memcached"):
        if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
            raise BenchError(f"the nodes of a cluster need {tool}")
    if os.geteuid() != 0:
        raise BenchError("the nodes of a cluster need network namespaces, and these need root")


def wait_until(condition: Callable[[], Found], what: str, seconds: float = START_SECONDS) -> Found:
    until = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise BenchError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)
    return found
