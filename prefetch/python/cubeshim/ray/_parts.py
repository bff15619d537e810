"""Splits batches by the nodes whose caches have their files, and joins the parts on this node in
the sampler's order."""
import ray

from cubeshim.ray._homes import Homes
from cubeshim.ray._retries import LOST, MOST_TRIES, get

WORKERS_PER_JOINER = 8


class Part:
    def __init__(self, member, positions):
        self.member, self.positions, self.ref = member, positions, None


class Batch:
    def __init__(self, number, indices):
        self.number, self.indices = number, indices
        self.parts, self.joiner, self.ref = [], None, None


class Parts:
    def __init__(self, crew, work, iterator, resolve):
        self.crew, self.homes = crew, Homes(resolve)
        self.makes_batches = iterator._auto_collation
        self.epoch, self.batches = -1, {}
        base = iterator._base_seed
        crew.begin(lambda member: member.actor.begin.remote(work, member.number, base),
                   1 + len(crew.members) // WORKERS_PER_JOINER if self.makes_batches else 0)
        crew.spread()

    def begin_epoch(self, is_first):
        self.epoch += 1
        self.batches.clear()

    def is_void(self, batch):
        return False

    def submit(self, number, indices):
        batch = self.batches[number] = Batch(number, indices)
        nodes = self.crew.homes()
        split = self.homes.split(indices, nodes) if self.makes_batches else [(self.homes.home(
            indices, nodes), None)]
        batch.parts = [Part(self.least(nodes[node]), positions) for node, positions in split]
        for part in batch.parts:
            self.send(batch, part)
        self.send_join(batch)
        return True

    @staticmethod
    def least(members):
        return min(members, key=lambda member: member.load)

    def send(self, batch, part):
        part.member.load += len(part.positions or [0])
        if len(batch.parts) == 1:
            batch.ref = part.ref = part.member.actor.whole.remote(self.epoch, batch.number,
                                                                  batch.indices)
        else:
            part.ref = part.member.actor.part.remote(self.epoch, batch.number,
                                                     [batch.indices[at] for at in part.positions],
                                                     part.positions)

    def send_join(self, batch):
        if len(batch.parts) > 1:
            batch.joiner = self.crew.joiners[batch.number % len(self.crew.joiners)]
            batch.ref = batch.joiner.actor.join.remote(
                self.epoch, batch.number, [(part.positions, [part.ref]) for part in batch.parts],
                len(batch.indices))

    def take(self, number, timeout):
        batch = self.batches[number]

        def refs():
            return [batch.ref]

        def again(error):
            self.lost(batch, error)

        answer, = get(refs, again, number, timeout)
        for _ in range(MOST_TRIES):
            if answer[0] != "lost":
                break
            for at, is_actor in answer[1]:
                self.part_lost(batch, batch.parts[at], is_actor)
            self.send_join(batch)
            answer, = get(refs, again, number, timeout)
        else:
            raise RuntimeError(LOST % (MOST_TRIES, number))
        del self.batches[number]
        for part in batch.parts:
            part.member.load -= len(part.positions or [0])
        return answer

    def lost(self, batch, error):
        """Called when the worker that computes an answer, or the node that stores the answer, is
        gone."""
        is_actor = isinstance(error, ray.exceptions.RayActorError)
        if len(batch.parts) == 1:
            self.part_lost(batch, batch.parts[0], is_actor)
            return
        if is_actor and batch.joiner in self.crew.joiners:
            gone = batch.joiner
            self.crew.replace(gone)
            for other in self.batches.values():
                if other.joiner is gone:
                    self.send_join(other)
        else:
            self.send_join(batch)

    def part_lost(self, batch, part, is_actor):
        """If the worker of a part is gone, moves all pending parts of this worker to other
        workers."""
        if is_actor and part.member in self.crew.members:
            gone = part.member
            self.crew.replace(gone)
            for other in self.batches.values():
                mine = [part for part in other.parts if part.member is gone]
                for one in mine:
                    self.move(other, one)
                if mine and other is not batch:
                    self.send_join(other)
        elif part.member not in self.crew.members:
            self.move(batch, part)
        else:
            self.send(batch, part)

    def move(self, batch, part):
        index = batch.indices[part.positions[0]] if part.positions else batch.indices
        nodes = self.crew.homes()
        part.member = self.least(nodes[self.homes.home(index, nodes)])
        self.send(batch, part)

    def refs(self):
        return [
            ref for batch in self.batches.values()
            for ref in [batch.ref, *(part.ref for part in batch.parts)]
        ]
