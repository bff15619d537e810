"""Implements announce(), for programs that determine their order themselves."""
import collections.abc
import os

from cubeshim._channel import Channel
from cubeshim._log import trouble

BATCH = 256


def number(variable, default):
    """Returns the value of an environment variable if the protocol can represent it, otherwise the
    default."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() and int(text) < 1 << 32 else default


# The variables of torchrun and DeepSpeed, Open MPI, MPICH and its derivatives, and Slurm. The first
# pair whose rank is set provides both values.
PLACES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
          ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def rank_and_world():
    """Returns the rank and the world size that the launcher has set."""
    for rank, world in PLACES:
        if rank in os.environ:
            return number(rank, 0), number(world, 1)
    return 0, number("WORLD_SIZE", 1)


def sequence_of(paths):
    """Returns the paths in the order of their iteration. A pandas Series finds its entries by their
    labels, not by their positions, so only sequences and NumPy arrays are used as they are."""
    if isinstance(paths, (str, bytes)):
        return [paths]
    is_by_position = isinstance(paths, collections.abc.Sequence)
    return paths if is_by_position or hasattr(paths, "__array_interface__") else list(paths)


class Announcement:
    def __init__(self, paths, epoch):
        self.paths = sequence_of(paths)
        self.channel = Channel(*rank_and_world(), is_for_one=True)
        self.order = None
        try:
            self.tell(self.paths, epoch)
        except Exception as error:  # no working directory, no more threads
            trouble("nothing is announced: %r" % (error,))

    def tell(self, given, epoch):
        self.order = self.channel.begin(epoch, lambda index: (given[index],))
        if self.order is not None:
            count = len(given)
            self.order.add(range(at, min(at + BATCH, count)) for at in range(0, count, BATCH))
            self.order.finish()

    def __len__(self):
        return len(self.paths)

    def __iter__(self):
        for index in range(len(self.paths)):
            if index % BATCH == 0 and self.order is not None:
                self.order.passed(index // BATCH)
            yield self.paths[index]

    def close(self):
        """Withdraws the paths that have not been fetched yet."""
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
