"""torch's DataLoader, but with Ray actors as workers if Ray runs."""
import importlib.util
import os

from torch.utils import data as torchs
from torch.utils.data import DataLoader as TorchLoader


def has_ray():
    """Returns True if the program has started Ray, or if it was started by `ray job submit`, which
    sets RAY_ADDRESS."""
    if importlib.util.find_spec("ray") is None:
        return False
    import ray
    if not ray.is_initialized() and os.environ.get("RAY_ADDRESS"):
        ray.init()
    return ray.is_initialized()


class Crews:
    """Keeps actors from one epoch to the next. If two loops run at the same time, each has its own
    crew."""
    def __init__(self, options):
        self.options, self.free = options, []

    def take(self, count):
        from cubeshim.ray._crew import Crew, session
        # Drops crews that a ray.shutdown() has ended.
        self.free = [crew for crew in self.free if crew.session == session()]
        for crew in self.free:
            if len(crew.members) == count:
                self.free.remove(crew)
                return crew
        return Crew(count, self.options)

    def give(self, crew):
        self.free.append(crew)


class DataLoader(TorchLoader):
    """Accepts torch's arguments and these keywords:

    distribute: False makes this torch's own loader. It is always torch's own loader without Ray or
    with num_workers=0. split: whether a batch is split by the nodes whose caches have its files.
    None: only if the workers are on several nodes. ray_options: options of ray.remote for the
    actors: num_cpus, resources, runtime_env ...
    """
    def __init__(self, dataset, *arguments, distribute=True, split=None, ray_options=None, **more):
        self.distribute, self.split = distribute, split
        self.ray_options = dict(ray_options or {})
        self._crews = Crews(self.ray_options)
        super().__init__(dataset, *arguments, **more)

    def is_distributed(self):
        is_pipe = isinstance(
            self.dataset,
            tuple(
                getattr(torchs, name)
                for name in ("IterDataPipe", "MapDataPipe")
                if hasattr(torchs, name)))
        return bool(self.distribute and self.num_workers > 0 and not is_pipe and has_ray())

    def _get_iterator(self):
        if not self.is_distributed():
            return super()._get_iterator()
        from cubeshim.ray._iterator import RayIterator
        return RayIterator(self)

    def check_worker_number_rationality(self):
        """Torch compares num_workers with the processors of this node, which is meaningless for a
        cluster."""
        if not self.is_distributed():
            super().check_worker_number_rationality()
