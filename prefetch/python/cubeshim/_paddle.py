"""Wraps PaddlePaddle's DataLoader. Its iterators keep the sampler's iterator in the attribute
_sampler_iter; our iterator replaces it there."""
from cubeshim._ahead import Ahead, Fixed, Watched
from cubeshim._loaders import ahead

# Without a generator of the program, these samplers draw their whole order at the first draw.
FIXED = ("SequenceSampler", "RandomSampler", "WeightedRandomSampler", "DistributedBatchSampler")


def policy_for(sampler):
    kind = type(sampler)
    if kind.__module__.split(".")[0] == "paddle":
        if kind.__name__ == "BatchSampler":
            inner = policy_for(sampler.sampler)
            return Watched(sampler) if type(inner) is Watched else inner
        if kind.__name__ in FIXED and getattr(sampler, "generator", None) is None:
            return Fixed()
    return Watched(sampler)


class SamplerIter:
    """A descriptor for the attribute _sampler_iter. It replaces each iterator that is stored there
    by an iterator that announces."""
    def __get__(self, loader, owner=None):
        if loader is None:
            return self
        try:
            return loader.__dict__["_sampler_iter"]
        except KeyError:
            raise AttributeError("_sampler_iter") from None

    def __set__(self, loader, iterator):
        loader.__dict__["_sampler_iter"] = self.replaced(loader, iterator) or iterator

    def __delete__(self, loader):
        loader.__dict__.pop("_sampler_iter", None)

    @staticmethod
    def replaced(loader, iterator):
        try:
            sampler, dataset = loader._index_sampler, loader._dataset
        except AttributeError:
            return None
        if iterator is None or type(iterator) is Ahead:
            return None
        return ahead(iterator, sampler, dataset, policy_for(sampler), lambda: None)


def wrap(module):
    base = module._DataLoaderIterBase
    if "_sampler_iter" not in base.__dict__:
        base._sampler_iter = SamplerIter()
