"""Compares cubeshim.ray.DataLoader with torch's loader: the same batches in the same order, the
same generators, and the same errors."""
import re
import subprocess
import sys

from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray_support import (Case, DataLoader, Dataset, Items, Stream, cubeshim, flat, get_worker_info,
                         numpy, os, random, ray, torch, unittest, without)
from cubeshim.ray._crew import Crew, Member  # after ray_support, which sets its path


def collate(items):
    return [item["index"] for item in items], get_worker_info().num_workers


def begin_worker(number):
    get_worker_info().dataset.count += 1000 * (number + 1)
    random.seed(number)


class Counts(Dataset):
    def __init__(self):
        self.count = 0

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.count += 1
        return self.count, random.random()


class Several(Items):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Cut(Items):
    def __getitems__(self, indices):
        return [self[index] for index in indices][:1]


class Kinds(Dataset):
    """All kinds of values that workers return."""
    values = [
        torch.zeros(0, 3),
        torch.tensor(True),
        torch.arange(5000) % 2 == 0,
        torch.ones(3, dtype=torch.bfloat16).float(),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.complex(torch.ones(3), torch.ones(3)).conj().resolve_conj(),
        numpy.zeros((0,)),
        numpy.arange(5000)[::2],
        numpy.float32(3), b"bytes" * 2000, None, {"a": (1, [2.5])},
        torch.ones(2, 5000)[:, 1]
    ]

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


def errors(loader):
    """Returns each batch, or the error in its place. A loop may continue after an error."""
    iterator, out = iter(loader), []
    while True:
        try:
            out.append(next(iterator))
        except StopIteration:
            return out
        except Exception as error:
            out.append(
                (type(error).__name__, str(error).splitlines()[0].replace(str(os.getpid()), "")))


class Common:
    """Tests for whole and for split batches."""
    def test_samplers_and_the_generators_behind_them(self):
        def seeded():
            return torch.Generator().manual_seed(11)

        rows = [
            dict(shuffle=True),
            dict(shuffle=True, generator=seeded, drop_last=True),
            dict(batch_size=None, shuffle=True),
            dict(sampler=lambda: SubsetRandomSampler(range(3, 33), generator=torch.Generator().
                                                     manual_seed(2))),
            dict(sampler=lambda: WeightedRandomSampler([1.0] * 50, 30)),
            dict(prefetch_factor=1),
            dict(
                batch_size=1, batch_sampler=lambda: BatchSampler(
                    RandomSampler(range(50), generator=seeded()), 9, False)),
            dict(batch_sampler=lambda: [[1, 2, 3], [4], [5, 5, 49]], batch_size=1,
                 collate_fn=collate),
            dict(collate_fn=collate),
            dict(batch_size=100),
            dict(persistent_workers=True, shuffle=True)
        ]
        for row in rows:
            with self.subTest(list(row)):
                self.same(lambda kind, row=row: kind(
                    Items(), **{
                        "num_workers": 3, "batch_size": 8, **{
                            name: value() if callable(value) and name != "collate_fn" else value
                            for name, value in row.items(
                            )
                        }
                    }))

    def test_a_sampler_that_draws_when_a_loop_begins(self):
        class Eager:
            def __len__(self):
                return 20

            def __iter__(self):
                return iter(torch.randperm(20).tolist())

        self.same(lambda kind: kind(Items(), batch_size=None, sampler=Eager(), num_workers=3))

    def test_errors(self):
        fails = {
            7: ValueError("seven"), 8: KeyError("eight"), 21: OSError(2, "no file", "/data/x"),
            30: StopIteration("end")
        }
        for row in (dict(batch_size=4), dict(batch_size=4, collate_fn=lambda items: 1 / 0)):

            def make(kind, row=row):
                return kind(Items(36, fails=fails), num_workers=3, **row)

            expected, found = self.torchs(make, errors, 1), self.ours(make, errors, 1)
            self.assertEqual(self.told(found), self.told(expected))
            self.assertIn("in DataLoader worker process", str(found))

    def told(self, found):
        return re.sub(r"worker process \d", "worker process",
                      str(found)) if self.split is not False else found

    def test_an_error_of_the_first_item_in_order(self):
        """The error is the same, whichever node finishes first."""
        fails = {number: ValueError(f"item {number}") for number in range(20)}
        for order in (list(range(20)), list(range(19, -1, -1))):
            with self.assertRaisesRegex(
                    ValueError,
                    rf"(?s)Caught ValueError in DataLoader worker process \d.*item {order[0]}\b"):
                next(
                    iter(
                        self.loader(Items(20, fails=fails), batch_size=20, sampler=order,
                                    num_workers=3)))

    def test_an_error_of_worker_init_fn(self):
        def failing(number):
            raise LookupError("not here")

        with self.assertRaisesRegex(
                LookupError, r"(?s)^Caught LookupError in DataLoader worker process \d.*not here"):
            list(self.loader(Items(), num_workers=3, worker_init_fn=failing))

    def test_timeout(self):
        class Slow(Items):
            def __getitem__(self, index):
                import time
                time.sleep(0 if index else 3)
                return index

        with self.assertRaisesRegex(RuntimeError, "^DataLoader timed out after 1 seconds$"):
            list(self.loader(Slow(5), num_workers=3, timeout=1))
        self.assertEqual(len(list(self.loader(Items(5), num_workers=3, timeout=100))), 5)

    def test_leaving_a_loop_and_two_concurrent_loops(self):
        def loop(loader):
            out = [next(iter(loader)) for _ in range(2)]
            return out + list(zip(loader, loader))

        self.same(lambda kind: kind(Items(20), batch_size=4, shuffle=True, num_workers=3), loop)

    def test_program_may_write_to_its_batches(self):
        batch = next(iter(self.loader(Items(), batch_size=4, num_workers=3, collate_fn=list)))
        for item in batch:
            item["small"] += 1
            item["large"].fill_(3)
            item["array"][:] = 4
        self.assertEqual(batch[1]["small"].tolist(), [2, 3])

    def test_kinds_of_items(self):
        self.same(lambda kind: kind(Kinds(), batch_size=5, num_workers=3, collate_fn=list))

    def test_whole_batches_asked_of_the_dataset(self):
        self.same(lambda kind: kind(Several(), batch_size=7, num_workers=3))


