"""Has one job for each way to read large files, called a case. `jobs.py make CASE DIR` writes the
data of a case, `jobs.py read CASE DIR` reads it.

A reader waits for a line on its stdin before each epoch, and prints {"wall_ns": ..., "digest": ...}
after the epoch. The digest covers all bytes that the case reads."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import random
import shutil
import sys
import tarfile
import time
from pathlib import Path

MEGABYTE = 1 << 20
SHARDS, SHARD_FILES, SHARD_FILE = 4, 1220, 100_000
CHUNKS, CHUNK = 6000, 64 << 10
COLUMNS, WANTED_COLUMNS, ROWS, ROW_GROUPS = 20, 3, 4_000_000, 8
MAPPED, MAPPED_READS, MAPPED_READ = 1 << 30, 2000, 2048
TENSORS, TENSOR = 64, 16 << 20
RECORDS, RECORD = 4000, 64 << 10


def random_bytes(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(count)


class Tar:
    """Shards of a web data set, read from beginning to end by two workers."""

    LOOKED_AT: int | None = 64  # bytes of each file in the digest; None: all

    @staticmethod
    def make(directory: Path, shards: int = SHARDS, files: int = SHARD_FILES) -> None:
        for shard in range(shards):
            with tarfile.open(directory / f"{shard}.tar", "w") as tar:
                for number in range(files):
                    entry = tarfile.TarInfo(f"{number:06}.jpg")
                    entry.size = SHARD_FILE
                    tar.addfile(entry, io.BytesIO(random_bytes(shard * files + number, SHARD_FILE)))

    @classmethod
    def read_shards(cls, paths: list[Path]) -> str:
        digest = hashlib.blake2b()
        for path in paths:
            with path.open("rb") as file, tarfile.open(fileobj=file, mode="r|") as tar:
                for entry in tar:
                    digest.update(tar.extractfile(entry).read()[:cls.LOOKED_AT])
        return digest.hexdigest()

    @classmethod
    def read(cls, directory: Path) -> str:
        paths = sorted(directory.glob("*.tar"))
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            return "".join(pool.map(cls.read_shards, [paths[0::2], paths[1::2]]))


class Shards(Tar):
    """Like Tar, but the digest covers all bytes. bench/large/disk.py makes the shards."""

    LOOKED_AT = None


class Hdf5:
    """Reads all chunks of a data set in random order."""
    @staticmethod
    def make(directory: Path) -> None:
        import h5py
        import numpy
        with h5py.File(directory / "set.h5", "w") as file:
            made = file.create_dataset("x", (CHUNKS, CHUNK), dtype="u1", chunks=(1, CHUNK))
            for number in range(CHUNKS):
                made[number] = numpy.frombuffer(random_bytes(number, CHUNK), dtype="u1")

    @staticmethod
    def read(directory: Path) -> str:
        import h5py
        digest = hashlib.blake2b()
        order = list(range(CHUNKS))
        random.Random(1).shuffle(order)
        with h5py.File(directory / "set.h5", "r") as file:
            of = file["x"]
            for number in order:
                digest.update(of[number][:64].tobytes())
        return digest.hexdigest()


class Parquet:
    """Reads 3 columns of 20."""
    @staticmethod
    def make(directory: Path) -> None:
        import numpy
        import pyarrow
        import pyarrow.parquet
        values = numpy.random.default_rng(1)
        group = ROWS // ROW_GROUPS
        schema = pyarrow.schema([(f"c{column}", pyarrow.float64()) for column in range(COLUMNS)])
        with pyarrow.parquet.ParquetWriter(directory / "set.parquet", schema, compression="none",
                                           use_dictionary=False) as to:
            for _ in range(ROW_GROUPS):
                columns = [values.random(group) for _ in range(COLUMNS)]
                to.write_table(pyarrow.table(columns, schema=schema), row_group_size=group)

    @staticmethod
    def read(directory: Path) -> str:
        import pyarrow.parquet
        names = [f"c{column * 7}" for column in range(WANTED_COLUMNS)]
        table = pyarrow.parquet.read_table(directory / "set.parquet", columns=names)
        return hashlib.blake2b(repr([sum(c.to_numpy()[::1000]) for c in table.columns
                                    ]).encode()).hexdigest()


class Memmap:
    """Reads short samples of a file of tokens, at random places."""
    @staticmethod
    def make(directory: Path) -> None:
        with (directory / "tokens.bin").open("wb") as file:
            for number in range(MAPPED // MEGABYTE):
                file.write(random_bytes(number, MEGABYTE))

    @staticmethod
    def read(directory: Path) -> str:
        import numpy
        digest = hashlib.blake2b()
        tokens = numpy.memmap(directory / "tokens.bin", dtype="u1", mode="r")
        places = random.Random(2)
        for _ in range(MAPPED_READS):
            at = places.randrange(len(tokens) - MAPPED_READ)
            digest.update(tokens[at:at + MAPPED_READ].tobytes())
        return digest.hexdigest()


class Safetensors:
    """Maps a checkpoint and reads all its tensors."""
    @staticmethod
    def make(directory: Path) -> None:
        import numpy
        from safetensors.numpy import save_file
        save_file(
            {
                f"t{number}": numpy.frombuffer(random_bytes(number, TENSOR), dtype="u1")
                for number in range(TENSORS)
            }, directory / "model.safetensors")

    @staticmethod
    def read(directory: Path) -> str:
        from safetensors import safe_open
        digest = hashlib.blake2b()
        with safe_open(directory / "model.safetensors", framework="numpy") as file:
            for name in sorted(file.keys()):
                digest.update(file.get_tensor(name)[::4096].tobytes())
        return digest.hexdigest()


class Torch:
    """Reads all tensors of a checkpoint, by torch.load."""
    @staticmethod
    def make(directory: Path) -> None:
        import torch
        made = {
            f"t{number}": torch.frombuffer(bytearray(random_bytes(number, TENSOR)),
                                           dtype=torch.uint8) for number in range(TENSORS)
        }
        torch.save(made, directory / "model.pt")

    @staticmethod
    def read(directory: Path) -> str:
        import torch
        digest = hashlib.blake2b()
        loaded = torch.load(directory / "model.pt")
        for name in sorted(loaded):
            digest.update(loaded[name][::4096].contiguous().numpy().tobytes())
        return digest.hexdigest()


class WebDataset(Tar):
    """Reads the shards of Tar with the loader of webdataset."""
    @staticmethod
    def read(directory: Path) -> str:
        import webdataset
        digest = hashlib.blake2b()
        shards = [str(path) for path in sorted(directory.glob("*.tar"))]
        for sample in webdataset.WebDataset(shards, shardshuffle=False, empty_check=False):
            digest.update(sample["jpg"][:64])
        return digest.hexdigest()


class Mds:
    """Reads all samples of an MDS data set, in the order of the files."""
    @staticmethod
    def make(directory: Path) -> None:
        from streaming import MDSWriter
        with MDSWriter(out=str(directory / "set"), columns={"x": "bytes"},
                       size_limit=64 << 20) as to:
            for number in range(RECORDS):
                to.write({"x": random_bytes(number, RECORD)})

    @staticmethod
    def read(directory: Path) -> str:
        from streaming import LocalDataset
        digest = hashlib.blake2b()
        of = LocalDataset(str(directory / "set"))
        for number in range(len(of)):
            digest.update(of[number]["x"][:64])
        return digest.hexdigest()


class TfRecord:
    """Reads all records of two files, with tensorflow."""
    @staticmethod
    def make(directory: Path) -> None:
        import tensorflow
        for part in range(2):
            with tensorflow.io.TFRecordWriter(str(directory / f"{part}.tfrecord")) as to:
                for number in range(RECORDS // 2):
                    to.write(random_bytes(part * RECORDS + number, RECORD))

    @staticmethod
    def read(directory: Path) -> str:
        import tensorflow
        digest = hashlib.blake2b()
        files = [str(path) for path in sorted(directory.glob("*.tfrecord"))]
        for record in tensorflow.data.TFRecordDataset(files).prefetch(4):
            digest.update(record.numpy()[:64])
        return digest.hexdigest()


class Arrow:
    """Reads a data set of Hugging Face, whose arrow files are mapped, row by row."""
    @staticmethod
    def make(directory: Path) -> None:
        import datasets
        rows = datasets.Dataset.from_generator(
            lambda: ({"x": random_bytes(number, RECORD)} for number in range(RECORDS)),
            cache_dir=str(directory / "cache"))
        rows.save_to_disk(str(directory / "set"))
        shutil.rmtree(directory / "cache")

    @staticmethod
    def read(directory: Path) -> str:
        import datasets
        digest = hashlib.blake2b()
        for row in datasets.load_from_disk(str(directory / "set")):
            digest.update(row["x"][:64])
        return digest.hexdigest()


class Duckdb(Parquet):
    """Reads 3 columns of 20, with duckdb."""
    @staticmethod
    def read(directory: Path) -> str:
        import duckdb
        sums = ", ".join(f"sum(c{column * 7})" for column in range(WANTED_COLUMNS))
        with duckdb.connect() as session:
            return repr([
                round(x)
                for x in session.sql(f"select {sums} from '{directory}/set.parquet'").fetchall()[0]
            ])


class Polars(Parquet):
    """Reads 3 columns of 20, with polars."""
    @staticmethod
    def read(directory: Path) -> str:
        import polars
        columns = [f"c{column * 7}" for column in range(WANTED_COLUMNS)]
        return repr([
            round(x)
            for x in polars.scan_parquet(directory /
                                         "set.parquet").select(columns).sum().collect().row(0)
        ])


CASES = {
    "tar": Tar, "shards": Shards, "hdf5": Hdf5, "parquet": Parquet, "memmap": Memmap,
    "safetensors": Safetensors, "torch": Torch, "webdataset": WebDataset, "mds": Mds,
    "tfrecord": TfRecord, "arrow": Arrow, "duckdb": Duckdb, "polars": Polars
}


def main() -> int:
    what, name, where = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    case = CASES[name]
    if what == "make":
        case.make(where)
        return 0
    for _ in sys.stdin:
        began = time.monotonic_ns()
        digest = case.read(where)
        print(json.dumps({"wall_ns": time.monotonic_ns() - began, "digest": digest}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
