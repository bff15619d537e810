"""torchvision's ImageFolder in a DataLoader with two workers."""

import torch
from job import digest
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, PILToTensor, Resize

TITLE = "torchvision ImageFolder, DataLoader, 2 workers"
VENV = "torch2"
PACKAGES = ("torch", "torchvision")
SHAPE = (160, 160)


class Digests(ImageFolder):
    """The workers compute the digests, so that each decoded picture is covered and the main process
    stays idle."""
    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return picture, label, digest(picture.contiguous().numpy(), label) >> 1


def pictures_of(data):
    return Digests(str(data), Compose([Resize(SHAPE), PILToTensor()]))


def reader(data):
    torch.set_num_threads(1)
    order = torch.Generator()
    loader = torch.utils.data.DataLoader(pictures_of(data), batch_size=32, shuffle=True,
                                         generator=order, num_workers=2)

    def read(epoch):
        order.manual_seed(epoch.number)
        add_batches(epoch, loader)

    return read


def add_batches(epoch, loader):
    for _, _, digests in loader:
        for value in digests.tolist():
            epoch.add_digest(value)
