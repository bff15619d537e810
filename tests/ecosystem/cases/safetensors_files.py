"""safetensors: files of some megabytes, whole by memory map and tensor by tensor."""

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

TITLE = "safetensors, 16 files of 3 MB, tensor by tensor"
VENV = "data"
PACKAGES = ("safetensors",)


def make(_, data):
    for number in range(16):
        random = np.random.default_rng(number)
        save_file({f"layer{n}": random.standard_normal((256, 384), np.float32) for n in range(8)},
                  data / f"{number:03}.safetensors")


def reader(data):
    paths = sorted(data.glob("*.safetensors"))

    def read(epoch):
        for path in paths:
            with safe_open(path, "np") as file:
                for name in file.keys():
                    epoch.add(name, file.get_tensor(name))

    return read
