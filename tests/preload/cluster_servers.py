"""Real memcached servers on loopback for the tests, and queries about their contents. The test that
starts a server also ends it."""
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path

DEADLINE_S = 60


def wait_until(condition, what: str, deadline_s: float = DEADLINE_S):
    until = time.monotonic() + deadline_s
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {deadline_s} s")
        time.sleep(0.02)
    return found


def free_port(address: str = "127.0.0.1", family: int = socket.AF_INET) -> int:
    """Returns a free port outside the range from which the kernel chooses, so that no other test
    receives it before it is used here."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket(family) as probe:
            try:
                probe.bind((address, random.randrange(10_000, lowest) if lowest > 11_000 else 0))
                return probe.getsockname()[1]
            except OSError:
                pass


class Memcached:
    """One server. `with Memcached() as server:` ends it."""
    def __init__(self, *options: str, memory_mb: int = 64):
        self.port, self.options, self.memory_mb = 0, options, memory_mb
        self.process: subprocess.Popen | None = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self):
        """Starts at a port that the kernel chooses; later starts use the same port."""
        words = [
            shutil.which("memcached") or "/usr/bin/memcached", "-M", "-m",
            str(self.memory_mb), "-I", "17m", "-t", "2", "-l", "127.0.0.1", "-p",
            str(self.port or -1), "-o", "slab_chunk_max=16384",
            *(["-u", "root"] if os.geteuid() == 0 else []), *self.options
        ]
        with tempfile.NamedTemporaryFile("r") as ports:
            env = os.environ | {"MEMCACHED_PORT_FILENAME": ports.name}
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                            start_new_session=True, env=env)
            found = wait_until(
                lambda: re.search(r"^TCP INET: (\d+)$",
                                  Path(ports.name).read_text(), re.M), "memcached starts")
        self.port = int(found[1])
        wait_until(self.answers, "memcached answers")

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
        except OSError:
            return False
        return True

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, command: bytes, is_whole=lambda text: text.endswith(b"\r\n")) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(command)
            text = b""
            while not is_whole(text):
                more = connection.recv(1 << 20)
                if not more:
                    break
                text += more
            return text

    def figures(self) -> dict[str, str]:
        lines = self.ask(b"stats\r\n", lambda text: text.endswith(b"END\r\n")).decode().splitlines()
        return {
            words[1]: words[2] for words in (line.split(" ", 2)
                                             for line in lines) if words[0] == "STAT"
        }

    def items(self) -> int:
        return int(self.figures()["curr_items"])

    def keys(self) -> list[str]:
        # The server lists its items for one client at a time.
        while (text := self.ask(
                b"lru_crawler metadump all\r\n", lambda text: text.endswith(
                    (b"END\r\n", b"BUSY currently processing crawler request\r\n"))).decode()
              ).startswith("BUSY"):
            time.sleep(0.02)
        return sorted(
            urllib.parse.unquote(line.split()[0].removeprefix("key="))
            for line in text.splitlines()
            if line.startswith("key="))

    def sizes(self) -> dict[str, int]:
        """Returns the size of each key, or 0 if the key has only a lease."""
        keys = self.keys()
        answers = self.ask("".join(f"mg {key} s\r\n" for key in keys).encode(),
                           lambda text: text.count(b"\r\n") == len(keys)) if keys else b""
        return {
            key: int(line.split()[1][1:])
            for key, line in zip(keys, answers.split(b"\r\n"))
            if line.startswith(b"HD s")
        }

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None if the server has no value or only a lease."""
        def is_whole(text: bytes) -> bool:
            head, end, rest = text.partition(b"\r\n")
            return bool(end) and (not head.startswith(b"VA ")
                                  or len(rest) == int(head.split()[1]) + 2)

        head, _, rest = self.ask(f"mg {key} v\r\n".encode(), is_whole).partition(b"\r\n")
        return rest[:-2] or None if head.startswith(b"VA ") else None

    def put(self, key: str, value: bytes):
        answer = self.ask(f"ms {key} {len(value)}\r\n".encode() + value + b"\r\n")
        assert answer == b"HD\r\n", answer

    def flush(self):
        assert self.ask(b"flush_all\r\n") == b"OK\r\n"
