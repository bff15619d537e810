"""The iterator of one epoch. It draws indices and seeds in torch's own order, but uses Ray's actors
instead of processes."""
import ray
from ray import cloudpickle
from torch.utils.data import _DatasetKind
from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from cubeshim._loaders import resolver_of
from cubeshim.ray._parts import Parts
from cubeshim.ray._streams import Streams
from cubeshim.ray._retries import Ended
from cubeshim.ray._wire import unpack
from cubeshim.ray._worker import Work


class RayIterator(_BaseDataLoaderIter):
    _engine = None

    def __init__(self, loader):
        super().__init__(loader)
        self._lender = loader._crews
        self._crew = self._lender.take(self._num_workers)
        work = ray.put(cloudpickle.dumps(Work(loader)))
        is_split = loader.split
        if is_split is None:
            is_split = len(self._crew.nodes()) > 1
        if is_split and self._dataset_kind == _DatasetKind.Map:
            self._engine = Parts(self._crew, work, self, resolver_of(loader.dataset))
        else:
            self._engine = Streams(self._crew, work, self)
        if self._timeout > 0:
            self._crew.ready()  # waits, because the seconds that an actor takes to start must not
                                # count as a failure
        self._reset(loader, first_iter=True)

    def _next_index(self):
        # Torch's own method would announce files to this node's cache that other nodes will read.
        return next(self._sampler_iter)

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._sent = self._received = 0
        self._engine.begin_epoch(first_iter)
        for _ in range(self._prefetch_factor * self._num_workers):
            self._send()

    def _send(self):
        try:
            indices = self._next_index()
        except StopIteration:
            return
        if self._engine.submit(self._sent, indices):
            self._sent += 1

    def _next_data(self):
        while True:
            while self._received < self._sent and self._engine.is_void(self._received):
                self._received += 1
            if self._received == self._sent:
                if not self._persistent_workers:
                    self._end()
                raise StopIteration
            answer = self._engine.take(self._received, self._timeout)
            self._received += 1
            self._send()
            if answer is Ended:
                continue
            data = unpack(answer[1])
            if answer[0] == "error":
                data.reraise()
            return _utils.pin_memory.pin_memory(
                data, self._pin_memory_device) if self._pin_memory else data

    def _end(self):
        """Returns the actors to the loader, and cancels work whose result is no longer wanted."""
        engine, self._engine = self._engine, None
        self._sent = self._received = 0
        if engine is not None and ray.is_initialized():
            for ref in engine.refs():
                ray.cancel(ref)
            self._lender.give(self._crew)

    def __del__(self):
        try:
            self._end()
        except Exception:
            pass  # the interpreter ends
