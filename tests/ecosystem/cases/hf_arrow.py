"""Hugging Face datasets: save_to_disk and load_from_disk, arrow files by memory map, opened again
in each epoch."""

import datasets
from hf_parquet import FILES, table_of

TITLE = "datasets: load_from_disk, 12 arrow files of 3 MB"
VENV = "hf"
PACKAGES = ("datasets", "pyarrow")


def make(pictures, data):
    table_of(pictures).save_to_disk(str(data), num_shards=FILES)


def reader(data):
    def read(epoch):
        for sample in datasets.load_from_disk(str(data)).shuffle(seed=epoch.number,
                                                                 keep_in_memory=True):
            epoch.add(sample["image"], sample["label"])

    return read
