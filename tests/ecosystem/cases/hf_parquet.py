"""Hugging Face datasets: parquet files of pictures, streamed, so that each epoch reads them."""

import datasets

TITLE = "datasets: parquet, streaming, 12 files of 3 MB"
VENV = "hf"
PACKAGES = ("datasets", "pyarrow")
FILES = 12


def table_of(pictures):
    paths = sorted(pictures.glob("*/*.jpg"))
    return datasets.Dataset.from_dict({
        "image": [path.read_bytes() for path in paths],
        "label": [n % 10 for n in range(len(paths))]
    })


def make(pictures, data):
    table = table_of(pictures)
    for number in range(FILES):
        table.shard(FILES, number).to_parquet(str(data / f"{number:03}.parquet"))


def reader(data):
    files = [str(path) for path in sorted(data.glob("*.parquet"))]
    samples = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)

    def read(epoch):
        for sample in samples:
            epoch.add(sample["image"], sample["label"])

    return read
