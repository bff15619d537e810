"""Fetches whole batches. Each batch is fetched by the worker that torch would choose, with that
worker's random numbers. This module is used on a single node and for IterableDataset.

The successor of a lost worker begins with the state of the lost worker's generators after the last
delivered batch. For an IterableDataset, the successor reads its copy from the start and drops the
items that were delivered.
"""
import itertools

from torch.utils.data import _DatasetKind

from cubeshim.ray._retries import Ended, get


class Streams:
    def __init__(self, crew, work, iterator):
        self.crew, self.work, self.base = crew, work, iterator._base_seed
        self.is_iterable = iterator._dataset_kind == _DatasetKind.Iterable
        # Maps the number of a batch to [number of its member, indices, refs] until the batch is
        # delivered.
        self.batches = {}
        # Each member's generator states after its last delivered batch, or after the last epoch.
        self.states = [None] * len(crew.members)
        self.latest = list(self.states)
        self.delivered = [0] * len(crew.members)
        crew.begin(lambda member: member.actor.begin.remote(work, member.number, self.base))

    def begin_epoch(self, is_first):
        self.batches.clear()
        if not is_first:
            for member in self.crew.members:
                member.actor.resume.remote()
        self.states = list(self.latest)
        self.delivered = [0] * len(self.crew.members)
        self.is_over = [False] * len(self.crew.members)
        self.turn = itertools.cycle(range(len(self.crew.members)))

    def submit(self, batch, indices):
        """Returns False if all workers have reached the end of their copies."""
        if all(self.is_over):
            return False
        number = next(turn for turn in self.turn if not self.is_over[turn])
        self.batches[batch] = [number, indices, self.send(number, indices)]
        return True

    def send(self, number, indices):
        return self.crew.members[number].actor.fetch.options(num_returns=2).remote(indices)

    def is_void(self, batch):
        """Returns True, and forgets the batch, if its worker has reached the end of its copy."""
        if self.is_over[self.batches[batch][0]]:
            del self.batches[batch]
            return True
        return False

    def take(self, batch, timeout):
        number, _, _ = self.batches[batch]
        answer, state = get(lambda: self.batches[batch][2], lambda error: self.again(number), batch,
                            timeout)
        del self.batches[batch]
        if state is not None:
            self.latest[number] = state
            if not self.is_iterable:
                self.states[number] = state
        if answer[0] == "ended":
            self.is_over[number] = True
            return Ended
        self.delivered[number] += 1
        return answer

    def again(self, number):
        """Makes a new worker do the pending work of the lost worker, in the same order."""
        skipped = self.delivered[number] if self.is_iterable else 0
        before, self.crew.began = self.crew.began, lambda member: member.actor.begin.remote(
            self.work, number, self.base, self.states[number], skipped)
        self.crew.replace(self.crew.members[number], elsewhere=True)
        self.crew.began = before
        for row in self.batches.values():
            if row[0] == number:
                row[2] = self.send(number, row[1])

    def refs(self):
        return [ref for row in self.batches.values() for ref in row[2]]
