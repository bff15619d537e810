"""cubeshim on a Ray cluster: env() makes the environment of Ray's workers, and DataLoader is
torch's loader with workers on several nodes.

    ray.init(runtime_env=cubeshim.ray.env("/mnt/data", ram="32G"))
    loader = cubeshim.ray.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=16)

`cubeshim docs ray` has the rules. Neither ray nor torch is imported before DataLoader is accessed.
"""
from cubeshim.ray._env import env

__all__ = ["DataLoader", "env"]


def __getattr__(name):
    if name == "DataLoader":
        from cubeshim.ray._loader import DataLoader
        return DataLoader
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
