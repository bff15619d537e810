"""A thread that sends the server one order after another. At the end of the process, it ends
immediately. A forked child has no such thread.

When the interpreter ends, it stops a daemon thread forever at any point, and the locks of that
thread stay locked. __del__ and callbacks of weak references can run after this, or between any two
steps of other code. So the program's side never waits for the thread: it sets attributes and
releases `news`, which only the thread acquires. If several threads of the program begin orders,
they exclude one another."""
import atexit
import os
import threading
import time
import weakref

from cubeshim import _protocol, _socket  # here, because a thread that imports holds a lock
from cubeshim._log import trouble
from cubeshim._order import Order
from cubeshim._unlisted import UnlistedThread

MOST_CHANNELS = 16
CONNECT_SECONDS = 5.0
# The interval between checks for an answer, or for the end of the server, while an order is being
# sent.
LOOK_SECONDS = 0.1

_channels = weakref.WeakSet()


def _forget_all():
    """Runs in a forked child. The child does not have the thread, and the connection belongs to the
    parent."""
    for channel in list(_channels):
        channel.forget()
    _channels.clear()


def _end_all():
    Channel.is_ending = True


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_end_all)


class Channel:
    """The connection of one data loader. Each loader has its own connection, so that two loaders
    that are read alternately do not drop each other's order."""

    # True when the interpreter is ending. This is a class attribute, because the globals of modules
    # are None at that time.
    is_ending = False

    def __init__(self, rank=0, world=1, is_for_one=False):
        self.rank, self.world, self.is_for_one = rank, world, is_for_one
        # Used only by begin(). Reentrant, because the garbage collector can start a loop while
        # begin() runs.
        self.beginning = threading.RLock()
        # Unlocked while there is news that the thread has not seen.
        self.news = threading.Lock()
        self.news.acquire()
        self.order = None  # the newest order
        self.connection = None
        self.thread = None
        self.is_closed = False

    # The following methods are the program's side.

    def begin(self, epoch, resolve):
        """Begins the order of a new epoch and ends the previous order. Returns None if no order can
        be announced."""
        if self.is_closed or self.is_ending:
            return None
        if self not in _channels:
            if len(_channels) >= MOST_CHANNELS:
                trouble("more than %d data loaders at the same time" % MOST_CHANNELS)
                return None
            _channels.add(self)
        order = Order(epoch, resolve, self)
        with self.beginning:
            if self.order is not None:
                self.order.is_over = True
            self.order = order
            if self.thread is None:
                self.start()
        if self.is_closed:
            order.is_over = True  # the thread has given up in the meantime
        self.wake()
        return order

    def start(self):
        self.thread = UnlistedThread(self.run)
        try:
            self.thread.start()
        except RuntimeError:  # no more threads
            self.thread = None
            raise

    def wake(self):
        """Never waits, because __del__ also calls this."""
        if self.news.locked():
            try:
                self.news.release()
            except RuntimeError:
                # Another thread has released the lock first. (At the end of the interpreter, the
                # name RuntimeError is None, but then there is no other thread.)
                pass

    def close(self):
        """Never waits, like wake()."""
        if self.is_closed:
            return
        self.is_closed = True
        if not self.is_ending:
            _channels.discard(self)
        order = self.order
        if order is not None:
            order.is_over = True
        self.wake()

    def forget(self):
        self.is_closed = True
        order, connection = self.order, self.connection
        if order is not None:
            order.is_over = True
        if connection is not None:
            connection.close()

    # The following methods are the thread's side.

    def run(self):
        try:
            while not self.is_closed:
                order = self.order
                if order.is_over and not self.is_for_one:
                    self.wait()
                    continue
                self.tell(order)
                order.drop()
                if self.is_for_one:
                    break
        except Exception as error:
            if not self.is_ending:
                trouble("given up: %r" % (error,))
        finally:
            self.close()
            self.disconnect()

    def wait(self, seconds=-1):
        """Waits for news, or until `seconds` are over."""
        self.news.acquire(timeout=seconds)

    def must_stop(self, order):
        return order.is_over or self.is_closed or self.order is not order

    def tell(self, order):
        while not self.must_stop(order):
            try:
                if self.connection is None and not self.connect(order):
                    return
                self.tell_connected(order)
                return
            except OSError as error:
                # The leader might have died; the next leader listens within a second.
                trouble("%s" % error)
                self.disconnect()
                order.rewind()
        self.disconnect()

    def tell_connected(self, order):
        if not self.send(order, _protocol.begin(order.epoch, order.base)):
            return
        while not order.is_all_sent():
            messages = order.messages()
            for message in messages:
                if not self.send(order, message):
                    return
            if not messages and not self.rest(order):
                return
        if not self.send(order, _protocol.end(order.epoch)):
            return
        while not order.is_all_taken():
            if not self.rest(order):
                return
        # Without a goodbye, the unread files would count as files of a killed program.
        if self.is_for_one:
            self.send(order, _protocol.bye())

    def send(self, order, message):
        """Waits until there is room. Returns False if the order is over; the connection is then
        closed, so that the server drops the rest."""
        while not self.must_stop(order):
            self.hear(order)
            if self.connection.send(message):
                return True
            self.connection.wait(LOOK_SECONDS, for_room=True)
        self.disconnect()
        return False

    def rest(self, order):
        """Waits for news. Returns False in the same case as send()."""
        if not self.must_stop(order) and not order.waiting:
            self.wait(LOOK_SECONDS)
        if self.must_stop(order):
            self.disconnect()
            return False
        self.hear(order)
        order.forget()
        return True

    def hear(self, order):
        for epoch, sequence in self.connection.hear():
            if epoch == order.epoch:
                order.told(sequence)

    def connect(self, order):
        _socket.start_sidecar()
        pause, until = 0.01, time.monotonic() + CONNECT_SECONDS
        while not self.must_stop(order):
            try:
                self.connection = _socket.Connection(self.rank, self.world)
                return True
            except OSError as error:
                if time.monotonic() > until:
                    trouble("%s: %s" % (_socket.path(), error))
                    return False
            if not self.must_stop(order):
                self.wait(pause)
            pause = min(pause * 2, 0.5)
        return False

    def disconnect(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
