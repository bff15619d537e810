"""A connection to whoever listens for announcements on this node; every failure is an OSError."""
import ctypes
import os
import select
import socket
import struct
import zlib

from cubeshim import _protocol, _settings
from cubeshim._fds import off_standard


def path():
    return "%s/cubeshim-%d-%s.sock" % (_settings.ram_directory().rstrip("/"), os.geteuid(), _settings.name())


def start_sidecar():
    """The library of this process, if it is here, is asked to listen."""
    try:
        ctypes.CDLL(None).cubeshim_start_sidecar()
    except (AttributeError, OSError):
        pass


def job():
    return zlib.crc32((os.environ.get("CUBESHIM_JOB") or "session %d" % os.getsid(0)).encode())


def new_socket():
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, off_standard(made.detach()))


class Connection:
    def __init__(self, rank, world):
        self.socket = new_socket()
        try:
            self.socket.settimeout(2)
            self.socket.connect(path())
            peer = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
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

    def send(self, message):
        """False: there is no room."""
        try:
            self.socket.send(message, socket.MSG_NOSIGNAL)
            return True
        except BlockingIOError:
            return False

    def hear(self):
        """What the server has told that it has taken, all that is there."""
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
