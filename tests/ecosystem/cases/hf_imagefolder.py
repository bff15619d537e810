"""Hugging Face datasets: load_dataset("imagefolder"), pictures decoded when they are accessed."""

import numpy as np
from datasets import load_dataset

TITLE = "datasets: imagefolder"
VENV = "hf"
PACKAGES = ("datasets", "pyarrow")


def reader(data):
    pictures = load_dataset("imagefolder", data_dir=str(data), split="train")

    def read(epoch):
        for sample in pictures.shuffle(seed=epoch.number, keep_in_memory=True):
            epoch.add(np.asarray(sample["image"].convert("RGB").resize((160, 160))),
                      sample["label"])

    return read
