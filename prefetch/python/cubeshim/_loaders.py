"""Replaces a loader's iterator over its sampler by an iterator that announces. The common part of
torch and paddle."""
import weakref

from cubeshim import _announce
from cubeshim._ahead import Ahead, Never
from cubeshim._channel import Channel
from cubeshim._datasets import resolver
from cubeshim._generators import State
from cubeshim._learned import Known
from cubeshim._log import trouble


def resolver_of(dataset):
    # Calls the program's own code, such as train_data_list(). Our call must not make this code move
    # a generator.
    before = State()
    try:
        return resolver(dataset)
    finally:
        if State() != before:
            before.restore()


class Loader:
    """The state of a loader that is kept from one epoch to the next."""
    def __init__(self, dataset, rank, world, learned):
        self.resolve = resolver_of(dataset) or learned(dataset)
        self.channel = Channel(rank, world)
        self.epoch = 0


_loaders = {}  # maps the id of a live sampler to its Loader


def nothing(dataset):
    return None


def loader_of(sampler, dataset, rank_and_world, learned):
    loader = _loaders.get(id(sampler))
    if loader is not None and not loader.channel.is_closed:
        return loader
    loader = Loader(dataset, *(rank_and_world() or _announce.rank_and_world()), learned)
    if loader.resolve is None:
        return None
    try:
        weakref.finalize(sampler, forget, id(sampler), loader.channel).atexit = False
        _loaders[id(sampler)] = loader
    except TypeError:
        loader.channel.is_for_one = True  # a list, for instance, whose end cannot be noticed
    return loader


def forget(key, channel):
    _loaders.pop(key, None)
    channel.close()


def ahead(iterator, sampler, dataset, policy, rank_and_world, in_use=0, learned=nothing):
    """Returns the object that replaces the iterator, or None if the iterator stays. Never fails.
    `learned` is called for an unknown data set."""
    try:
        if Channel.is_ending:
            return None
        loader = loader_of(sampler, dataset, rank_and_world, learned)
        if loader is None:
            return None
        # Such an epoch announces only one path, and only when this path was learned, so nothing may
        # be drawn ahead.
        if isinstance(loader.resolve, Known) and not loader.resolve.begin():
            policy = Never()
        order = loader.channel.begin(loader.epoch, loader.resolve)
        loader.epoch += 1
        return order and Ahead(iterator, policy, order, in_use)
    except Exception as error:
        trouble("a data loader is left alone: %r" % (error,))
        return None
