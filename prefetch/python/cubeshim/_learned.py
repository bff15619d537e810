"""Remembers which files the workers of a data set opened for each index. Used if nothing else is
known about the data set.

The learned paths are stored in two files that all processes of the node share. KEY.index has 8
bytes for each index: the position of the index's record in KEY.paths, plus one, or 0 if the paths
are unknown. A record consists of the index, the number of bytes, and paths with a NUL between them.
With CUBESHIM_DISK_DIR, the files stay for later jobs; otherwise the last process that uses them
removes them. Correctness does not depend on these files: a torn or outdated record only costs a
useless fetch. The files are opened for each batch and then closed, because the program may close
any fd and reuse its number.
"""
import atexit
import errno
import fcntl
import hashlib
import os
import stat
import struct

from cubeshim import _settings
from cubeshim._datasets import is_of
from cubeshim._fds import off_standard
from cubeshim._dataset_lists import is_path, is_sequence, own

MOST_INDICES = 1 << 24
MOST_BYTES = 256 << 20
SHARE_OF_FREE = 16
MOST_PATHS = 16  # paths of one index
LONGEST = 32 << 10  # bytes of a record's paths
_ENTRY = struct.Struct("=Q")
_HEAD = struct.Struct("=II")
_READ = 512


def describe(dataset, depth=4):
    """Returns a description that identifies the data set. It is the same in a worker and in the
    next job."""
    length = len(dataset)
    parts = [type(dataset).__qualname__, length]
    for name, value in sorted(own(dataset).items()):
        if is_path(value):
            parts.append((name, os.fsencode(value)))
        elif is_sequence(value):
            if len(value) == length > 0:
                parts.append((name, [
                    str(value[at])
                    for at in (0, length // 2, -1)
                    if is_path(value[at]) or isinstance(value[at], int)
                ]))
        elif depth > 0 and is_of(value, "torch.utils.data", "Dataset") and hasattr(
                type(value), "__len__"):
            parts.append((name, describe(value, depth - 1)))
    return parts


def key_of(dataset):
    """Returns the KEY of a data set, or None if the data set is not worth learning."""
    length = len(dataset)
    if not 0 < length <= MOST_INDICES:
        return None
    return hashlib.sha1(repr(describe(dataset)).encode()).hexdigest()[:16]


def directory():
    """Returns the directory of the files, and whether it stays for later jobs."""
    disk = _settings.directory("CUBESHIM_DISK_DIR")
    parent = disk or _settings.ram_directory()
    return "%s/cubeshim-learned-%d-%s" % (parent.rstrip("/"), os.geteuid(),
                                          _settings.name()), bool(disk)


def open_checked(name, flags, is_right, **place):
    fd = off_standard(os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, **place))
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or not is_right(found):
        os.close(fd)
        raise OSError("%s is not this user's alone" % name)
    return fd


def is_private_directory(found):
    return stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022


def is_private_file(found):
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def open_own(path, flags):
    """Opens a file that belongs to this user, has no other name, and is in a directory where no
    other user can create files. Otherwise raises OSError: a link to another file of this user could
    cause that file to be overwritten."""
    parent, name = os.path.split(path)
    directory = open_checked(parent, os.O_RDONLY | os.O_DIRECTORY, is_private_directory)
    try:
        return open_checked(name, flags | os.O_NONBLOCK, is_private_file, dir_fd=directory)
    finally:
        os.close(directory)


# The files that the last process removes: maps each base to an fd of KEY.index. Each process that
# uses the files holds a shared lock on this fd.
_held = {}
_pid = None


def _hold(base, fd, stays):
    global _pid
    if stays:
        os.close(fd)
        fd = None
    else:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if _pid != os.getpid():
            # A child shares its parent's locks, so the parent's files are not its own.
            _held.update(dict.fromkeys(_held))
            _pid = os.getpid()
            atexit.register(_leave)
    _held[base] = fd


def _remove_if_last(base, fd):
    """Checks first that the fd is still ours, because the program might have closed it and reused
    its number."""
    same = os.path.samestat(os.fstat(fd), os.stat(base + ".index"))
    if same:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(base + ".index")
        os.unlink(base + ".paths")


def _leave():
    # Does nothing in a forked child, which shares its parent's lock.
    if _pid != os.getpid():
        return
    for base, fd in list(_held.items()):  # a copy, because other threads still run
        try:
            if fd is not None:
                _remove_if_last(base, fd)
            os.rmdir(os.path.dirname(base))
        except OSError:
            pass


def sweep(parent):
    """Removes files that killed processes have left."""
    for name in os.listdir(parent):
        base, kind = os.path.splitext(os.path.join(parent, name))
        if kind != ".index" or base in _held:
            continue
        try:
            fd = open_own(base + kind, os.O_RDWR)
            try:
                _remove_if_last(base, fd)
            finally:
                os.close(fd)
        except OSError:
            pass


