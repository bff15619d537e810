"""With the wrapped loader, a loop receives the same batches in the same order, and every random
generator has the same state as with the plain loader."""
import itertools
import unittest
import warnings

from support import *  # noqa: F403
from cubeshim._ahead import Ahead
from cubeshim._generators import State
from torch.utils.data import (BatchSampler, DistributedSampler, IterableDataset, RandomSampler,
                              Sampler, SequentialSampler, SubsetRandomSampler,
                              WeightedRandomSampler)


def of(generator):
    return None if generator is None else repr(generator.get_state().numpy().tobytes())


class Shuffling(Sampler):
    """First draws its whole order from a global generator, and then yields it."""
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        order = list(range(self.count))
        random.shuffle(order)
        yield from order

    def __len__(self):
        return self.count


class Drawing(Shuffling):
    """Draws a number for every index, from the generator with this name."""
    generator = "random"

    def __iter__(self):
        for _ in range(self.count):
            if self.generator == "random":
                yield random.randrange(self.count)
            elif self.generator == "numpy":
                yield int(numpy.random.randint(self.count))
            else:
                yield int(torch.randint(self.count, (1,)))


class DrawingLate(Shuffling):
    """At first draws nothing from generators, and later draws for every chunk. Watching the first
    draws does not reveal this."""
    def __iter__(self):
        for start in range(0, self.count, 64):
            chunk = list(range(start, min(start + 64, self.count)))
            if start:
                random.shuffle(chunk)
            yield from chunk
        random.random()


class OwnGenerator(Shuffling):
    def __init__(self, count):
        super().__init__(count)
        self.numbers = numpy.random.default_rng(3)

    def __iter__(self):
        for _ in range(self.count):
            yield int(self.numbers.integers(self.count))


class Counting(Shuffling):
    """Counts its draws for a checkpoint, like a resumable sampler."""
    def __init__(self, count):
        super().__init__(count)
        self.consumed = 0

    def __iter__(self):
        for index in range(self.count):
            self.consumed += 1
            yield index


class Steered(Shuffling):
    """The loop decides which indices come next."""
    def __init__(self, count):
        super().__init__(count)
        self.offset = 0

    def __iter__(self):
        for index in range(self.count):
            yield (index + self.offset) % self.count


class SeedableRandomSampler(RandomSampler):
    """Like accelerate's sampler: seeds the given generator, and counts its epochs."""
    __module__ = "accelerate.data_loader"
    epoch = 0

    def __iter__(self):
        self.generator.manual_seed(42 + self.epoch)
        yield from super().__iter__()
        self.epoch += 1


class BatchSamplerShard(BatchSampler):
    """Like accelerate's sampler: every second batch belongs to this process."""
    __module__ = "accelerate.data_loader"
    split_batches, num_processes = False, 2

    def __init__(self, batch_sampler):
        self.batch_sampler = batch_sampler

    def __iter__(self):
        for number, batch in enumerate(self.batch_sampler):
            if number % 2:
                yield batch

    def __len__(self):
        return len(self.batch_sampler) // 2


class Endless(Sampler):
    def __init__(self):
        self.drawn = 0

    def __iter__(self):
        for self.drawn in itertools.count(1):
            yield self.drawn % 100


