"""One epoch's order on its way to the server: filled by the program's loop, emptied by the thread
of its channel."""
import collections
import os

from cubeshim import _protocol
from cubeshim._learned import Known

MOST_WAITING = 4096


class Batch:
    __slots__ = ("indices", "number", "first", "end")

    def __init__(self, indices, number):
        self.indices = indices
        self.number = number
        self.first = self.end = None  # sequence numbers of its paths, once known


def encode(path):
    """Returns bytes, or None for a path that cannot be a file."""
    try:
        name = os.fsencode(path)
    except TypeError:
        return None
    if not name or b"\0" in name or b"://" in name or len(name) > 4096:
        return None
    return name


class Order:
    """add(), passed(), finish() and abandon() belong to the loop and cost it a few microseconds;
    the others belong to the thread. Both sides rely on deque and attributes being atomic."""
    def __init__(self, epoch, resolve, channel):
        self.epoch = epoch
        # maps an index to the paths that it needs; Known takes several indices
        self.resolve = resolve
        self.base = os.fsencode(os.getcwd())
        self.channel = channel
        self.is_finished = self.is_over = False
        self.waiting = collections.deque()
        self.sent = collections.deque()
        self.added = self.passed_number = 0
        self.sequence = self.taken = 0

    # The loop's side.

    def add(self, batches):
        """Adds the batches of indices that come next."""
        if self.is_over or self.is_finished:
            return
        for indices in batches:
            self.waiting.append(Batch(indices, self.added))
            self.added += 1
        self.channel.wake()

    def passed(self, number):
        """Notes that batches below this number have been read."""
        self.passed_number = number
        # The thread leaves such batches out, but it may be delayed for long, and memory must not
        # grow in that time.
        try:
            while len(self.waiting) > MOST_WAITING and self.waiting[0].number < number:
                self.waiting.popleft()
        except IndexError:
            pass

    def finish(self):
        self.is_finished = True
        self.channel.wake()

    def abandon(self):
        if not self.is_over:
            self.is_over = True
            self.channel.wake()

    # The thread's side.

    def is_all_sent(self):
        # The order of the two reads matters: the loop adds first and finishes afterwards.
        return self.is_finished and not self.waiting

    def is_all_taken(self):
        return self.is_all_sent() and not self.sent

    def take(self):
        """Returns the next batch with its paths; None if there is none now."""
        while True:
            try:
                batch = self.waiting.popleft()
            except IndexError:
                return None
            if batch.number >= self.passed_number:
                break
        names = self.names_of(batch.indices)
        names = [name for name in map(encode, names) if name is not None]
        if batch.first is None:
            batch.first = self.sequence
            batch.end = self.sequence = self.sequence + len(names)
        # Even if the list has changed since, the sequence numbers must stay as they were given.
        names = names[:batch.end - batch.first]
        skipped = min(max(self.taken - batch.first, 0), len(names))
        self.sent.append(batch)
        return batch.first + skipped, names[skipped:]

    def names_of(self, indices):
        names = []
        # Learned paths lie in files, which are opened once for each batch.
        for index in [indices] if isinstance(self.resolve, Known) else indices:
            try:
                names.extend(self.resolve(index))
            except Exception:
                continue  # the data set itself raises the error later
        return names

    def messages(self):
        """The messages for the next batches, about as many batches as fit into one message; empty
        if there is nothing now."""
        chunk, first, size = [], 0, _protocol.PATHS_HEAD
        made = []

        def cut():
            nonlocal chunk, size
            if chunk:
                made.append(_protocol.paths(self.epoch, first, chunk))
            chunk, size = [], _protocol.PATHS_HEAD

        while not made:
            taken = self.take()
            if taken is None:
                break
            at, names = taken
            if at != first + len(chunk):
                cut()
            for name in names:
                if size + len(name) + 1 > _protocol.LONGEST:
                    cut()
                if not chunk:
                    first = at
                chunk.append(name)
                size += len(name) + 1
                at += 1
        cut()
        return made

    def told(self, sequence):
        """Notes that the server has handed on every path below this number."""
        self.taken = max(self.taken, sequence)
        self.forget()

    def forget(self):
        while self.sent and (self.sent[0].end <= self.taken
                             or self.sent[0].number < self.passed_number):
            self.sent.popleft()

    def drop(self):
        """Ends the order: nothing more of it is announced, and its memory is freed."""
        self.is_over = True
        self.waiting, self.sent = collections.deque(), collections.deque()

    def rewind(self):
        """Called when the server is gone: paths that it has not handed on go to the next server."""
        self.forget()
        while self.sent:
            self.waiting.appendleft(self.sent.pop())
