"""An actor or a raylet of cubeshim.ray.DataLoader is killed. Each batch must be delivered exactly
one time, in order, and the epoch must be complete."""
from ray_support import (FIRST, SECOND, Case, Gate, Items, OnNode, Stream, node_address, os, ray,
                         unittest, until)


class Lost(Case):
    def killed(self, make, which, epochs=2):
        """Compares torch's loop with our loop, in which an actor or a raylet is killed in the first
        epoch."""
        gate = Gate(self)

        def loop(loader):
            if (gate.path / "open").exists():
                return list(loader)
            iterator = iter(loader)
            first = next(iterator)
            gate.kill(which)
            return [first, *iterator]

        expected = self.torchs(lambda kind: make(kind, None), epochs=epochs)
        found = self.ours(lambda kind: make(kind, gate.path), loop, epochs)
        self.assertTrue(found == expected,
                        f"not as without a loss:\n{str(found)[:600]}\nbut\n{str(expected)[:600]}")


class Whole(Lost):
    split = False

    def test_an_actor_and_its_random_numbers(self):
        """The actor dies in its second batch, after its generators have moved."""
        for persistent in (False, True):
            self.killed(
                lambda kind, gate: kind(Items(60, draws=True, gate=gate, at=gate and 31), batch_size
                                        =6, num_workers=3, persistent_workers=persistent), 0)

    def test_an_actor_of_an_iterable(self):
        for persistent in (False, True):
            self.killed(
                lambda kind, gate: kind(Stream(41, gate), batch_size=4, num_workers=3,
                                        persistent_workers=persistent), 0)


class Split(Lost):
    def test_an_actor(self):
        """An actor dies on each node in turn."""
        for address in (FIRST, SECOND):
            self.killed(
                lambda kind, gate, address=address: kind(OnNode(address, 60, gate=gate), batch_size=
                                                         6, num_workers=4), 0)
        self.killed(
            lambda kind, gate: kind(Items(60, gate=gate, at=gate and 3), batch_size=None,
                                    num_workers=4), 0)

    def test_the_one_that_joins(self):
        class Stopping:
            def __init__(self, gate):
                self.gate = gate

            def __call__(self, items):
                from ray_support import stop_at
                if self.gate and items[0]["index"] == 12:
                    stop_at(self.gate)
                return items

        self.killed(
            lambda kind, gate: kind(Items(60), batch_size=6, num_workers=4, collate_fn=Stopping(
                gate)), 0)

    def test_both_workers_of_a_node_die_together(self):
        deaths = Gate(self).path

        class Dying(Items):
            def __getitem__(self, index):
                if node_address() == SECOND:
                    for number in range(2):
                        try:
                            os.close(os.open(deaths / str(number), os.O_CREAT | os.O_EXCL))
                        except FileExistsError:
                            continue
                        os._exit(1)
                return super().__getitem__(index)

        found = [
            batch["index"].tolist() for batch in self.loader(Dying(60), batch_size=6, num_workers=4)
        ]
        self.assertEqual(found, [list(range(begin, begin + 6)) for begin in range(0, 60, 6)])
        self.assertEqual(len(list(deaths.iterdir())), 2)

    def test_an_item_that_kills_its_process(self):
        # No other test has two workers, because a lost worker is replaced only when it is asked for
        # work.
        loader = self.loader(Items(20, dies=[13]), batch_size=4, num_workers=2)
        iterator = iter(loader)
        self.assertEqual([next(iterator)["index"].tolist() for _ in range(3)],
                         [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
        with self.assertRaisesRegex(RuntimeError,
                                    "^DataLoader worker was lost 4 times over batch 3"):
            next(iterator)


class WithoutRaylet(Lost):
    """This class runs last, because of its name: afterwards, the cluster has one node fewer."""
    def test_a_raylet(self):
        self.killed(
            lambda kind, gate: kind(OnNode(SECOND, 90, gate=gate), batch_size=6, num_workers=4), 1)
        until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, "Ray misses the node")
        self.same(lambda kind: kind(Items(30), batch_size=6, num_workers=3))


if __name__ == "__main__":
    unittest.main()
