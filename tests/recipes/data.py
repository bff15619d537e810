"""Small data sets for the recipes, each as its framework stores it."""

from __future__ import annotations

import io
import json
import os
import random
import sqlite3
import tarfile
from pathlib import Path

CLASSES, PER_CLASS, SIDE = 4, 30, 160


def picture(seed: int) -> bytes:
    from PIL import Image
    buffer = io.BytesIO()
    noise = random.Random(seed).randbytes(40 * 40 * 3)
    Image.frombytes("RGB", (40, 40), noise).resize((SIDE, SIDE)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def images(root: Path) -> None:
    """Class folders for training and validation."""
    for split, count in (("train", PER_CLASS), ("val", PER_CLASS // 3)):
        for label in range(CLASSES):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number:04}.jpg").write_bytes(picture(1000 * label + number))


def tokens(root: Path) -> None:
    """nanoGPT's train.bin and val.bin: numbers of 16 bits."""
    for name, megabytes in (("train.bin", 24), ("val.bin", 2)):
        (root / name).write_bytes(random.Random(1).randbytes(megabytes << 20))


def shards(root: Path) -> None:
    """Tar files of pictures and labels."""
    for shard in range(4):
        with tarfile.open(root / f"train-{shard:04}.tar", "w") as tar:
            for number in range(30):
                for kind, body in (("jpg", picture(number)), ("cls", str(number % 4).encode())):
                    entry = tarfile.TarInfo(f"{shard:02}{number:04}.{kind}")
                    entry.size = len(body)
                    tar.addfile(entry, io.BytesIO(body))


def sqlite(root: Path) -> None:
    """One table of pictures."""
    with sqlite3.connect(root / "train.db") as base:
        base.execute("create table samples (id integer primary key, image blob, label integer)")
        base.executemany("insert into samples values (?, ?, ?)",
                         ((n, picture(n), n % 4) for n in range(400)))
    base.close()


def lmdb(root: Path) -> None:
    import lmdb as library
    with library.open(str(root / "train.lmdb"), map_size=64 << 20) as base, \
            base.begin(write=True) as change:
        for number in range(400):
            change.put(f"{number:08}".encode(), random.Random(number).randbytes(60000))


def jsonl(root: Path) -> None:
    """Texts in the form that Hugging Face's loaders read."""
    words = "the cache keeps each file that a job has read and serves it to the next one".split()
    chance = random.Random(1)
    for split, count in (("train", 2000), ("test", 200)):
        with open(root / f"{split}.jsonl", "w") as file:
            for number in range(count):
                text = " ".join(chance.choices(words, k=40))
                file.write(json.dumps({"text": text, "label": number % 2}) + "\n")


def weights(root: Path) -> None:
    """A model of eight files of 3 MB, by pickle as torch writes them."""
    import torch
    for number in range(8):
        torch.save({f"layer{number}.weight": torch.randn(768, 1024)},
                   root / f"model-{number:05}.pt")


def yolo(root: Path) -> None:
    """Pictures with a box each, and the description that ultralytics reads."""
    for split, count in (("train", 64), ("val", 16)):
        for folder in ("images", "labels"):
            (root / folder / split).mkdir(parents=True)
        for number in range(count):
            (root / "images" / split / f"{number:04}.jpg").write_bytes(picture(number))
            (root / "labels" / split / f"{number:04}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (root / "data.yaml").write_text("path: /mnt/data\ntrain: images/train\nval: images/val\n"
                                    "names: {0: thing}\n")


def volumes(root: Path) -> None:
    """Three-dimensional arrays, like medical images."""
    import numpy
    for number in range(16):
        numpy.save(root / f"scan-{number:03}.npy",
                   numpy.random.default_rng(number).random((32, 64, 64), "float32"))


def age(root: Path) -> None:
    """Makes the files a year old, because the library revalidates new files more often."""
    for folder, _, names in os.walk(root, topdown=False):
        for name in (*names, "."):
            os.utime(Path(folder, name), (1_700_000_000, 1_700_000_000))
