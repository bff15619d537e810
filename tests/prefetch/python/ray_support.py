"""Shared by the tests with a real Ray: a cluster of two raylets on the loopback, data sets, and
comparisons with torch's loops."""
import multiprocessing
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "prefetch" / "python"
sys.path.insert(0, str(PACKAGE))
# The raylets and their workers find the package and this file here.
os.environ.update(PYTHONPATH=f"{PACKAGE}:{Path(__file__).resolve().parent}", RAY_DEDUP_LOGS="0",
                  RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
                  PYTHONDONTWRITEBYTECODE="1")

import cubeshim.ray  # noqa: E402
import numpy  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from cubeshim.ray._loader import Crews  # noqa: E402
from ray import cloudpickle  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info  # noqa: E402

DEADLINE = 120
# Settings with which a killed raylet is noticed soon; by default, this takes 15 s.
SOON = {
    "health_check_initial_delay_ms": 1000, "health_check_period_ms": 500,
    "health_check_failure_threshold": 3
}
NODE = dict(num_cpus=4, object_store_memory=100 << 20)
# Loopback addresses. Ray replaces 127.0.0.1 by the address of the machine.
FIRST, SECOND = "127.0.0.2", "127.0.0.3"


class Aside:
    """Runs torch's loops in a process in which Ray has never run, because Ray's threads and signal
    handlers do not survive a fork."""
    def __init__(self):
        self.ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=self.serve,
                                                                   args=(theirs,))
        self.process.start()
        theirs.close()

    def serve(self, pipe):
        """Runs each loop in its own process: otherwise its workers would inherit objects of an
        earlier loop, and end these objects a second time."""
        self.ours.close()
        while True:
            try:
                work = pipe.recv_bytes()
            except EOFError:
                return
            child = os.fork()
            if child == 0:
                pipe.send(self.answer(work))
                os._exit(0)
            os.waitpid(child, 0)

    @staticmethod
    def answer(work):
        try:
            return flat(pickle.loads(work)()), None
        except BaseException as error:
            return None, repr(error)

    def run(self, work):
        self.ours.send_bytes(cloudpickle.dumps(work))
        if not self.ours.poll(DEADLINE):
            raise AssertionError("torch's own loop does not end")
        answer, error = self.ours.recv()
        if error:
            raise AssertionError(f"torch's own loop: {error}")
        return answer

    def end(self):
        self.ours.close()
        self.process.join()


class Two:
    """Two raylets, each with an object store."""
    def __init__(self):
        self.cluster = Cluster(
            initialize_head=True, head_node_args=dict(NODE, node_ip_address=FIRST,
                                                      include_dashboard=False, _system_config=SOON))
        self.second = self.cluster.add_node(**NODE, node_ip_address=SECOND)
        ray.init(address=self.cluster.address, _node_ip_address=FIRST, log_to_driver=False,
                 logging_level="error")
        # The first raylet learns of the second raylet only after some time. Until then, it would do
        # all the work itself.
        second = next(
            node["NodeID"] for node in ray.nodes() if node["NodeManagerAddress"] == SECOND)
        until(lambda: self.takes_work(second), "the second raylet takes work")

    @staticmethod
    def takes_work(node):
        probe = ray.remote(lambda: 1).options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
        try:
            return ray.get(probe.remote(), timeout=DEADLINE) == 1
        except ray.exceptions.RayError:
            return False

    def end(self):
        ray.shutdown()
        self.cluster.shutdown()


def until(true, what):
    end = time.monotonic() + DEADLINE
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {DEADLINE} s")
        time.sleep(0.02)


class Items(Dataset):
    """The items are numbers, and small and large tensors; with `draws`, also numbers that random
    transforms would draw."""
    def __init__(self, count=50, draws=False, fails=(), dies=(), gate=None, at=None):
        self.count, self.draws, self.fails = count, draws, fails
        self.dies, self.gate, self.at = dies, gate, at

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        index = int(index)
        if index in self.fails:
            raise self.fails[index]
        if index in self.dies:
            os._exit(1)
        if index == self.at:
            stop_at(self.gate)
        item = {
            "index": index, "small": torch.tensor([index, 2]), "large": torch.full((2000,),
                                                                                   float(index)),
            "text": str(index), "array": numpy.full((3000,), index, numpy.int32)
        }
        if self.draws:
            item["drawn"] = random.random(), numpy.random.rand(), torch.rand(2)
        return item