class Store:
    """The two files of a data set. Every failure raises OSError."""
    def __init__(self, key, length):
        self.base, self.length = "%s/%s" % (directory()[0], key), length

    def make(self):
        """Creates both files if they do not exist."""
        parent, stays = directory()
        os.makedirs(parent, 0o700, exist_ok=True)
        if self.base not in _held:
            if not stays:
                sweep(parent)
            os.close(self.open(os.O_RDWR | os.O_CREAT, "paths"))
            _hold(self.base, self.open(os.O_RDWR | os.O_CREAT, "index"), stays)

    def is_there(self):
        return os.path.exists(self.base + ".index")

    def open(self, flags, kind, more=0):
        return open_own("%s.%s" % (self.base, kind), flags | more)

    def read(self, index, files):
        """Returns the paths of an index, as bytes; empty if they are not known."""
        if not 0 <= index < self.length:
            return []
        entry = os.pread(files.index, _ENTRY.size, index * _ENTRY.size)
        at = _ENTRY.unpack(entry)[0] - 1 if len(entry) == _ENTRY.size else -1
        if not 0 <= at < MOST_BYTES:
            return []
        written_for, paths = self.read_at(at, files)
        return paths if written_for == index else []

    def read_at(self, at, files):
        found = os.pread(files.paths, _READ, at)
        if len(found) < _HEAD.size:
            return None, []
        index, size = _HEAD.unpack_from(found)
        if not 0 < size <= LONGEST:
            return None, []
        if len(found) < _HEAD.size + size:
            found = os.pread(files.paths, _HEAD.size + size, at)
        text = found[_HEAD.size:_HEAD.size + size]
        return index, text.split(b"\0") if len(text) == size else []

    def resolve(self, indices):
        """Returns the paths of these indices, in one list."""
        found = []
        with Files(self, os.O_RDONLY) as files:
            for index in indices:
                index = index.__index__()
                found += self.read(index if index >= 0 else index + self.length, files)
        return found

    def first(self):
        """Returns the paths that were learned first."""
        with Files(self, os.O_RDONLY) as files:
            return self.read_at(0, files)[1]

    def is_empty(self):
        try:
            return os.stat(self.base + ".paths").st_size == 0
        except OSError:
            return True

    def write(self, learned):
        """`learned` contains indices and their paths. If an index read other files before, only the
        files that it read both times are kept. The other files were drawn at random, as for a
        mosaic of pictures. Returns how many entries were new. Raises OSError if there is no more
        room."""
        with Files(self, os.O_RDWR) as files:
            news = []
            for index, paths in learned:
                before = self.read(index, files)
                if before and set(before) != set(paths):
                    paths = [path for path in before if path in paths] or paths
                text = b"\0".join(paths)
                if paths != before and len(text) <= LONGEST:
                    news.append((index, text))
            if not news:
                return 0
            record = b"".join(_HEAD.pack(index, len(text)) + text for index, text in news)
            room = os.fstatvfs(files.paths)
            size = os.fstat(files.paths).st_size
            if size + len(record) > min(MOST_BYTES, room.f_bavail * room.f_frsize // SHARE_OF_FREE):
                raise OSError(errno.ENOSPC, "there is no more room", self.base)
            if os.write(files.paths, record) != len(record):
                raise OSError(errno.ENOSPC, "there is no more room", self.base)
            at = os.lseek(files.paths, 0, os.SEEK_CUR) - len(record)
            for index, text in news:
                os.pwrite(files.index, _ENTRY.pack(at + 1), index * _ENTRY.size)
                at += _HEAD.size + len(text)
        return len(news)


class Files:
    """Opens both files for a moment."""
    def __init__(self, store, flags):
        self.index = store.open(flags, "index")
        try:
            self.paths = store.open(flags, "paths", os.O_APPEND if flags == os.O_RDWR else 0)
        except OSError:
            os.close(self.index)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.index)
        os.close(self.paths)


class Known:
    """Maps indices to their learned paths, for the epochs of one data loader.

    If nothing was learned when an epoch begins, the epoch announces the first path that is learned.
    This path has already been read. Its announcement only makes the leader create its ring early,
    because there might be no room for the ring later."""
    def __init__(self, store):
        self.store = store
        self.is_first = self.has_told = False

    def begin(self):
        """Returns False if no paths are known for this epoch."""
        self.is_first, self.has_told = self.store.is_empty(), False
        return not self.is_first

    def __call__(self, indices):
        if not self.is_first:
            return self.store.resolve(indices)
        paths = [] if self.has_told else self.store.first()
        self.has_told = self.has_told or bool(paths)
        return paths
