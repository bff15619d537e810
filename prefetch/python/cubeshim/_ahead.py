"""Draws from a sampler before the loop needs the draw, if the program cannot notice this, and
announces the drawn indices.

Draws are made only while the loop itself asks for one. They are never made by another thread, and
never after the loop was left. A policy decides how much may be drawn. It is an object with `most`
(the number of indices that may be held), `allows(asked, held)` and `draw(iterator)`."""
import collections

from cubeshim._generators import State, attributes

MOST_AHEAD = 65536  # indices
MOST_AHEAD_UNKNOWN = 16384
AT_ONCE_FIRST = 4096  # indices drawn at one time; a thousand take some 50 us
AT_ONCE = 1024
WATCHED = 8  # draws of an unknown sampler


def size_of(drawn):
    return len(drawn) if isinstance(drawn, (list, tuple)) else 1


class Fixed:
    """The policy for samplers that fix their whole order at the first draw."""
    most = MOST_AHEAD

    def allows(self, asked, held):
        return True

    def draw(self, iterator):
        return next(iterator), None

    def natural(self, iterator):
        return next(iterator)

    def given(self, moved):
        """Called when the loop receives the draw. Changes the generators as draw() had changed
        them."""

    def ended(self):
        """Like given(), but for a draw() that moved the generators and then raised an exception."""


class Never(Fixed):
    def allows(self, asked, held):
        return False


class UpToAPermutation(Fixed):
    """Draws ahead only to the end of a permutation, because the program can see the sampler's
    generator at that point."""
    def __init__(self, batch, permutation, total):
        self.batch, self.permutation, self.total = batch, permutation, total

    def allows(self, asked, held):
        """`asked`: the number of draws that the loop has received; `held`: the number of draws
        ahead of the loop."""
        begun = -(-asked * self.batch // self.permutation) * self.permutation
        return (asked + held + 1) * self.batch <= min(begun, self.total)


class Watched(Fixed):
    """Watches some draws of an unknown sampler. Further draws are made ahead only if no generator
    moved and the sampler did not change, neither in the watched draws nor between them. If a later
    draw moves a generator, the generator can be put back until the draw is due."""
    most = MOST_AHEAD_UNKNOWN

    def __init__(self, sampler):
        self.sampler = sampler
        self.seen = 0
        self.is_calm = True
        self.last = None
        self.moved_at_end = None

    def look(self):
        return State(), self.look_at_sampler()

    def look_at_sampler(self):
        """Can run code of the program, such as __len__ or __class__ of an attribute. The loop must
        not notice if that code fails."""
        try:
            return attributes(self.sampler)
        except Exception:
            return object()  # differs from all others

    def natural(self, iterator):
        if not self.is_calm or self.seen >= WATCHED:
            return next(iterator)
        before = self.look()
        # A change since the previous draw comes from the program.
        if self.last is not None and self.last != before:
            self.is_calm = False
        drawn = next(iterator)
        self.last = self.look()
        self.seen += 1
        # The first draw may move the generators, because it can draw the whole order.
        if self.seen > 1 and self.last != before:
            self.is_calm = False
        return drawn

    def allows(self, asked, held):
        return self.is_calm and self.seen >= WATCHED

    def draw(self, iterator):
        before = self.look()
        try:
            drawn = next(iterator)
        except BaseException:
            self.moved_at_end = self.put_back(before)
            raise
        return drawn, self.put_back(before)

    def put_back(self, before):
        """Puts the generators back. Returns their states before and after the draw, or None if no
        generator had moved."""
        after = self.look()
        self.is_calm = after == before
        if after[0] == before[0]:
            return None
        before[0].restore()
        return before[0], after[0]

    def given(self, moved):
        if moved is not None and State() == moved[0]:
            moved[1].restore()

    def ended(self):
        self.given(self.moved_at_end)


class Ahead:
    """Replaces a loader's iterator over its sampler."""
    def __init__(self, iterator, policy, order, in_use=0):
        self.iterator, self.policy, self.order = iterator, policy, order
        self.in_use = in_use  # draws that the loader keeps before its loop gets them
        self.held = collections.deque()
        self.held_indices = 0
        self.asked = 0
        self.error = None  # the error that ended the draws early

    def __iter__(self):
        return self

    def __next__(self):
        try:
            drawn = self.next_drawn()
        except BaseException:
            self.order.finish()
            raise
        self.asked += 1
        self.order.passed(self.asked - self.in_use - 1)
        if self.error is None:
            self.draw_ahead()
        return drawn

    def next_drawn(self):
        if self.held:
            drawn, moved = self.held.popleft()
            self.held_indices -= size_of(drawn)
            self.policy.given(moved)
            return drawn
        if self.error is not None:
            error, self.error = self.error, None
            self.policy.ended()
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        drawn = self.policy.natural(self.iterator)
        self.order.add([indices_of(drawn)])
        return drawn

    def draw_ahead(self):
        budget = AT_ONCE_FIRST if self.asked == 1 else AT_ONCE
        announced = []
        try:
            while budget > 0 and self.held_indices < self.policy.most:
                if not self.policy.allows(self.asked, len(self.held)):
                    break
                drawn, moved = self.policy.draw(self.iterator)
                self.held.append((drawn, moved))
                size = size_of(drawn)
                self.held_indices += size
                budget -= max(size, 1)
                announced.append(indices_of(drawn))
        except Exception as error:
            # The error is raised after the loop has received all held draws. StopIteration needs no
            # traceback, and its traceback would keep this object alive.
            self.error = error.with_traceback(None) if type(error) is StopIteration else error
        if announced:
            self.order.add(announced)
        if self.error is not None:
            self.order.finish()

    def __del__(self):
        try:
            self.order.abandon()
        except Exception:
            pass  # the interpreter is ending


def indices_of(drawn):
    """Returns a copy, because the program may change the drawn indices."""
    return tuple(drawn) if isinstance(drawn, (list, tuple)) else (drawn,)
