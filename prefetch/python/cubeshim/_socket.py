"""A connection to this node's server for announcements. Every failure raises OSError."""
import ctypes
import os
import select
import socket
import stat
import struct
import time
import zlib

from cubeshim import _protocol, _settings
from cubeshim._fds import off_standard

LOOK_SECONDS = 0.1  # how often to check whether another server listens


def path():
    return "%s/cubeshim-%d-%s.sock" % (_settings.ram_directory().rstrip("/"), os.geteuid(),
                                       _settings.name())


def start_sidecar():
    """If this process has loaded the library, asks it to listen."""
    try:
        ctypes.CDLL(None).cubeshim_start_sidecar()
    except (AttributeError, OSError):
        pass


def job():
    return zlib.crc32((os.environ.get("CUBESHIM_JOB") or "session %d" % os.getsid(0)).encode())


def new_socket():
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, off_standard(made.detach()))


def named_socket():
    """Returns the identity of the socket file that has the name now, or None if there is none."""
    try:
        found = os.lstat(path())
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


class Connection:
    def __init__(self, rank, world):
        self.next_look = 0.0
        self.socket = new_socket()
        try:
            self.socket.settimeout(2)
            self.server = named_socket()
            self.socket.connect(path())
            self.wait_for_welcome()
            peer = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                          struct.calcsize("3i"))
            uid = struct.unpack("3i", peer)[1]
            if uid not in (0, os.geteuid()):
                raise OSError("uid %d listens at %s" % (uid, path()))
            if not _protocol.is_welcome(self.socket.recv(256)):
                raise OSError("another version listens at %s" % path())
            self.socket.setblocking(False)
            self.send(_protocol.hello(rank, world, job()))
        except BaseException:
            self.socket.close()
            raise

    def wait_for_welcome(self):
        """Waits for the server's greeting, because the kernel accepts connections even to a stopped
        server."""
        until = time.monotonic() + 2
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        while not poll.poll(LOOK_SECONDS * 1000):
            self.look_for_another()
            if time.monotonic() > until:
                raise OSError("nobody answers at %s" % path())

    def look_for_another(self):
        """Checks whether another server has the name now. A stopped leader keeps its connections,
        although the next leader has taken over its name."""
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + LOOK_SECONDS
        named = named_socket()
        if named is not None and named != self.server:
            raise OSError("another server listens at %s" % path())

    def send(self, message):
        """Returns False if there is no room."""
        try:
            self.socket.send(message, socket.MSG_NOSIGNAL)
            return True
        except BlockingIOError:
            return False

    def hear(self):
        """Returns the messages that have arrived. They tell which paths the server has taken."""
        self.look_for_another()
        taken = []
        while True:
            try:
                message = self.socket.recv(256)
            except BlockingIOError:
                return taken
            if not message:
                raise OSError("the server has gone")
            told = _protocol.read_taken(message)
            if told is not None:
                taken.append(told)

    def wait(self, seconds, for_room):
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | (select.POLLOUT if for_room else 0))
        poll.poll(seconds * 1000)

    def close(self):
        self.socket.close()
