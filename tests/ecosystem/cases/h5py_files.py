"""h5py: chunked, compressed data sets in files of some megabytes, read a chunk at a time in random
order."""

import h5py
import numpy as np

TITLE = "h5py, 16 files of 3 MB, gzip chunks, random order"
VENV = "data"
PACKAGES = ("h5py",)
ROWS, PIECE = 256, 32


def make(_, data):
    for number in range(16):
        values = np.random.default_rng(number).integers(0, 255, (ROWS, 64, 64, 3), np.uint8)
        with h5py.File(data / f"{number:03}.h5", "w") as file:
            file.create_dataset("pictures", data=values, chunks=(PIECE, 64, 64, 3),
                                compression="gzip", compression_opts=1)
            file["labels"] = np.arange(ROWS)


def reader(data, **options):
    paths = sorted(data.glob("*.h5"))

    def read(epoch):
        order = np.random.default_rng(epoch.number)
        for which in order.permutation(len(paths)):
            with h5py.File(paths[which], "r", **options) as file:
                for first in order.permutation(ROWS // PIECE) * PIECE:
                    epoch.add(file["pictures"][first:first + PIECE],
                              file["labels"][first:first + PIECE])

    return read
