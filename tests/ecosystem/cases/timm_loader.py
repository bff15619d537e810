"""timm: create_dataset and create_loader, as its train.py calls them, with two workers."""

import timm.data
import torch

TITLE = "timm create_dataset, create_loader, 2 workers"
VENV = "torch2"
PACKAGES = ("timm", "torch")


def reader(data):
    torch.set_num_threads(1)
    pictures = timm.data.create_dataset("", root=str(data), split="train", is_training=True)
    # Augmentation is off, so that each epoch gives the same tensors.
    loader = timm.data.create_loader(pictures, input_size=(3, 160, 160), batch_size=30,
                                     is_training=True, no_aug=True, use_prefetcher=False,
                                     num_workers=2, device=torch.device("cpu"),
                                     persistent_workers=False)

    def read(epoch):
        for batch, labels in loader:
            for picture, label in zip(batch, labels.tolist()):
                epoch.add(picture.contiguous().numpy(), label)

    return read
