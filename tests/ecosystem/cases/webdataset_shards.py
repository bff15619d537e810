"""webdataset: tar shards of pictures and labels, in a DataLoader with two workers."""

import torch
import webdataset as wds
from job import digest

TITLE = "webdataset, tar shards of 4 MB, 2 workers"
VENV = "torch2"
PACKAGES = ("webdataset", "torch")


def make(pictures, data):
    with wds.ShardWriter(str(data / "%03d.tar"), maxsize=4e6, verbose=0, mtime=0) as shards:
        for number, path in enumerate(sorted(pictures.glob("*/*.jpg"))):
            shards.write({"__key__": path.stem, "jpg": path.read_bytes(), "cls": number % 10})


def read_sample(sample):
    picture = sample["jpg"].convert("RGB").resize((160, 160))
    return digest(picture.tobytes(), sample["cls"]) >> 1


def reader(data):
    torch.set_num_threads(1)
    shards = [str(path) for path in sorted(data.glob("*.tar"))]
    samples = wds.WebDataset(shards, shardshuffle=False,
                             workersplitter=wds.split_by_worker).decode("pil").map(read_sample)
    loader = torch.utils.data.DataLoader(samples, batch_size=32, num_workers=2)

    def read(epoch):
        for batch in loader:
            for value in batch.tolist():
                epoch.add_digest(value)

    return read
