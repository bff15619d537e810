"""Learns which files an item of a data set needs. This runs in the workers that fetch the items;
the library notes which files the workers' threads open."""
import ctypes
import os
import threading

from cubeshim import _learned
from cubeshim._datasets import is_of
from cubeshim._dataset_lists import own
from cubeshim._loaders import resolver_of
from cubeshim._log import trouble

# After this many items that opened only known files, only one of ONE_OF batches is watched.
WITHOUT_NEWS = 256
ONE_OF = 16
WITHOUT_FILES = 256  # After this many items without an open, a data set is no longer watched.


def library():
    """Returns the library's function, or None if this process has no library or prefetching is
    off."""
    if os.environ.get("CUBESHIM_MODE") == "off" or os.environ.get("CUBESHIM_PREFETCH") == "0":
        return None
    try:
        function = ctypes.CDLL(None).cubeshim_noted_opens
    except (AttributeError, OSError):
        return None
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.POINTER(ctypes.c_size_t)]
    return function


class Notes:
    """Reads the library's notes about this thread: a number of bytes, and the paths
    (shim/cubeshim.h)."""
    def __init__(self):
        size = ctypes.c_size_t()
        address = library()(ctypes.byref(size))
        if not address:
            raise OSError("another thread of this process is noted")
        self.room = memoryview((ctypes.c_char * size.value).from_address(address)).cast("B")
        self.thread = os.getpid(), threading.get_ident()

    def is_here(self):
        return self.thread == (os.getpid(), threading.get_ident())

    def clear(self):
        self.room[:4] = bytes(4)

    def paths(self):
        used = int.from_bytes(self.room[:4], "little")
        return bytes(self.room[4:4 + used]).split(b"\0")[:-1]


class Learner:
    def __init__(self, store):
        self.store, self.notes = store, Notes()
        self.learned = []
        self.looked_at = self.found = self.without_news = self.batches = 0
        self.is_over = False

    def learn(self, index, paths):
        """`index` is one index, or several indices that all opened the same number of files."""
        indices = list(index) if isinstance(index, (list, tuple)) else [index]
        self.looked_at += len(indices)
        self.found += len(paths)
        each, rest = divmod(len(paths), max(len(indices), 1))
        if rest or not 0 < each <= _learned.MOST_PATHS:
            return
        for number, one in enumerate(indices):
            if type(one) is not int:
                one = one.__index__()
            if 0 <= one < self.store.length:
                self.learned.append(
                    (one, list(dict.fromkeys(paths[number * each:(number + 1) * each]))))

    def took(self, index):
        try:
            self.learn(index, self.notes.paths())
        except Exception as error:
            self.end(error)

    def write(self):
        try:
            learned, self.learned = self.learned, []
            if learned:
                self.without_news = 0 if self.store.write(
                    learned) else self.without_news + len(learned)
            if not self.found and self.looked_at >= WITHOUT_FILES:
                self.end("the items open no file below a prefix")
        except Exception as error:
            self.end(error)

    def end(self, why):
        self.is_over = True
        trouble("nothing more is learned about a data set: %s" % (why,))

    def fetch(self, real, fetcher, indices):
        self.batches += 1
        if self.without_news >= WITHOUT_NEWS and self.batches % ONE_OF:
            return real(fetcher, indices)
        dataset = fetcher.dataset
        fetcher.dataset = Watched(dataset, self)
        try:
            data = real(fetcher, indices)
        finally:
            fetcher.dataset = dataset
        self.write()
        return data


def is_asked_for_each(dataset):
    """Returns False if torch asks the data set for a whole batch, because files then cannot be
    assigned to indices. torch's Subset asks for each index if torch would do so for the inner data
    set."""
    while is_of(dataset, "torch.utils.data", "Subset") and type(dataset).__name__ == "Subset":
        dataset = own(dataset).get("dataset")
    return not getattr(dataset, "__getitems__", None)


class Watched:
    """Replaces a data set while a batch is fetched, but not while the batch is collated."""
    __slots__ = ("dataset", "learner")

    def __init__(self, dataset, learner):
        self.dataset, self.learner = dataset, learner

    def __getitem__(self, index):
        self.learner.notes.clear()
        item = self.dataset[index]
        self.learner.took(index)
        return item

    def __getattr__(self, name):
        """torch looks up only __getitems__, and only if it wants whole batches. So the lookup
        reaches the data set exactly when it would reach it without this object."""
        if name != "__getitems__" or is_asked_for_each(self.dataset):
            raise AttributeError(name)
        return self.items

    def items(self, indices):
        self.learner.notes.clear()
        items = self.dataset.__getitems__(indices)
        self.learner.took(indices)
        return items


def known(dataset):
    """Makes the workers learn from now on. Returns None if nothing can be learned about the data
    set."""
    key = _learned.key_of(dataset) if library() is not None and hasattr(type(dataset),
                                                                        "__len__") else None
    if key is None:
        return None
    store = _learned.Store(key, len(dataset))
    store.make()
    return _learned.Known(store)


def learner_of(fetcher):
    dataset = fetcher.dataset
    if library() is None or not hasattr(type(dataset),
                                        "__len__") or resolver_of(dataset) is not None:
        return None
    key = _learned.key_of(dataset)
    store = key and _learned.Store(key, len(dataset))
    return Learner(store) if store and store.is_there() else None


def wrap(kind):
    """`kind` is torch's _MapDatasetFetcher, which fetches the items in workers and in loops without
    workers."""
    real = kind.fetch

    def fetch(self, possibly_batched_index):
        try:
            learner = self.__dict__["_cubeshim_learner"]
        except KeyError:
            learner = None
            try:
                learner = learner_of(self) if type(self) is kind else None
            except Exception as error:
                trouble("nothing is learned about a data set: %r" % (error,))
            self._cubeshim_learner = learner
        if learner is None or learner.is_over or not learner.notes.is_here():
            return real(self, possibly_batched_index)
        return learner.fetch(real, self, possibly_batched_index)

    if not hasattr(real, "_cubeshim"):
        fetch._cubeshim = True
        kind.fetch = fetch