def node_address():
    own = ray.get_runtime_context().get_node_id()
    return next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == own)


class OnNode(Items):
    """A process on this node stops when it fetches one of the later items."""
    def __init__(self, address, *arguments, **more):
        super().__init__(*arguments, **more)
        self.address = address

    def __getitem__(self, index):
        if self.gate and index >= 18 and node_address() == self.address:
            stop_at(self.gate)
        return super().__getitem__(index)


class Stream(IterableDataset):
    """Each worker has its own share; the shares differ in length. The first worker can stop in the
    middle."""
    def __init__(self, count=41, gate=None):
        self.count, self.gate = count, gate

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id, self.count, info.num_workers + info.id % 2):
            if self.gate and info.id == 0 and number > self.count // 2:
                stop_at(self.gate)
            yield number, torch.rand(1), info.seed


def stop_at(gate):
    """Reports that this worker has arrived, and waits until it may continue."""
    if (gate / "open").exists():
        return
    name = gate / f"here-{os.getpid()}"
    name.write_text(f"{os.getpid()} {os.getppid()}")
    name.rename(gate / "here")
    until((gate / "open").exists, "the gate opens")


class Gate:
    def __init__(self, case):
        made = tempfile.TemporaryDirectory(prefix="cubeshim-ray-")
        case.addCleanup(made.cleanup)
        self.path = Path(made.name)

    def kill(self, which):
        """Sends SIGKILL to the process that waits here (0) or to its raylet (1). The successor
        continues."""
        until((self.path / "here").exists, "somebody is at the gate")
        victim = int((self.path / "here").read_text().split()[which])
        os.kill(victim, signal.SIGKILL)
        (self.path / "open").touch()
        return victim


def flat(value):
    """Converts a value so that == compares all of it, including types."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, tuple(value.shape), value.to_dense().numpy().tobytes()
    if isinstance(value, numpy.ndarray):
        return "array", value.dtype, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(key, flat(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [flat(item) for item in value]
    return type(value).__name__, value


def without(name, batches):
    return [{key: value for key, value in batch.items() if key != name} for batch in batches]


def outcome(make, kind, loop, epochs):
    """Returns the outcome of each epoch, and the state of the generators after the epoch."""
    torch.manual_seed(5)
    loader = make(kind)
    return [(loop(loader), torch.get_rng_state().tolist(), loader.generator
             and loader.generator.get_state().tolist()) for _ in range(epochs)]


class Case(unittest.TestCase):
    aside = two = None
    crews = Crews({})  # an actor takes seconds to start, so all tests' loaders share them
    split = None

    @classmethod
    def setUpClass(cls):
        if Case.two is None:
            Case.aside = Aside()
            unittest.addModuleCleanup(Case.aside.end)
            Case.two = Two()
            unittest.addModuleCleanup(Case.two.end)

    def loader(self, *arguments, **more):
        loader = cubeshim.ray.DataLoader(*arguments, **{"split": self.split, **more})
        self.assertIsInstance(loader, DataLoader)
        loader._crews = self.crews
        return loader

    def torchs(self, make, loop=list, epochs=2):
        return self.aside.run(lambda: outcome(make, DataLoader, loop, epochs))

    def ours(self, make, loop=list, epochs=2):
        return flat(outcome(make, self.loader, loop, epochs))

    def same(self, make, loop=list, epochs=2):
        expected, found = self.torchs(make, loop, epochs), self.ours(make, loop, epochs)
        self.assertTrue(expected == found,
                        f"not as torch has it:\n{str(found)[:600]}\nbut\n{str(expected)[:600]}")


__all__ = [
    "FIRST", "SECOND", "Case", "DataLoader", "Dataset", "Gate", "Items", "IterableDataset",
    "OnNode", "Stream", "cubeshim", "flat", "get_worker_info", "node_address", "numpy", "os",
    "random", "ray", "torch", "unittest", "until", "without"
]
