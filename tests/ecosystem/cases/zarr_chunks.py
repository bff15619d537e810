"""zarr: an array of small chunks, each a file, read by blocks in random order."""

import numpy as np
import zarr

TITLE = "zarr, 512 chunks of 100 KB, random order"
VENV = "data"
PACKAGES = ("zarr", "numcodecs")
BLOCKS, ROWS = 512, 8


def make(_, data):
    array = zarr.create_array(store=str(data / "a.zarr"), shape=(BLOCKS * ROWS, 64, 64, 3),
                              chunks=(ROWS, 64, 64, 3), dtype="u1")
    for number in range(BLOCKS):
        rows = np.random.default_rng(number).integers(0, 255, (ROWS, 64, 64, 3), np.uint8)
        array[number * ROWS:(number + 1) * ROWS] = rows


def reader(data):
    def read(epoch):
        array = zarr.open_array(str(data / "a.zarr"), mode="r")
        for number in np.random.default_rng(epoch.number).permutation(BLOCKS):
            epoch.add(array[number * ROWS:(number + 1) * ROWS])

    return read
