"""Real launchers start jobs on two nodes with two ranks each. Ranks of a node share its memory,
nodes share through memcached, and the prefetcher has each rank's order under the rank's number.

A node is a CUBESHIM_NAME, which has its own region and its own socket for announcements. An
argument selects a single launcher:

    test_launchers.py [torchrun|mpirun|deepspeed]

If the launcher is missing, the program prints one line that says so, and ends with 77.
"""
import base64
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "preload")]
from bench.harness.mount import SlowMount  # noqa: E402
from cluster_servers import Memcached, free_port, wait_until  # noqa: E402
from server import Server  # noqa: E402

BUILD = Path(os.environ["CUBESHIM_BUILD"])
RANK = Path(__file__).resolve().parent / "launchers_rank.py"
NODES, RANKS, FILES, SECONDS, SKIPPED = 2, 2, 24, 240, 77
WORLD = NODES * RANKS


def torchrun(node, port, words):
    """Without --redirects and --tee torch 1.13 fails under Python 3.11, whose enumerations
    leave out the value zero."""
    return [
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={NODES}",
        f"--nproc_per_node={RANKS}", f"--node_rank={node}", "--redirects=1", "--tee=1",
        "--master_addr=127.0.0.1", f"--master_port={port}", *words
    ]


def deepspeed(node, port, words):
    """Uses only the part of DeepSpeed that runs on each node. DeepSpeed's command would reach the
    other nodes by ssh."""
    ranks = json.dumps({f"node{number}": list(range(RANKS)) for number in range(NODES)})
    return [
        sys.executable, "-m", "deepspeed.launcher.launch",
        f"--world_info={base64.urlsafe_b64encode(ranks.encode()).decode()}", f"--node_rank={node}",
        "--master_addr=127.0.0.1", f"--master_port={port}", *words
    ]


def missing(launcher):
    """Returns the reason why the launcher cannot be tested here, or an empty string."""
    if importlib.util.find_spec("torch") is None:
        return "this Python has no torch"
    if launcher == "mpirun" and not shutil.which("mpirun"):
        return "there is no mpirun"
    if launcher == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
        return "this Python has no deepspeed"
    return ""


