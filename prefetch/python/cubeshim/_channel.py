"""A thread that tells the server one order after the other. It ends with the process, at once; a forked child has none."""
import atexit
import collections
import os
import threading
import time
import weakref

from cubeshim import _protocol
from cubeshim._log import trouble
from cubeshim._order import Order

MOST_CHANNELS = 16
CONNECT_SECONDS = 5.0
LOOK_SECONDS = 0.1  # how often an answer, or a server that has gone, is looked for while an order is on its way

_channels = weakref.WeakSet()
_is_ending = False


def _forget_all():
    """In a forked child: the thread is not here, and the connection is the parent's."""
    for channel in list(_channels):
        channel.forget()
    _channels.clear()


def _end_all():
    global _is_ending
    _is_ending = True


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_end_all)


class Channel:
    """One for each data loader, so that two that are read in turn do not drop each other's order."""

    def __init__(self, rank=0, world=1, is_for_one=False):
        self.rank, self.world, self.is_for_one = rank, world, is_for_one
        # Reentrant: the collector may run close() in the midst of anything.
        self.lock = threading.Condition()
        self.order = None  # the newest
        self.connection = None
        self.thread = None
        self.is_closed = False
        self.pid = os.getpid()

    # The program's side.

    def begin(self, epoch, resolve):
        """The order of a new epoch; an older one is over. None where there is none to be told."""
        if self.is_closed or _is_ending:
            return None
        if self not in _channels:
            if len(_channels) >= MOST_CHANNELS:
                trouble("more than %d data loaders at once" % MOST_CHANNELS)
                return None
            _channels.add(self)
        order = Order(epoch, resolve, self)
        with self.lock:
            if self.order is not None:
                self.order.is_over = True
            self.order = order
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="cubeshim-announce", daemon=True)
                self.thread.start()
            self.lock.notify()
        return order

    def wake(self):
        if not self.is_closed:
            with self.lock:
                self.lock.notify()

    def close(self):
        if self.is_closed:
            return
        self.is_closed = True
        _channels.discard(self)
        with self.lock:
            if self.order is not None:
                self.order.is_over = True
            self.lock.notify()

    def forget(self):
        self.is_closed = True
        # The lock was perhaps held when the process forked.
        self.lock = threading.Condition()
        order, connection = self.order, self.connection
        if order is not None:
            order.is_over = True
        if connection is not None:
            connection.close()

    # The thread's side.

    def run(self):
        try:
            while True:
                with self.lock:
                    while not self.is_closed and not self.is_for_one and (self.order is None or self.order.is_over):
                        self.lock.wait()
                    order = self.order
                if self.is_closed:
                    break
                self.tell(order)
                if self.is_for_one:
                    break
                order.is_over = True
                order.waiting = collections.deque()
                with self.lock:
                    if self.order is order:
                        self.order = None
                order = None
        except Exception as error:
            if not _is_ending:
                trouble("given up: %r" % (error,))
        finally:
            self.close()
            self.disconnect()

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
                # A leader has died, perhaps: the next one listens within a second.
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
        # Without it the files that wait to be read count as those of a program that was killed.
        if self.is_for_one:
            self.send(order, _protocol.bye())

    def send(self, order, message):
        """Waits until there is room. False: the order is over, and so that what is left is dropped, the connection too."""
        while not self.must_stop(order):
            self.hear(order)
            if self.connection.send(message):
                return True
            self.connection.wait(LOOK_SECONDS, for_room=True)
        self.disconnect()
        return False

    def rest(self, order):
        """Until there may be news; False as send()."""
        with self.lock:
            if not self.must_stop(order) and not order.waiting:
                self.lock.wait(LOOK_SECONDS)
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
        from cubeshim import _socket
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
            with self.lock:
                if not self.must_stop(order):
                    self.lock.wait(pause)
            pause = min(pause * 2, 0.5)
        return False

    def disconnect(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
