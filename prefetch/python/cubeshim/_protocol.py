"""Builds the messages on the socket for announcements (`cubeshim docs format`, version 1)."""
import struct

MAGIC = 0x41425543  # "CUBA"
VERSION = 1
LONGEST = 64 << 10
HELLO, BEGIN, PATHS, END, BYE, TAKEN = 1, 2, 3, 4, 5, 6
_HELLO = struct.Struct("=IIIIIIQ")
_BEGIN = struct.Struct("=IIQ")
_PATHS = struct.Struct("=IIQQ")
_END = struct.Struct("=IIQ")
_BYE = struct.Struct("=II")
_WELCOME = struct.Struct("=IIIIQ")
_TAKEN = struct.Struct("=IIQQ")
PATHS_HEAD = _PATHS.size


def hello(rank, world, job):
    return _HELLO.pack(HELLO, MAGIC, VERSION, rank, world, 0, job)


def begin(epoch, base):
    return _BEGIN.pack(BEGIN, 0, epoch) + base


def paths(epoch, first, encoded):
    return _PATHS.pack(PATHS, len(encoded), epoch, first) + b"\0".join(encoded) + b"\0"


def end(epoch):
    return _END.pack(END, 0, epoch)


def bye():
    return _BYE.pack(BYE, 0)


def is_welcome(message):
    if len(message) != _WELCOME.size:
        return False
    kind, magic, version, _, _ = _WELCOME.unpack(message)
    return (kind, magic, version) == (HELLO, MAGIC, VERSION)


def read_taken(message):
    """Returns (epoch, sequence) of a TAKEN message, or None for any other message."""
    if len(message) != _TAKEN.size:
        return None
    kind, _, epoch, sequence = _TAKEN.unpack(message)
    return (epoch, sequence) if kind == TAKEN else None
