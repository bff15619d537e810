"""Wraps the only place where a loader of torch.utils.data calls its sampler:
_BaseDataLoaderIter._next_index."""
import sys

from cubeshim import _learning
from cubeshim._ahead import Ahead, Fixed, Never, UpToAPermutation, Watched
from cubeshim._loaders import ahead
from cubeshim._log import trouble


def is_of(kind, packages, *names):
    return kind.__module__.split(".")[0] in packages and kind.__name__ in names


def policy_for(sampler, batch=1, share=1):
    """Chooses the policy for a sampler. Only the classes of torch, accelerate and lightning
    themselves are known, because a subclass can do anything. A draw consumes `batch` indices or, if
    the sampler makes batches, `share` batches."""
    from torch.utils.data import distributed, sampler as torchs
    kind = type(sampler)
    if kind is torchs.BatchSampler:
        if batch > 1:
            return Never()
        inner = policy_for(sampler.sampler, sampler.batch_size * share)
        return Watched(sampler) if type(inner) is Watched else inner
    if is_of(kind, ("accelerate",), "BatchSamplerShard") and batch == share == 1:
        inner = policy_for(sampler.batch_sampler, 1,
                           1 if sampler.split_batches else sampler.num_processes)
        return Watched(sampler) if type(inner) is Watched else inner
    if kind in (torchs.SequentialSampler, torchs.SubsetRandomSampler, torchs.WeightedRandomSampler,
                distributed.DistributedSampler, list, tuple, range):
        return Fixed()
    # These samplers of lightning draw their whole order at the first draw.
    if is_of(kind, ("lightning", "lightning_fabric", "pytorch_lightning"),
             "DistributedSamplerWrapper", "UnrepeatedDistributedSampler",
             "UnrepeatedDistributedSamplerWrapper"):
        return Fixed()
    # When accelerate's sampler begins, it seeds a generator that the program can see. When it ends,
    # it increments its epoch.
    is_seedable = is_of(kind, ("accelerate",), "SeedableRandomSampler")
    if kind is torchs.RandomSampler or is_seedable:
        if sampler.generator is None and not is_seedable:
            return Fixed()  # uses its own generator, seeded at the first draw
        if sampler.replacement:
            return Never()
        return UpToAPermutation(batch, len(sampler.data_source), sampler.num_samples)
    return Watched(sampler)


def rank_and_world():
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def begin(loader, iterator):
    from torch.utils.data import _DatasetKind
    if getattr(loader, "_dataset_kind", None) != _DatasetKind.Map:
        return None
    sampler = loader._index_sampler
    in_use = getattr(loader, "_num_workers", 0) * (getattr(loader, "_prefetch_factor", None) or 0)
    return ahead(iterator, sampler, loader._dataset, policy_for(sampler), rank_and_world, in_use,
                 _learning.known)


def wrap(module):
    fetchers = getattr(getattr(module, "_utils", None), "fetch", None)
    if hasattr(fetchers, "_MapDatasetFetcher"):
        _learning.wrap(fetchers._MapDatasetFetcher)
    real = module._BaseDataLoaderIter._next_index

    def _next_index(self):
        iterator = self._sampler_iter
        if type(iterator) is not Ahead and getattr(self, "_cubeshim_left_alone",
                                                   None) is not iterator:
            try:
                replaced = begin(self, iterator)
            except Exception as error:
                trouble("a DataLoader is left alone: %r" % (error,))
                replaced = None
            if replaced is None:
                self._cubeshim_left_alone = iterator
            else:
                self._sampler_iter = replaced
        return real(self)

    if not hasattr(real, "_cubeshim"):
        _next_index._cubeshim = True
        module._BaseDataLoaderIter._next_index = _next_index
