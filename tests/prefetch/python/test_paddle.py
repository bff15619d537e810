"""PaddlePaddle is not installed on every machine, so this test uses a module with the same names,
and a loop like that of PaddlePaddle's iterators."""
import sys
import types
import unittest

from support import *  # noqa: F403

SOURCE = """
import numpy

class Sampler:
    def __init__(self, data_source, generator=None):
        self.data_source, self.generator = data_source, generator
    def __len__(self):
        return len(self.data_source)

class RandomSampler(Sampler):
    def __iter__(self):
        yield from numpy.random.permutation(len(self)).tolist()

class BatchSampler:
    def __init__(self, sampler, batch_size):
        self.sampler, self.batch_size = sampler, batch_size
    def __iter__(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

class _DataLoaderIterBase:
    def __init__(self, dataset, batch_sampler):
        self._dataset, self._index_sampler = dataset, batch_sampler
        self._sampler_iter = iter(self._index_sampler)

class _DataLoaderIterSingleProcess(_DataLoaderIterBase):
    def __init__(self, dataset, batch_sampler):
        super().__init__(dataset, batch_sampler)
        self.first = next(self._sampler_iter)
    def __iter__(self):
        yield [self._dataset[index] for index in self.first]
        for indices in self._sampler_iter:
            yield [self._dataset[index] for index in indices]
    def _reset(self):
        self._sampler_iter = iter(self._index_sampler)
        self.first = next(self._sampler_iter)
"""


class Paddle(Case):
    def module(self, wrapped):
        name = "paddle.io.dataloader.dataloader_iter"
        module = types.ModuleType(name)
        exec(compile(SOURCE.replace("\nclass ", f"\n__name__ = {name!r}\nclass "), name, "exec"),
             module.__dict__)
        if wrapped:
            from cubeshim import _hook
            _hook.wrap(module)
        return module

    def loader(self, wrapped, count=1000):
        module = self.module(wrapped)
        dataset = Files(count, draws=True)
        sampler = module.BatchSampler(module.RandomSampler(dataset), 8)
        return dataset, module._DataLoaderIterSingleProcess(dataset, sampler)

    def test_its_order_is_announced(self):
        server = self.serve()
        dataset, loader = self.loader(True)
        for epoch in range(2):
            heard = server.wait_for_order(epoch=epoch)[-1].paths(epoch)
            got = [item[0] for batch in loader for item in batch]
            self.assertEqual(heard, dataset.paths(got))
            loader._reset()

    def test_the_loop_is_the_same(self):
        def trace(wrapped):
            seed()
            _, loader = self.loader(wrapped)
            seen = [(batch, generators()) for batch in loader]
            loader._reset()
            return seen + [(batch, generators()) for batch in loader]

        self.assertTrue(trace(True) == trace(False))


if __name__ == "__main__":
    unittest.main()
