"""Chooses the node that caches the file of an index, splits a batch by node, and joins the parts.
This module does not use Ray."""
import hashlib
import operator
import os

MASK = (1 << 64) - 1


def hash_of(data):
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def mixed(a, b):
    """Combines two hashes into one (splitmix64). All its bits depend on both hashes."""
    x = (a ^ b) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def bytes_of(index):
    """Returns the same for 3, numpy's 3 and a tensor of 3."""
    try:
        return b"%d" % operator.index(index)
    except TypeError:
        return repr(index).encode(errors="surrogateescape")


class Homes:
    """`resolve` maps an index to the paths that it needs (cubeshim._datasets), or is None if the
    paths are not known."""
    def __init__(self, resolve=None):
        self.resolve = resolve

    def key(self, index):
        """Returns the hash of the first file of an index. The index itself is not used if the file
        is known, because it can refer to another file when the data set has grown."""
        if self.resolve is not None:
            try:
                for path in self.resolve(index):
                    return hash_of(os.fsencode(path))
            except Exception:
                pass  # the data set will raise the error itself
        return hash_of(bytes_of(index))

    def home(self, index, nodes):
        """Returns the home of an index by rendezvous hashing: adding or removing a node moves only
        the share of that node. `nodes` contains the hash of each name."""
        key = self.key(index)
        return max(nodes, key=lambda node: (mixed(key, node), node))

    def split(self, indices, nodes):
        """Returns [(node, positions)], in the order in which the nodes first occur."""
        if len(nodes) == 1:
            return [(next(iter(nodes)), list(range(len(indices))))]
        parts = {}
        for position, index in enumerate(indices):
            parts.setdefault(self.home(index, nodes), []).append(position)
        return list(parts.items())


def join(parts, count):
    """Returns the items of a batch in its order. `parts` is [(positions, items)]."""
    joined = [None] * count
    for positions, items in parts:
        for position, item in zip(positions, items):
            joined[position] = item
    return joined