class Failing(Shuffling):
    def __iter__(self):
        yield from range(self.count // 2)
        raise RuntimeError("the sampler is at odds")


class Lists(Files):
    def __getitem__(self, index):
        return [super(Lists, self).__getitem__(i) for i in index]


class Same(Case):
    def trace(self, make, epochs=2, in_loop=None, stop=None):
        """Returns everything that a program can see of a loader's loop: the items, and the state of
        all generators after each item."""
        seed()
        loader, looked_at = make()
        seen = []
        for epoch in range(epochs):
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(epoch)
            iterator = iter(loader)
            seen.append(("begun", generators(), [look() for look in looked_at]))
            for step in itertools.count():
                try:
                    item = next(iterator)
                except StopIteration:
                    seen.append(("stop", generators()))
                    break
                except RuntimeError as error:
                    seen.append((str(error), generators()))
                    break
                seen.append((item, generators(), [look() for look in looked_at]))
                if in_loop is not None:
                    in_loop(loader, step)
                if stop is not None and step == stop:
                    break
            del iterator
            seen.append(("left", generators(), [look() for look in looked_at]))
        return seen

    def check(self, make, ahead=None, **more):
        """`ahead`: True if draws ahead are required, False if they are forbidden."""
        with without():
            expected = self.trace(make, **more)
        held = []
        real = Ahead.draw_ahead
        Ahead.draw_ahead = lambda taker: (real(taker), held.append(len(taker.held)))
        self.addCleanup(setattr, Ahead, "draw_ahead", real)
        seen = self.trace(make, **more)
        Ahead.draw_ahead = real
        for step, (is_so, should_be) in enumerate(zip(seen, expected)):
            self.assertTrue(is_so == should_be,
                            f"step {step}: {is_so[0]}, without the wrap {should_be[0]}")
        self.assertEqual(len(seen), len(expected))
        self.assertTrue(held, "nothing was wrapped")
        if ahead is not None:
            self.assertEqual(max(held) > 0, ahead)

    def loader(self, count=200, draws=True, looked_at=(), **more):
        more.setdefault("batch_size", 4)
        if "batch_sampler" in more:
            more.pop("batch_size")
        return DataLoader(Files(count, draws), collate_fn=as_is, **more), list(looked_at)

    def test_torchs_samplers(self):
        for name, make in {
                "sequential": lambda: self.loader(), "shuffled": lambda: self.loader(shuffle=True),
                "uneven": lambda: self.loader(count=203, shuffle=True),
                "drop_last": lambda: self.loader(count=203, shuffle=True, drop_last=True),
                "subset": lambda: self.loader(sampler=SubsetRandomSampler(range(0, 150, 3))),
                "weighted": lambda: self.loader(sampler=WeightedRandomSampler([1.0] * 200, 77)),
                "replacement": lambda: self.loader(sampler=RandomSampler(
                    range(200), replacement=True, num_samples=333)),
                "several permutations": lambda: self.loader(sampler=RandomSampler(
                    range(200), num_samples=500)), "distributed": lambda: self.loader(
                        sampler=DistributedSampler(range(200), 3, 1, shuffle=True)),
                "list": lambda: self.loader(sampler=[5, 1, 4, 1, 3]),
                "list of batches": lambda: self.loader(batch_sampler=[[5, 1], [4, 1, 3], [2]]),
                "batch sampler": lambda: self.loader(batch_sampler=BatchSampler(
                    RandomSampler(range(200)), 7, True)),
                "no batches": lambda: self.loader(batch_size=None, shuffle=True),
        }.items():
            with self.subTest(name):
                self.check(make, ahead=True)

    def test_a_generator_that_the_program_sees(self):
        for more in (dict(), dict(drop_last=True), dict(batch_size=7), dict(batch_size=200),
                     dict(batch_size=300), dict(batch_size=None)):
            for kind in ("shuffle", "permutations", "fewer", "replacement"):

                def make():
                    generator = torch.Generator()
                    generator.manual_seed(11)
                    sampler = {
                        "shuffle": lambda: None, "permutations": lambda: RandomSampler(
                            range(200), num_samples=530, generator=generator), "fewer": lambda:
                        RandomSampler(range(200), num_samples=90, generator=generator),
                        "replacement": lambda: RandomSampler(range(200), True, 330, generator)
                    }[kind]()
                    order = dict(shuffle=True) if sampler is None else dict(sampler=sampler)
                    return self.loader(generator=generator, looked_at=[lambda: of(generator)],
                                       **order, **more)

                with self.subTest(kind=kind, **more):
                    if kind != "shuffle" and "drop_last" in more:
                        continue
                    self.check(make)

    def test_accelerates_samplers(self):
        for count in (200, 203, 7):
            for is_shard in (False, True):

                def make():
                    generator = torch.Generator()
                    sampler = SeedableRandomSampler(range(count), generator=generator)
                    batches = BatchSampler(sampler, 4, False)
                    return self.loader(
                        count=count, looked_at=[lambda: of(generator), lambda: sampler.epoch],
                        batch_sampler=BatchSamplerShard(batches) if is_shard else batches)

                with self.subTest(count=count, is_shard=is_shard):
                    self.check(make, ahead=count > 7)

    def test_workers(self):
        for more in (dict(), dict(persistent_workers=True),
                     dict(multiprocessing_context="forkserver")):
            with self.subTest(**more):
                self.check(lambda: self.loader(count=64, shuffle=True, num_workers=2, **more),
                           epochs=1 if "multiprocessing_context" in more else 2, ahead=True)

    def test_unknown_samplers(self):
        for kind, ahead in ((Shuffling, True), (Drawing, False), (DrawingLate, True),
                            (OwnGenerator, False), (Counting, False), (Failing, True)):
            for generator in ("random", "numpy", "torch") if kind is Drawing else ("",):
                for draws in (False, True):

                    def make():
                        sampler = kind(300)
                        sampler.generator = generator
                        looks = [
                            lambda: getattr(sampler, "consumed", None), lambda: repr(
                                vars(sampler).get("numbers") and sampler.numbers.bit_generator.state
                            )
                        ]
                        return self.loader(count=300, draws=draws, sampler=sampler, looked_at=looks)

                    with self.subTest(kind=kind.__name__, generator=generator, draws=draws):
                        # If the program itself draws, too, a generator cannot be put back later.
                        self.check(make, ahead=ahead and not draws)

    def test_attributes_of_a_sampler_whose_code_fails(self):
        class Attribute:
            def __getattr__(self, name):
                raise ValueError(name)

        class Kind:
            __class__ = property(lambda self: int("none"))

        class List(list):
            def __len__(self):
                raise ValueError("len")

        for value, ahead in ((Attribute(), True), (Kind(), False), (List(), False)):

            def make():
                sampler = Shuffling(300)
                sampler.value = value
                return self.loader(count=300, draws=False, sampler=sampler)

            with self.subTest(type(value).__name__):
                self.check(make, ahead=ahead)

    def test_any_kind_of_numpys_generator(self):
        if not hasattr(numpy.random, "set_bit_generator"):
            self.skipTest("an old numpy")
        self.addCleanup(numpy.random.set_bit_generator, numpy.random.get_bit_generator())
        numpy.random.set_bit_generator(numpy.random.PCG64(1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            before = State()
            self.assertTrue(State() == before)
            drawn = numpy.random.random()
            self.assertFalse(State() == before)
            before.restore()
            self.assertTrue(State() == before)
        self.assertEqual(numpy.random.random(), drawn)

    def test_a_sampler_that_the_loop_steers(self):
        def steer(loader, step):
            loader.sampler.offset += 1

        self.check(lambda: self.loader(count=300, draws=False, sampler=Steered(300)), in_loop=steer,
                   ahead=False)

    def test_drawing_for_single_indices(self):
        """A batch sampler for a loader that makes no batches."""
        def make():
            sampler = BatchSampler(RandomSampler(range(99)), 3, False)
            return DataLoader(Lists(99), batch_size=None, sampler=sampler, collate_fn=as_is), []

        self.check(make, ahead=True)

    def test_leaving_the_loop_early(self):
        self.check(lambda: self.loader(count=100_000, draws=False, shuffle=True), epochs=3, stop=5,
                   ahead=True)

    def test_an_endless_sampler_does_not_run_away(self):
        sampler = Endless()
        loader, _ = self.loader(draws=False, sampler=sampler)
        self.serve()
        iterator = iter(loader)
        for _ in range(100):
            next(iterator)
        drawn = sampler.drawn
        self.assertLess(drawn, 400 + 16_384 + 1024)
        del iterator
        self.assertEqual(sampler.drawn, drawn)

    def test_unknown_data_sets_are_left_alone(self):
        class Stream(IterableDataset):
            samples = [("/data/a", 0)]

            def __iter__(self):
                return iter(range(10))

        class Other(torch.utils.data.Dataset):
            touched = 0

            def __len__(self):
                return 10

            def __getitem__(self, index):
                return index

            @property
            def samples(self):
                type(self).touched += 1
                return ["/data/a"] * 10

        server = self.serve()
        self.assertEqual(list(DataLoader(Stream(), batch_size=None)), list(range(10)))
        self.assertEqual(list(DataLoader(Other(), batch_size=None)), list(range(10)))
        self.assertEqual(list(DataLoader(list(range(10)), batch_size=None)), list(range(10)))
        self.assertEqual(Other.touched, 0)
        # Now a loader with a known sampler is read alone.
        iterator = iter(DataLoader(Files(10), batch_size=None))
        next(iterator)
        server.wait_for_order()
        self.assertEqual(len(server.clients), 1)


if __name__ == "__main__":
    unittest.main()
