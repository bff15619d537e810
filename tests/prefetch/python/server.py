"""Replaces the server of announcements. It is an independent implementation of doc/FORMAT.md,
records all messages, and follows the test's orders."""
import os
import select
import socket
import struct
import threading
from pathlib import Path

HELLO, BEGIN, PATHS, END, BYE, TAKEN = range(1, 7)
MAGIC = 0x41425543


class Client:
    def __init__(self, connection):
        self.connection = connection
        self.rank = self.world = self.job = None
        self.epochs = {}  # epoch: [(sequence number, path)]
        self.ended = set()
        self.said_bye = self.has_gone = False

    def paths(self, epoch=0):
        return [path for _, path in self.epochs.get(epoch, [])]


class Server:
    """`takes`: announced paths count as handed on immediately. `reads`: if False, all messages stay
    in the socket."""
    def __init__(self, directory, name="default", takes=True, reads=True, version=1):
        self.path = Path(directory) / f"cubeshim-{os.geteuid()}-{name}.sock"
        self.takes, self.reads, self.version = takes, reads, version
        self.clients = []
        self.wrong = []
        self.changed = threading.Condition()
        self.wake_reader, self.wake_writer = os.pipe()
        self.is_stopping = False
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.path.unlink(missing_ok=True)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Stops like a killed leader: connections end, the file stays."""
        if self.is_stopping:
            return
        self.is_stopping = True
        os.write(self.wake_writer, b"x")
        self.thread.join(60)
        for client in self.clients:
            client.connection.close()
        self.listener.close()
        os.close(self.wake_reader)
        os.close(self.wake_writer)

    def set(self, **settings):
        vars(self).update(settings)
        os.write(self.wake_writer, b"x")

    def run(self):
        while not self.is_stopping:
            alive = {client.connection: client for client in self.clients if not client.has_gone}
            waited = [self.listener, self.wake_reader] + (list(alive) if self.reads else [])
            for ready in select.select(waited, [], [])[0]:
                if ready is self.listener:
                    self.clients.append(self.welcome())
                elif ready is self.wake_reader:
                    os.read(self.wake_reader, 100)
                elif ready in alive:
                    self.hear(alive[ready])
            with self.changed:
                self.changed.notify_all()

    def welcome(self):
        connection, _ = self.listener.accept()
        connection.send(struct.pack("=IIIIQ", HELLO, MAGIC, self.version, os.getpid(), id(self)))
        return Client(connection)

    def hear(self, client):
        try:
            message = client.connection.recv(1 << 20)
        except OSError:
            message = b""
        if not message:
            client.has_gone = True
            client.connection.close()
            return
        try:
            self.understand(client, message)
        except Exception as error:
            self.wrong.append(f"{error!r} for {message[:80]!r}")

    def understand(self, client, message):
        assert len(message) <= 1 << 16, len(message)
        kind = struct.unpack_from("=I", message)[0]
        if kind == HELLO:
            _, magic, version, client.rank, client.world, zero, client.job = struct.unpack(
                "=IIIIIIQ", message)
            assert (magic, version, zero) == (MAGIC, 1, 0), message
        elif kind == BEGIN:
            _, zero, epoch = struct.unpack_from("=IIQ", message)
            assert zero == 0 and client.rank is not None and all(
                epoch > older for older in client.epochs), message
            client.epochs[epoch] = []
            client.base = message[16:].decode()
            assert os.path.isabs(client.base), client.base
        elif kind == PATHS:
            _, count, epoch, first = struct.unpack_from("=IIQQ", message)
            text = message[24:].decode()
            assert text.endswith("\0"), text
            names = text[:-1].split("\0")
            assert len(names) == count and all(names), (count, names)
            order = client.epochs[epoch]
            assert epoch == max(client.epochs) and epoch not in client.ended
            assert not order or first > order[-1][0], (first, order[-1])
            order += [(first + i, os.path.normpath(os.path.join(client.base, name)))
                      for i, name in enumerate(names)]
            if self.takes:
                self.tell(client, epoch, first + count)
        elif kind == END:
            _, flags, epoch = struct.unpack("=IIQ", message)
            assert flags in (0, 1) and epoch == max(client.epochs)
            client.ended.add(epoch)
        else:
            assert kind == BYE and len(message) == 8, message
            client.said_bye = True

    def tell(self, client, epoch, sequence):
        try:
            client.connection.send(struct.pack("=IIQQ", TAKEN, 0, epoch, sequence))
        except BrokenPipeError:
            pass  # the client is gone, as the next check will show

    def wait(self, condition, what, seconds=60):
        with self.changed:
            if not self.changed.wait_for(condition, seconds):
                raise AssertionError(
                    f"{what} did not come; heard "
                    f"{[(c.epochs.keys(), c.has_gone) for c in self.clients]}, "
                    f"wrong {self.wrong}")
        if self.wrong:
            raise AssertionError(self.wrong)

    def wait_for_order(self, count=1, epoch=0):
        """Waits until `count` clients have ended the epoch, and returns them."""
        def ended():
            return [client for client in self.clients if epoch in client.ended]

        self.wait(lambda: len(ended()) >= count, f"the end of epoch {epoch}")
        return ended()