class Whole(Common, Case):
    """Batches are not split, as on one node. Even the workers' draws equal torch's."""
    split = False

    def test_draws_of_the_workers(self):
        for persistent in (False, True):
            self.same(lambda kind: kind(Items(draws=True), batch_size=4, shuffle=True, num_workers=
                                        3, persistent_workers=persistent))

    def test_copies_of_the_dataset_and_worker_init_fn(self):
        for persistent in (False, True):
            self.same(lambda kind: kind(Counts(), batch_size=2, num_workers=3, worker_init_fn=
                                        begin_worker, persistent_workers=persistent))

    def test_a_change_of_the_dataset_between_epochs(self):
        def loop(loader):
            loader.dataset.count = loader.dataset.count * 10 + 1
            return list(loader)

        self.same(lambda kind: kind(Counts(), batch_size=2, num_workers=3), loop)

    def test_iterable(self):
        for row in (dict(batch_size=4), dict(batch_size=4, drop_last=True), dict(batch_size=None),
                    dict(batch_size=3, persistent_workers=True)):
            with self.subTest(row):
                self.same(lambda kind, row=row: kind(Stream(), num_workers=3, **row))


class Split(Common, Case):
    """Batches are split by node, which is the default on several nodes."""
    def test_draws_depend_on_the_place_in_the_epoch_alone(self):
        def drawn(workers, **more):
            torch.manual_seed(1)
            loader = self.loader(Items(draws=True), batch_size=10, shuffle=True,
                                 num_workers=workers, **more)
            return [list(loader) for _ in range(2)]

        for more in ({}, {"persistent_workers": True}):
            first, second = drawn(3, **more)
            self.assertTrue(flat([first, second]) == flat(drawn(3, **more)))
            values = [
                value for batch in first + second
                for value in batch["drawn"][0].tolist() + batch["drawn"][1].tolist()
            ]
            self.assertEqual(len(set(values)), 200)
        self.same(lambda kind: kind(Items(draws=True), batch_size=10, shuffle=True, num_workers=3),
                  lambda loader: without("drawn", loader))

    def test_each_index_has_a_home(self):
        class Where(Items):
            def __getitem__(self, index):
                return index, ray.get_runtime_context().get_node_id()

        loader = self.loader(Where(200), batch_size=20, shuffle=True, num_workers=3,
                             collate_fn=list)
        first, second = (dict(item for batch in loader for item in batch) for _ in range(2))
        self.assertEqual(first, second)
        counts = [
            list(first.values()).count(node) for node in {node["NodeID"] for node in ray.nodes()}
        ]
        self.assertEqual(sum(counts), 200)
        self.assertGreater(min(counts), 60)

    def test_no_node_stays_without_a_worker(self):
        """Each node gets a worker even if Ray has put all workers on one node."""
        first = ray.get_runtime_context().get_node_id()
        there = {"scheduling_strategy": NodeAffinitySchedulingStrategy(first, soft=False)}
        crew = Crew(2, {})
        crew.members[:] = [Member(number, first, there, True) for number in range(2)]
        told = []
        crew.begin(told.append)
        crew.ready()
        self.assertEqual(crew.nodes(), {first})
        crew.spread()
        self.assertEqual(len(crew.nodes()), 2)
        self.assertEqual(told[-1:], [member for member in crew.members if member.node != first])

    def test_too_few_items_for_a_part(self):
        with self.assertRaisesRegex(RuntimeError,
                                    r"__getitems__ gave 1 items for \d+ indices.*split=False"):
            list(self.loader(Cut(), batch_size=30, num_workers=3))


class Not(Case):
    """Cases in which the loader is torch's own."""
    def test_loader_is_that_of_torch(self):
        for more in (dict(distribute=False, num_workers=2), dict(num_workers=0)):
            loader = cubeshim.ray.DataLoader(Items(20), batch_size=3, **more)
            self.assertFalse(loader.is_distributed())
            self.assertTrue(
                flat(self.aside.run(lambda loader=loader: [type(iter(loader)).__module__, *loader]))
                == flat(
                    self.aside.run(
                        lambda:
                        ["torch.utils.data.dataloader", *DataLoader(Items(20), batch_size=3)])))

    def test_a_program_that_has_not_begun_ray(self):
        code = (
            "import sys\nfrom cubeshim.ray import DataLoader\n"
            "loader = DataLoader([1, 2, 3], num_workers=1)\n"
            "print([batch.tolist() for batch in loader], loader.is_distributed())")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env=os.environ)
        self.assertEqual(done.stdout, "[[1], [2], [3]] False\n", done.stderr)

    def test_torchs_refusals(self):
        for more in (dict(num_workers=-1), dict(shuffle=True, sampler=[1]),
                     dict(persistent_workers=True), dict(timeout=-1)):
            with self.assertRaises(ValueError) as torchs:
                DataLoader(Items(), **more)
            with self.assertRaises(ValueError) as ours:
                cubeshim.ray.DataLoader(Items(), **more)
            self.assertEqual(str(ours.exception), str(torchs.exception))


if __name__ == "__main__":
    unittest.main()
