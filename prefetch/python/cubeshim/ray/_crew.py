"""The actors of a loader. They are spread evenly over the nodes, and replaced when they are
lost."""
import itertools
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cubeshim.ray._homes import hash_of
from cubeshim.ray._worker import Worker

PAUSE = 2  # seconds between two attempts to start the same actor
PATIENCE = 300  # seconds within which some node must have started an actor


def alive_nodes():
    """Maps the ids of the nodes that accept work to the nodes' names. If addresses distinguish the
    nodes, a node keeps its name after a restart."""
    rows = [row for row in ray.nodes() if row["Alive"]]
    rows = [row for row in rows if row["Resources"].get("CPU")] or rows
    addresses = [row["NodeManagerAddress"] for row in rows]
    return {
        row["NodeID"]: row["NodeManagerAddress"]
        if addresses.count(row["NodeManagerAddress"]) == 1 else row["NodeID"]
        for row in sorted(rows, key=lambda row: (row["NodeManagerAddress"], row["NodeID"]))
    }


def session():
    """Returns an id that differs after each ray.init()."""
    return ray.get_runtime_context().get_worker_id()


class Member:
    def __init__(self, number, node, options, is_new):
        self.number, self.node = number, node
        self.load = 0  # indices whose items the member has not returned yet
        strategy = NodeAffinitySchedulingStrategy(node, soft=True)
        self.actor = ray.remote(Worker).options(
            **{"num_cpus": 0, "scheduling_strategy": strategy, **options}).remote()
        self.answer, self.since = self.actor.node.remote(), time.monotonic()
        # The first members have work from the start. A replacement might have been placed on a node
        # that is gone, so it must answer first.
        self.is_starting = not is_new

    def look(self, timeout=0):
        """Returns False if the member was lost before its first answer."""
        if self.answer is None or not ray.wait([self.answer], timeout=timeout)[0]:
            return True
        try:
            self.node, self.answer, self.is_starting = ray.get(self.answer), None, False
            return True
        except ray.exceptions.RayActorError:
            return False

    def end(self):
        try:
            ray.kill(self.actor)
        except Exception:
            pass  # the actor has ended


class Crew:
    def __init__(self, count, options):
        self.options, self.session = options, session()
        self.names = alive_nodes()
        places = list(itertools.islice(itertools.cycle(self.names), count))
        self.members = [Member(number, node, options, True) for number, node in enumerate(places)]
        self.joiners = []
        self.began = None  # called for each new member before its first work

    def nodes(self):
        return {member.node for member in self.members}

    def begin(self, tell, joiners=0):
        """`tell(member)` starts a member's work. It is also called for members that are added
        later."""
        self.began = tell
        here = ray.get_runtime_context().get_node_id()
        while len(self.joiners) < joiners:
            self.joiners.append(Member(len(self.joiners), here, self.options, True))
        for member in self.members + self.joiners:
            member.load = 0
            tell(member)

    def ready(self):
        """Waits until each member has answered."""
        for member in self.members + self.joiners:
            member.look(None)

    def spread(self):
        """Waits for all actors and moves some of them if necessary: a new cluster can place actors
        on other nodes than requested, so that a node has none."""
        for _ in range(len(self.members) + 2):
            self.ready()
            by_node = {
                node: [member
                       for member in self.members
                       if member.node == node]
                for node in self.names
            }
            empty, crowded = min(by_node, key=lambda node: len(by_node[node])), max(
                by_node.values(), key=len)
            if by_node[empty] or len(crowded) < 2 or "scheduling_strategy" in self.options:
                return
            crowded[-1].end()
            found = self.members[self.members.index(crowded[-1])] = Member(
                crowded[-1].number, empty, self.options, True)
            self.began(found)

    def replace(self, member, elsewhere=False):
        """Replaces a lost member. The new member is on the same node or, if that node is gone, on
        the node with the fewest members."""
        member.end()
        self.names = alive_nodes()
        counts = {node: 0 for node in self.names}
        for other in self.members:
            if other is not member and other.node in counts:
                counts[other.node] += 1
        others = [node for node in counts if node != member.node] if elsewhere else []
        node = member.node if not others and member.node in counts else min(
            others or counts, key=counts.get)
        is_joiner = member in self.joiners
        found = Member(member.number, node, self.options, is_joiner or elsewhere)
        rank = self.joiners if is_joiner else self.members
        rank[rank.index(member)] = found
        self.began(found)
        return found

    def usable(self):
        """Returns the members that are not known to be lost. Waits while there is none."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for member in [member for member in self.members if member.is_starting]:
                if not member.look() and time.monotonic() > member.since + PAUSE:
                    self.replace(member)
            found = [member for member in self.members if not member.is_starting]
            if found:
                return found
            if time.monotonic() > deadline:
                raise RuntimeError("no node has started a worker of the DataLoader within %d s" %
                                   PATIENCE)
            # A failed member is left out, because its failure would count as an answer.
            asked = [
                member.answer
                for member in self.members
                if member.look() and member.answer is not None
            ]
            ray.wait(asked, timeout=1) if asked else time.sleep(PAUSE)

    def homes(self):
        """Maps the hash of each node with usable members to these members."""
        by_node = {}
        for member in self.usable():
            by_node.setdefault(member.node, []).append(member)
        return {
            hash_of(self.names.get(node, node).encode()): members
            for node, members in by_node.items()
        }
