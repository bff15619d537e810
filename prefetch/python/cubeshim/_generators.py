"""Watches the random generators that a program can see, and detects whether a generator has moved.
Reading a generator's state does not move it."""
import random
import sys

MOST_FOUND = 16


def _of_numpy():
    """Returns the state of numpy's global generator. The older form of the call supports only one
    kind of generator and warns about other kinds (numpy.random.set_bit_generator)."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return None
    try:
        return numpy.random.get_state(legacy=False)
    except TypeError:  # numpy before 1.17
        return numpy.random.get_state()


def _is_same(mine, theirs):
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, dict):
        return mine.keys() == theirs.keys() and all(
            _is_same(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, tuple):
        return len(mine) == len(theirs) and all(map(_is_same, mine, theirs))
    return mine.tobytes() == theirs.tobytes() if hasattr(mine, "tobytes") else mine == theirs


class State:
    """The state of the global generators of torch, numpy and random, if they are imported."""

    __slots__ = ("python", "numpy", "torch")

    def __init__(self):
        self.python = random.getstate()
        self.numpy = _of_numpy()
        torch = sys.modules.get("torch")
        self.torch = torch.get_rng_state() if torch is not None and hasattr(
            torch, "get_rng_state") else None

    def __eq__(self, other):
        if self.python != other.python or not _is_same(self.numpy, other.numpy):
            return False
        if self.torch is None or other.torch is None:
            return self.torch is other.torch
        return sys.modules["torch"].equal(self.torch, other.torch)

    __hash__ = None

    def restore(self):
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)


def _look(value, depth, found):
    """Returns a value that differs if an attribute has changed, as far as this can be detected
    cheaply."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if isinstance(value, random.Random):
        return value.getstate()
    if torch is not None and hasattr(torch, "Generator") and isinstance(value, torch.Generator):
        return bytes(value.get_state().numpy().tobytes())
    if numpy is not None and hasattr(numpy, "random"):
        if isinstance(value, numpy.random.RandomState):
            return repr(value.get_state()[2:]), value.get_state()[1].tobytes()
        if isinstance(value, numpy.random.Generator):
            return repr(value.bit_generator.state)
    if isinstance(value, (list, tuple, dict, set)):
        return id(value), len(value)
    if depth > 0 and hasattr(type(value), "__iter__") and hasattr(value, "__dict__"):
        return id(value), attributes(value, depth - 1, found)
    return id(value)


def attributes(thing, depth=3, found=None):
    """Returns the state of a sampler and of the samplers in it: their counters, settings and own
    generators."""
    found = set() if found is None else found
    if id(thing) in found or len(found) > MOST_FOUND:
        return None
    found.add(id(thing))
    return {
        name: _look(value, depth, found)
        for name, value in list(getattr(thing, "__dict__", {}).items())
    }
