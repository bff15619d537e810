"""A node of the tests of the cluster: a process with its own CUBESHIM_NAME and therefore its own
region. CUBESHIM_LIBRARY and CUBESHIM_LAGFS name the build's files. Counts cover only completed
events: a test waits for the state that it needs, and never for a time."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parent.parent.parent),
    str(Path(__file__).resolve().parent)
]
from bench.harness.mount import SlowMount  # noqa: E402
from cluster_servers import DEADLINE_S, Memcached, wait_until  # noqa: E402

LIBRARY, LAGFS = os.environ["CUBESHIM_LIBRARY"], os.environ["CUBESHIM_LAGFS"]
PYTHON, OLD = "/usr/bin/python3", (1e9, 1e9)
FILES = 24
# Executes the command in each of its input lines, and prints the result. A node ends when its stdin
# ends.
NODE = """
import hashlib, os, subprocess, sys, time
def say(path):
    try:
        with open(path, 'rb') as file:
            st = os.fstat(file.fileno())
            print(hashlib.md5(file.read()).hexdigest(), st.st_size, st.st_dev, st.st_ino,
                  st.st_mtime_ns, flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
print('ready', flush=True)
for line in sys.stdin:
    word, _, rest = line.rstrip('\\n').partition(' ')
    if word == 'open':
        say(rest)
    elif word == 'announce':
        import cubeshim
        cubeshim.announce(rest.split())
        print('announced', flush=True)
    elif word == 'list':
        print(*sorted(f'{entry.name}:{entry.inode()}' for entry in os.scandir(rest)), flush=True)
    elif word == 'time':
        began = time.monotonic()
        open(rest, 'rb').close()
        print(time.monotonic() - began, flush=True)
    elif word == 'fork':
        pid = os.fork()
        if pid == 0:
            say(rest)
            os._exit(0)
        os.waitpid(pid, 0)
    elif word == 'exec':
        code = 'import sys; print(len(open(sys.argv[1], "rb").read()))'
        print(subprocess.run([sys.executable, '-c', code, rest],
                             stdout=subprocess.PIPE, text=True).stdout, end='', flush=True)
    elif word == 'closefrom':
        os.closerange(3, 1000)
        say(rest)
    elif word == 'write':
        path, _, text = rest.partition(' ')
        with open(path, 'r+') as file:
            file.write(text)
        os.utime(path, (1e9 + 5, 1e9 + 5))
        print('written', flush=True)
"""


def in_memory(node: "Node") -> int:
    """Returns how many records the region of a node has."""
    said = subprocess.run([os.environ["CUBESHIM_COMMAND"], "stats", "--json", "--name", node.name],
                          capture_output=True, text=True, check=True)
    return json.loads(said.stdout)["jobs"][0]["report"]["ram"]["entries"]


class Node:
    def __init__(self, test, name: str, settings: dict):
        self.report = test.scratch / f"report-{name}-{time.monotonic_ns()}"
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("CUBESHIM_", "SLURM_", "TORCHELASTIC_"))
        }
        self.name = f"cluster-{os.getpid()}-{name}"
        env = clean | {
            "CUBESHIM_NAME": self.name, "CUBESHIM_STATS": str(self.report),
            "CUBESHIM_STATS_FORMAT": "json", "CUBESHIM_ANNOUNCE": "0", "CUBESHIM_PREFETCH": "0",
            "CUBESHIM_METADATA": "0", "CUBESHIM_RAM": "32M", "CUBESHIM_CLUSTER_DEADLINE": "10s",
            "CUBESHIM_CLUSTER": test.servers(), "LD_PRELOAD": LIBRARY
        } | settings
        self.errors = test.scratch / f"errors-{name}-{time.monotonic_ns()}"
        errors = test.enterContext(self.errors.open("w"))
        self.words = env.pop("TEST_WORDS", None) or [PYTHON, "-uc", NODE]
        self.user = env.pop("TEST_USER", None)
        self.process = subprocess.Popen(self.words, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=errors, text=True,
                                        user=int(self.user) if self.user else None)
        assert self.process.stdout.readline() == "ready\n", self.errors.read_text()

    def ask(self, word: str, path: Path | str) -> str:
        self.send(word, path)
        return self.hear()

    def send(self, word: str, path: Path | str):
        print(word, path, file=self.process.stdin, flush=True)

    def hear(self) -> str:
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        return line.rstrip("\n")

    def end(self) -> dict:
        """Ends the node, and returns the report of the whole job."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(DEADLINE_S)
            self.process.stdout.close()
        assert self.process.returncode == 0, self.errors.read_text()
        return json.loads(self.report.read_text().splitlines()[-1])

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close() if not self.process.stdin.closed else None
        self.process.stdout.close() if not self.process.stdout.closed else None


class Cluster(unittest.TestCase):
    server_count = 1
    server_options: tuple = ()
    memory_mb = 64

    def setUp(self):
        self.scratch = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-cluster-")))
        # A file is shared only if all users may enter its directory.
        self.scratch.chmod(0o755)
        self.source = self.scratch / "source"
        self.source.mkdir()
        self.files = [f"d{i % 3}/f{i}" for i in range(FILES)]
        for number, name in enumerate(self.files):
            path = self.source / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(100 + 977 * number))
            os.utime(path, OLD)
        self.pool = [
            self.enterContext(Memcached(*self.server_options, memory_mb=self.memory_mb))
            for _ in range(self.server_count)
        ]

    def servers(self) -> str:
        return "memcached://" + ",".join(server.name for server in self.pool)

    def mount(self, latency_us: int = 0, at: Path | None = None) -> Path:
        self.slow = self.enterContext(
            SlowMount(Path(LAGFS), self.source, self.scratch, latency_us, direct=True,
                      keeps_names=False, at=at))
        return self.slow.path

    def origin(self, *operations: str) -> int:
        counters = json.loads((self.slow.path / ".lagfs" / "counters.json").read_text())
        return sum(counters[name]["data_files"] for name in operations)

    def node(self, name: str, prefix: Path, **settings: str) -> Node:
        node = Node(self, name, {"CUBESHIM_PREFIXES": str(prefix)} | settings)
        self.addCleanup(node.kill)
        return node

    def listed(self) -> int:
        """Returns how many directories were opened at the origin."""
        counters = json.loads((self.slow.path / ".lagfs" / "counters.json").read_text())["opendir"]
        return counters["data_files"] + counters["other"]

    def items(self) -> int:
        return sum(server.items() for server in self.pool)

    def values(self) -> dict[str, bytes]:
        """Returns the contents of the servers, without leases."""
        found = {key: server.get(key) for server in self.pool for key in server.keys()}
        return {key: value for key, value in found.items() if value}

    def fill(self, prefix: Path, name: str = "first", **settings: str) -> tuple[Node, list[str]]:
        """Starts a node that has read all files and has shared them."""
        node = self.node(name, prefix, **settings)
        said = [node.ask("open", prefix / file) for file in self.files]
        wait_until(lambda: len(self.values()) == FILES, "all files are shared")
        return node, said