class Launched(unittest.TestCase):
    launcher = None

    def setUp(self):
        if self.launcher is None or (why := missing(self.launcher)):
            self.skipTest(why if self.launcher else "no launcher")
        # Files are shared only if all users may enter their directories.
        self.scratch = Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="cubeshim-launch-",
                                                          dir="/dev/shm")))
        self.scratch.chmod(0o755)
        source = self.scratch / "source"
        self.out = self.scratch / "out"
        source.mkdir()
        self.out.mkdir()
        for number in range(FILES):
            (source / f"f{number:02}").write_bytes(os.urandom(3000 + 500 * number))
            os.utime(source / f"f{number:02}", (1e9, 1e9))
        self.pool = self.enterContext(Memcached())
        self.mount = self.enterContext(
            SlowMount(BUILD / "lagfs", source, self.scratch, 0, direct=True, keeps_names=False))
        self.names = [f"launch-{os.getpid()}-{node}" for node in range(NODES)]
        self.servers = [self.enterContext(Server(self.scratch, name)) for name in self.names]
        self.errors = self.enterContext((self.scratch / "errors").open("w+"))

    def environment(self, node):
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUBESHIM_", "TORCHELASTIC_", "SLURM_", "OMPI_"))
        }
        # Announcements are sent to this test, because prefetching would hide which files a rank
        # finds in memory. OMP_NUM_THREADS limits each process to one thread.
        return clean | {
            "LD_PRELOAD": str(BUILD / "libcubeshim.so"), "CUBESHIM_PREFIXES": str(self.mount.path),
            "CUBESHIM_NAME": self.names[node], "CUBESHIM_RAM_DIR": str(self.scratch),
            "CUBESHIM_RAM": "32M", "CUBESHIM_PREFETCH": "0", "CUBESHIM_METADATA": "0",
            "CUBESHIM_STATS": str(self.scratch / f"report-{node}"), "CUBESHIM_STATS_FORMAT": "json",
            "CUBESHIM_RAM_KEEP": "1", "CUBESHIM_CLUSTER": f"memcached://{self.pool.name}",
            "CUBESHIM_CLUSTER_DEADLINE": "10s", "PYTHONPATH": str(ROOT / "prefetch" / "python"),
            "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONDONTWRITEBYTECODE": "1"
        }

    def commands(self):
        """Returns a command and its environment for each part that is started separately."""
        words = [str(RANK), str(self.mount.path), str(self.out), self.launcher]
        if self.launcher != "mpirun":
            port, make = free_port(), {"torchrun": torchrun, "deepspeed": deepspeed}[self.launcher]
            return [(make(node, port, words), self.environment(node)) for node in range(NODES)]
        # One command starts all nodes: for mpirun, a node is a program with its own environment.
        command = [
            "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl",
            "self,tcp"
        ]
        for node in range(NODES):
            own = {
                name: value
                for name, value in self.environment(node).items()
                if os.environ.get(name) != value
            }
            settings = [word for name, value in own.items() for word in ("-x", f"{name}={value}")]
            command += [
                *([":"] if node else []), "-n",
                str(RANKS), *settings, sys.executable, *words
            ]
        return [(command, {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        })]

    def said(self, epoch):
        """Returns the reports of all ranks, or an empty list if some are still missing."""
        found = [self.out / f"{epoch}-{rank}.json" for rank in range(WORLD)]
        return [json.loads(path.read_text()) for path in found] if all(
            path.exists() for path in found) else None

    def run_job(self):
        jobs = [
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.errors,
                             stderr=self.errors, start_new_session=True)
            for command, environment in self.commands()
        ]
        try:
            self.tell(0, jobs)
            first = wait_until(lambda: self.said(0), "all ranks have had an epoch", SECONDS)
            wait_until(
                lambda: sum(self.pool.get(key) is not None for key in self.pool.keys()) == FILES,
                "all files are shared", SECONDS)
            opens = self.mount.on_data("open")
            (self.out / "go").touch()
            self.tell(1, jobs)
            ends = [job.wait(SECONDS) for job in jobs]
        finally:
            for job in jobs:
                if job.poll() is None:
                    job.terminate()
                    job.wait(SECONDS)
        self.assertEqual(ends, [0] * len(jobs), self.text_of_errors())
        return first, self.said(1), opens

    def tell(self, epoch, jobs):
        """Lets the ranks continue when all of them have announced the epoch."""
        def announced():
            self.assertFalse([job for job in jobs if job.poll()], self.text_of_errors())
            self.assertEqual([server.wrong for server in self.servers], [[]] * NODES)
            return all(
                sum(epoch in client.ended
                    for client in server.clients) == RANKS
                for server in self.servers)

        wait_until(announced, f"all ranks announce epoch {epoch}", SECONDS)
        (self.out / f"told-{epoch}").touch()

    def text_of_errors(self):
        self.errors.flush()
        return Path(self.errors.name).read_text()

    def hits(self, name):
        """Returns the hits in memory and on servers of all jobs of a node. mpirun makes one job for
        each rank, torchrun one job for all ranks."""
        reports = [
            json.loads(line)
            for line in (self.scratch /
                         f"report-{self.names.index(name)}").read_text().splitlines()
        ]
        return tuple(
            sum(report["hits"][tier] for report in reports) for tier in ("ram", "cluster")) + (sum(
                r["misses"] for r in reports),)

    def test_ranks_share(self):
        first, second, opens = self.run_job()
        self.assertEqual([(rank["rank"], rank["world"]) for rank in first],
                         [(number, WORLD) for number in range(WORLD)])
        expected = {
            str(self.mount.path / path.name): subprocess.check_output(["md5sum", path],
                                                                      text=True).split()[0]
            for path in (self.scratch / "source").iterdir()
        }
        for epoch in (first, second):
            self.assertEqual(
                {path: digest for rank in epoch for path, digest in rank["read"].items()}, expected)
        self.assertEqual((opens, self.mount.on_data("open")), (FILES, FILES),
                         "each file was opened once, by one rank of all")
        for name in self.names:
            read, again = ({
                path for rank in epoch if rank["node"] == name for path in rank["read"]
            } for epoch in (first, second))
            self.assertEqual(len(read), FILES // NODES)
            self.assertEqual(self.hits(name), (len(again & read), len(again - read), len(read)),
                             "memory, servers, origin")
        self.assertTrue(
            any(
                set(mine["read"]) & set(others["read"])
                for mine in second
                for others in first
                if mine["node"] == others["node"] and mine["rank"] != others["rank"]),
            "one rank reads another's file")

    def test_look_ahead_has_the_ranks(self):
        first, second, _ = self.run_job()
        for name, server in zip(self.names, self.servers):
            ranks = [number for number in range(WORLD) if first[number]["node"] == name]
            self.assertEqual({(client.rank, client.world) for client in server.clients},
                             {(number, WORLD) for number in ranks})
            # A loader can make a new connection for an epoch.
            heard = {(client.rank, number): client.paths(number)
                     for client in server.clients
                     for number in client.epochs}
            read = {(number, turn): list(epoch[number]["read"])
                    for number in ranks
                    for turn, epoch in enumerate((first, second))}
            self.assertEqual(heard, read, "each rank announces its own order")


class Torchrun(Launched):
    launcher = "torchrun"


class Mpirun(Launched):
    launcher = "mpirun"


class DeepSpeed(Launched):
    launcher = "deepspeed"


def load_tests(loader, *_):
    chosen = [
        case for case in (Torchrun, Mpirun, DeepSpeed)
        if len(sys.argv) < 2 or case.launcher in sys.argv[1:]
    ]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in chosen)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        if why := missing(given):
            print(f"skipped: {why}")
            sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
