"""The order of one epoch on its way to the server. The program's loop fills it, and the thread of
the channel empties it."""
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
        self.first = self.end = None  # sequence numbers of its paths; None while unknown


def encode(path):
    """Returns the path as bytes, or None if it cannot be the path of a file."""
    try:
        name = os.fsencode(path)
    except TypeError:
        return None
    if not name or b"\0" in name or b"://" in name or len(name) > 4096:
        return None
    return name


class Order:
    """The loop calls add(), passed(), finish() and abandon(), each of which takes a few
    microseconds. The thread calls the other methods. Both sides rely on the atomicity of deque and
    of attributes."""
    def __init__(self, epoch, resolve, channel):
        self.epoch = epoch
        # A function from an index to the paths that it needs. Known maps several indices at a time.
        self.resolve = resolve
        self.base = os.fsencode(os.getcwd())
        self.channel = channel
        self.is_finished = self.is_over = False
        self.waiting = collections.deque()
        self.sent = collections.deque()
        self.added = self.passed_number = 0
        self.sequence = self.taken = 0

    # The following methods are the loop's side.

    def add(self, batches):
        """Adds the next batches of indices."""
        if self.is_over or self.is_finished:
            return
        for indices in batches:
            self.waiting.append(Batch(indices, self.added))
            self.added += 1
        self.channel.wake()

    def passed(self, number):
        """Notes that all batches below this number have been read."""
        self.passed_number = number
        # The thread skips such batches. They are removed here too, because the thread can be
        # delayed for a long time, in which the memory must not grow.
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

    # The following methods are the thread's side.

    def is_all_sent(self):
        # The order of these two reads matters, because the loop first adds and then finishes.
        return self.is_finished and not self.waiting

    def is_all_taken(self):
        return self.is_all_sent() and not self.sent

    def take(self):
        """Returns the next batch and its paths, or None if there is no batch now."""
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
        # The sequence numbers must stay as they were assigned, even if the list has changed since
        # then.
        names = names[:batch.end - batch.first]
        skipped = min(max(self.taken - batch.first, 0), len(names))
        self.sent.append(batch)
        return batch.first + skipped, names[skipped:]

    def names_of(self, indices):
        names = []
        # Learned paths are stored in files, which are opened one time for each batch.
        for index in [indices] if isinstance(self.resolve, Known) else indices:
            try:
                names.extend(self.resolve(index))
            except Exception:
                continue  # the data set itself will raise the error later
        return names

    def messages(self):
        """Returns the messages for the next batches, about as many batches as fit into one message.
        Empty if there is no batch now."""
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
        """Notes that the server has handed on every path below this sequence number."""
        self.taken = max(self.taken, sequence)
        self.forget()

    def forget(self):
        while self.sent and (self.sent[0].end <= self.taken
                             or self.sent[0].number < self.passed_number):
            self.sent.popleft()

    def drop(self):
        """Ends the order. No more of its paths are announced, and its memory is freed."""
        self.is_over = True
        self.waiting, self.sent = collections.deque(), collections.deque()

    def rewind(self):
        """Called when the server is gone. The paths that it has not handed on will be sent to the
        next server."""
        self.forget()
        while self.sent:
            self.waiting.appendleft(self.sent.pop())
