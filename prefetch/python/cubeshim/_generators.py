"""The random generators that a program sees, and whether they have moved. Reading their state does not move them."""
import random
import sys

MOST_FOUND = 16


class State:
    """Of torch's, numpy's and random's global generators, as far as they are imported."""

    __slots__ = ("python", "numpy", "torch")

    def __init__(self):
        self.python = random.getstate()
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        self.numpy = numpy.random.get_state() if numpy is not None and hasattr(numpy, "random") else None
        self.torch = torch.get_rng_state() if torch is not None and hasattr(torch, "get_rng_state") else None

    def __eq__(self, other):
        if self.python != other.python or (self.numpy is None) != (other.numpy is None):
            return False
        if self.numpy is not None:
            mine, theirs = self.numpy, other.numpy
            if mine[0] != theirs[0] or mine[2:] != theirs[2:] or mine[1].tobytes() != theirs[1].tobytes():
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
    """A value that says whether an attribute has changed, as far as that can be seen cheaply."""
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
    if depth > 0 and hasattr(value, "__iter__") and hasattr(value, "__dict__"):
        return id(value), attributes(value, depth - 1, found)
    return id(value)


def attributes(thing, depth=3, found=None):
    """What a sampler, and the samplers in it, keep: counters, settings, generators of their own."""
    found = set() if found is None else found
    if id(thing) in found or len(found) > MOST_FOUND:
        return None
    found.add(id(thing))
    return {name: _look(value, depth, found) for name, value in list(getattr(thing, "__dict__", {}).items())}
