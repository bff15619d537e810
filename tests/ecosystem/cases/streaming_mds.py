"""mosaicml-streaming: MDS shards on the mount, read in place, in a DataLoader with two workers."""

import torch
from job import digest
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

TITLE = "mosaicml-streaming, local MDS shards of 4 MB, 2 workers"
VENV = "torch2"
PACKAGES = ("mosaicml-streaming", "torch")


def make(pictures, data):
    with MDSWriter(out=str(data), columns={"jpg": "bytes", "label": "int"},
                   size_limit=4_000_000) as out:
        for number, path in enumerate(sorted(pictures.glob("*/*.jpg"))):
            out.write({"jpg": path.read_bytes(), "label": number % 10})


class Digests(StreamingDataset):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return digest(sample["jpg"], sample["label"]) >> 1


def reader(data):
    torch.set_num_threads(1)
    clean_stale_shared_memory()
    samples = Digests(local=str(data), remote=None, shuffle=True, shuffle_seed=1, batch_size=30,
                      num_canonical_nodes=1)
    loader = torch.utils.data.DataLoader(samples, batch_size=30, num_workers=2)

    def read(epoch):
        for batch in loader:
            for value in batch.tolist():
                epoch.add_digest(value)

    return read
