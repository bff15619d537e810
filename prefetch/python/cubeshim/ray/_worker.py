"""The actor that fetches items. It has its own copy of the dataset, and the seeds and worker_info
of a torch worker."""
import pickle
import random

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind
from torch.utils.data._utils import worker as torchs

from cubeshim.ray._homes import join, mixed
from cubeshim.ray._wire import pack, unpack

try:
    import numpy
except ImportError:
    numpy = None


class Work:
    """The attributes of a loader that all its workers share."""
    def __init__(self, loader):
        self.dataset = loader.dataset
        self.kind = loader._dataset_kind
        self.makes_batches = loader._auto_collation
        self.collate = loader.collate_fn
        self.batch_size, self.drop_last = loader.batch_size, loader.drop_last
        self.init = loader.worker_init_fn
        self.workers = loader.num_workers

    def fetcher(self):
        return _DatasetKind.create_fetcher(self.kind, self.dataset, self.makes_batches,
                                           self.collate, self.drop_last)


def state():
    """Returns the state of the generators that torch seeds in a worker."""
    return pickle.dumps((random.getstate(), torch.get_rng_state().numpy().tobytes(), numpy
                         and numpy.random.get_state(legacy=False)))


def restore(saved):
    pythons, torchs_own, numpys = pickle.loads(saved)
    random.setstate(pythons)
    torch.set_rng_state(torch.frombuffer(bytearray(torchs_own), dtype=torch.uint8))
    if numpys:
        numpy.random.set_state(numpys)


def seed_as_worker(base, number):
    random.seed(base + number)
    torch.manual_seed(base + number)
    if numpy:
        numpy.random.seed(torchs._generate_state(base, number))


def seed_for(*numbers):
    """Seeds the generators for one position in an epoch. The seeds are the same on every node."""
    seed = 0
    for number in numbers:
        seed = mixed(seed * 3 + 1, number)
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy:
        numpy.random.seed(seed & 0xFFFFFFFF)


class Worker:
    """Each answer is a tuple (kind, value, ...). The kind is `data` or `error`, which have a packed
    value, `ended` or `lost`."""
    def __init__(self):
        torch.set_num_threads(1)
        self.trouble = None

    def node(self):
        import ray
        return ray.get_runtime_context().get_node_id()

    def wrapped(self):
        return ExceptionWrapper(where="in DataLoader worker process %d" % self.number)

    def begin(self, work, number, base, saved=None, skipped=0):
        """Starts over with a new copy of the dataset. Like torch, reports an error in this step
        only at the next request."""
        self.number, self.base, self.trouble = number, base, None
        seed_as_worker(base, number)
        try:
            self.work = pickle.loads(work)
            torchs._worker_info = torchs.WorkerInfo(id=number, num_workers=self.work.workers,
                                                    seed=base + number, dataset=self.work.dataset)
            if self.work.init is not None:
                self.work.init(number)
            if saved is not None:
                restore(saved)
            self.fetcher = self.work.fetcher()
            for _ in range(skipped):
                self.again()
        except Exception:
            self.trouble = self.wrapped()
        self.last = state()

    def again(self):
        """Skips a batch, or an error, that was already delivered before the worker was lost."""
        try:
            self.fetcher.fetch([None] * (self.work.batch_size or 1))
        except Exception:
            pass

    def resume(self):
        """Begins the next epoch of persistent workers."""
        if self.trouble is None:
            self.fetcher = self.work.fetcher()

    def fetch(self, indices):
        """Fetches a batch as torch's worker does. Returns the batch, and also the generators' new
        state if a generator has moved."""
        answer = self.answer(lambda: self.fetcher.fetch(indices))
        now = state()
        moved, self.last = now != self.last, now
        return answer, now if moved else None

    def answer(self, make):
        if self.trouble is not None:
            return "error", pack(self.trouble)
        try:
            return "data", pack(make())
        except Exception as error:
            if isinstance(error, StopIteration) and self.work.kind == _DatasetKind.Iterable:
                return ("ended",)
            return "error", pack(self.wrapped())

    def whole(self, epoch, batch, indices):
        """Fetches a batch (an item if batch_size=None) whose files all have the same home."""
        if not self.work.makes_batches or self.trouble is not None:
            seed_for(self.base, epoch, batch, 0)
            return self.answer(lambda: self.fetcher.fetch(indices))
        items = self.items(epoch, batch, indices, range(len(indices)))
        return items if items[0] == "error" else self.collated(epoch, batch, items[1])

    def collated(self, epoch, batch, items):
        seed_for(self.base, epoch, batch, -1)
        return self.answer(lambda: self.work.collate(items))

    def part(self, epoch, batch, indices, positions):
        """Fetches some items of a batch. join() puts the batch together later."""
        if self.trouble is not None:
            return "error", pack(self.trouble), positions[0]
        answer = self.items(epoch, batch, indices, positions)
        if answer[0] == "error":
            return answer
        packed = self.answer(lambda: answer[1])
        return packed if packed[0] == "data" else (*packed, positions[0])

    def items(self, epoch, batch, indices, positions):
        """Returns ("data", list), or ("error", packed, position) for the first item that failed."""
        dataset, items, position = self.work.dataset, [], positions[0]
        try:
            if getattr(dataset, "__getitems__", None):
                seed_for(self.base, epoch, batch, position)
                items = dataset.__getitems__(indices)
                if len(items) != len(indices):
                    raise RuntimeError(
                        "__getitems__ gave %d items for %d indices, so a batch cannot be split "
                        "by nodes: split=False leaves it whole" % (len(items), len(indices)))
            else:
                for position, index in zip(positions, indices):
                    seed_for(self.base, epoch, batch, position)
                    items.append(dataset[index])
        except Exception:
            return "error", pack(self.wrapped()), position
        return "data", items

    def join(self, epoch, batch, parts, count):
        """Joins `parts`, which is [(positions, [ref of part()])]. The refs are in lists so that Ray
        does not wait for them. A lost part is reported by its position in `parts`."""
        import ray
        answers, lost = [], []
        for number, (_, (ref,)) in enumerate(parts):
            try:
                answers.append(ray.get(ref))
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError as error:
                answers.append(None)
                lost.append((number, isinstance(error, ray.exceptions.RayActorError)))
        if lost:
            return "lost", lost
        failed = [answer for answer in answers if answer[0] == "error"]
        if failed:
            return min(failed, key=lambda answer: answer[2])[:2]
        items = join(
            [(positions, unpack(answer[1])) for (positions, _), answer in zip(parts, answers)],
            count)
        return self.collated(epoch, batch, items)
