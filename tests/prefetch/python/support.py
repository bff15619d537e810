"""Shared by the tests of the Python package: a directory with a server's socket, data sets of
files, and comparisons of loops."""
import contextlib
import os
import random
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "prefetch" / "python"
sys.path.insert(0, str(PACKAGE))

import cubeshim  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data import dataloader as torch_loaders  # noqa: E402

from cubeshim import _channel, _announce  # noqa: E402
from server import Server  # noqa: E402

WRAPPED = torch_loaders._BaseDataLoaderIter._next_index
assert hasattr(WRAPPED, "_cubeshim"), "torch was not wrapped"
PLAIN = WRAPPED.__closure__[[*WRAPPED.__code__.co_freevars].index("real")].cell_contents


@contextlib.contextmanager
def without():
    """Runs torch without the wrap."""
    torch_loaders._BaseDataLoaderIter._next_index = PLAIN
    try:
        yield
    finally:
        torch_loaders._BaseDataLoaderIter._next_index = WRAPPED


def generators():
    return repr(
        (random.getstate(), numpy.random.get_state()[1].tobytes(), numpy.random.get_state()[2],
         torch.get_rng_state().numpy().tobytes()))


def seed(number=7):
    random.seed(number)
    numpy.random.seed(number)
    torch.manual_seed(number)


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="cubeshim-python-")
        self.addCleanup(made.cleanup)
        self.dir = Path(made.name)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(CUBESHIM_RAM_DIR=str(self.dir), CUBESHIM_NAME="test")
        self.addCleanup(self.end_channels)
        for name in ("CUBESHIM_LOG", *(name for pair in _announce.PLACES for name in pair)):
            os.environ.pop(name, None)

    def end_channels(self):
        for channel in list(_channel._channels):
            thread = channel.thread
            channel.close()
            thread.join(60)
            self.assertFalse(thread.is_alive())

    def serve(self, **settings):
        server = Server(self.dir, "test", **settings)
        self.addCleanup(server.stop)
        return server


class Files(torch.utils.data.Dataset):
    """Has `samples` like ImageFolder. An item is its index, with the numbers that random transforms
    would draw."""
    def __init__(self, count, draws=False, name="f"):
        self.samples = [(f"/data/{name}{i}.jpg", i % 10) for i in range(count)]
        self.draws = draws

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        index = int(index)
        assert index < len(self.samples)
        if self.draws:
            return index, random.random(), numpy.random.rand(), torch.rand(()).item()
        return index

    def paths(self, indices):
        return [self.samples[int(i)][0] for i in indices]


def begun(loader):
    """Returns an iterator that has made its first draw and all draws ahead, and the first item."""
    iterator = iter(loader)
    return iterator, next(iterator)


def as_is(batch):
    return batch


__all__ = [
    "Case", "DataLoader", "Files", "PACKAGE", "PLAIN", "ROOT", "Server", "WRAPPED", "as_is",
    "begun", "cubeshim", "generators", "numpy", "random", "seed", "torch", "without"
]
