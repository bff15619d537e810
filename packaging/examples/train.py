"""An ordinary training job: class folders of images, torch's DataLoader, and no mention of
cubeshim."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="directory with a folder of images for each class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    data = ImageFolder(options.data,
                       transforms.Compose([transforms.Resize((64, 64)),
                                           transforms.ToTensor()]))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=options.workers)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.Flatten(),
                          nn.LazyLinear(len(data.classes)))
    model(torch.zeros(1, 3, 64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(1, options.epochs + 1):
        began, total = time.monotonic(), 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        seconds = time.monotonic() - began
        print(f"epoch {epoch}: {len(data) / seconds:.0f} samples/s, loss {total / len(data):.3f}",
              flush=True)


if __name__ == "__main__":
    main()
