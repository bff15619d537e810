"""paddle: DatasetFolder in paddle's DataLoader with two workers."""

import numpy as np
import paddle
from job import digest
from paddle.vision.datasets import DatasetFolder

TITLE = "paddle DatasetFolder, DataLoader, 2 workers"
VENV = "paddle"
PACKAGES = ("paddlepaddle",)


class Digests(DatasetFolder):
    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return np.int64(
            digest(np.asarray(picture.convert("RGB").resize((160, 160))), int(label)) >> 1)


def reader(data):
    loader = paddle.io.DataLoader(Digests(str(data)), batch_size=32, shuffle=True, num_workers=2)

    def read(epoch):
        paddle.seed(epoch.number)
        for batch in loader:
            for value in batch.numpy().tolist():
                epoch.add_digest(value)

    return read
