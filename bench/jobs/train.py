"""An ordinary training run: torchvision's ImageFolder, a DataLoader with workers, random crops, a
small CNN.

    train.py --data DIR [--epochs N] [--workers N] [--loader pil|cv2] [--json FILE] ...

It is made for timing on different mounts, so it is reproducible to the bit: the random draws for a
picture depend only on the seed, the epoch and the picture's number. They do not depend on the
number of workers or on how workers are started. The checksum of an epoch covers every label and
every decoded pixel, in any order. Two runs that print the same checksum and loss have seen the same
data."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import zlib
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import pil_loader

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MASK = 2**64 - 1


@dataclass(frozen=True)
class Epoch:
    epoch: int
    seconds: float
    samples: int
    samples_per_s: float
    loss: float | None
    accuracy: float | None
    checksum: str

    def line(self) -> str:
        learnt = ""
        if self.loss is not None:
            learnt = f"  loss {self.loss:.4f}  accuracy {self.accuracy:.3f}"
        return (
            f"epoch {self.epoch}  {self.samples} samples  {self.seconds:.2f} s"
            f"  {self.samples_per_s:.1f} samples/s{learnt}  checksum {self.checksum}")


def cv2_loader(path: str) -> np.ndarray:
    picture = cv2.imread(path, cv2.IMREAD_COLOR)
    if picture is None:
        raise OSError(f"cv2.imread cannot read {path}")
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


class CropArray:
    """RandomResizedCrop and flip for the arrays of cv2, with cv2's own resize."""
    def __init__(self, size: int):
        self.size = size

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        channels_first = torch.from_numpy(picture).permute(2, 0, 1)
        top, left, height, width = T.RandomResizedCrop.get_params(channels_first, (0.25, 1.0),
                                                                  (3 / 4, 4 / 3))
        crop = picture[top:top + height, left:left + width]
        crop = cv2.resize(crop, (self.size, self.size), interpolation=cv2.INTER_AREA)
        return np.ascontiguousarray(crop[:, ::-1]) if torch.rand(1) < 0.5 else crop


def augmentation(loader: str, size: int) -> T.Compose:
    if loader == "cv2":
        steps = [CropArray(size)]
    else:
        steps = [T.RandomResizedCrop(size, scale=(0.25, 1.0)), T.RandomHorizontalFlip()]
    return T.Compose([*steps, T.ToTensor(), T.Normalize(MEAN, STD)])


class Pictures(ImageFolder):
    """ImageFolder that also returns a checksum of the decoded pixels, and crops by (seed, epoch,
    index).

    `epoch` is in shared memory, so that persistent workers see its changes."""
    def __init__(self, root: str, loader: str, size: int, seed: int, per_class: int):
        super().__init__(root, augmentation(loader, size),
                         loader=cv2_loader if loader == "cv2" else pil_loader)
        if per_class:
            self.samples = first_of_each_class(self.samples, per_class)
        self.seed = seed
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        path, label = self.samples[index]
        picture = self.loader(path)
        torch.manual_seed(mixed(self.seed, int(self.epoch), index))
        return self.transform(picture), label, pixel_sum(picture)


def first_of_each_class(samples: list[tuple[str, int]], count: int) -> list[tuple[str, int]]:
    taken: dict[int, int] = defaultdict(int)
    kept = []
    for path, label in samples:
        taken[label] += 1
        if taken[label] <= count:
            kept.append((path, label))
    return kept


def pixel_sum(picture: np.ndarray | Image.Image) -> int:
    return zlib.adler32(picture if isinstance(picture, np.ndarray) else picture.tobytes())


def mixed(*parts: int) -> int:
    """Returns a 64-bit number that depends on every bit of all parts (splitmix64)."""
    state = 0
    for part in parts:
        state = (state + part + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state


def small_cnn(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(fan_in, fan_out, 3, stride=2, padding=1),
            nn.BatchNorm2d(fan_out),
            nn.ReLU(inplace=True)
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class Trainer:
    def __init__(self, classes: int):
        self.model = small_cnn(classes)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def step(self, pictures: torch.Tensor, labels: torch.Tensor) -> tuple[float, int]:
        """Trains on one batch. Returns the sum of its losses and the number of correct answers."""
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.model(pictures)
        loss = self.criterion(scores, labels)
        loss.backward()
        self.optimizer.step()
        return loss.item() * len(labels), int((scores.argmax(1) == labels).sum())


def run_epoch(number: int, loader: DataLoader, trainer: Trainer | None) -> Epoch:
    samples = right = checksum = 0
    loss = 0.0
    start = time.monotonic()
    for pictures, labels, sums in loader:
        samples += len(labels)
        for label, pixels in zip(labels.tolist(), sums.tolist()):
            checksum = (checksum + mixed(label, pixels)) & MASK
        if trainer:
            batch_loss, batch_right = trainer.step(pictures, labels)
            loss, right = loss + batch_loss, right + batch_right
    seconds = time.monotonic() - start
    return Epoch(number, seconds, samples, samples / seconds, loss / samples if trainer else None,
                 right / samples if trainer else None, f"{checksum:016x}")


def start_worker(_: int) -> None:
    cv2.setNumThreads(0)


def run(options: argparse.Namespace) -> list[Epoch]:
    # Uses one thread, to leave the cores to the workers and because sums by one thread are the same
    # in every run.
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    torch.manual_seed(options.seed)
    pictures = Pictures(options.data, options.loader, options.size, options.seed, options.per_class)
    order = torch.Generator()
    loader = DataLoader(pictures, batch_size=options.batch_size,
                        sampler=RandomSampler(pictures, generator=order),
                        num_workers=options.workers, worker_init_fn=start_worker,
                        multiprocessing_context=options.context if options.workers else None,
                        persistent_workers=options.persistent_workers and options.workers > 0)
    trainer = None if options.no_train else Trainer(len(pictures.classes))
    print(f"data {options.data}: {len(pictures)} files, {len(pictures.classes)} classes",
          flush=True)
    epochs = []
    for number in range(1, options.epochs + 1):
        if number > 1:
            time.sleep(options.pause)
        pictures.epoch.fill_(number)
        order.manual_seed(mixed(options.seed, number) >> 1)
        epochs.append(run_epoch(number, loader, trainer))
        print(epochs[-1].line(), flush=True)
    return epochs


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Trains a small CNN on a folder of class folders and times each epoch.")
    parser.add_argument("--data", required=True, metavar="DIR", help="directory of class folders")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=64,
                        help="side of the pictures that the network sees")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loader", choices=("pil", "cv2"), default="pil")
    parser.add_argument("--context", choices=("fork", "spawn", "forkserver"), default="fork")
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--per-class", type=int, default=0, metavar="N",
                        help="only the first N files of each class")
    parser.add_argument("--no-train", action="store_true", help="read and decode only")
    parser.add_argument("--pause", type=float, default=0.0, metavar="S",
                        help="rest between epochs, not timed")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="write the figures of each epoch here")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    signal.signal(signal.SIGTERM,
                  lambda *_: sys.exit(143))  # as an exception, so that the workers end, too
    try:
        epochs = run(options)
    except OSError as error:
        print(f"train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.json:
        settings = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in vars(options).items()
        }
        body = {"settings": settings, "epochs": [asdict(epoch) for epoch in epochs]}
        options.json.write_text(json.dumps(body, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
