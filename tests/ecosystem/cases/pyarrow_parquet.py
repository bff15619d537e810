"""pyarrow: a data set of parquet files, by its own reader and by memory map of arrow files."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from job import digest

TITLE = "pyarrow dataset, 24 parquet files of 2 MB"
VENV = "data"
PACKAGES = ("pyarrow",)


def table_of(number, rows=40_000):
    random = np.random.default_rng(number)
    return pa.table({
        "key": np.arange(rows, dtype=np.int64) + number * rows, "value": random.standard_normal(
            (rows * 5,))[::5],
        "text": pa.array([f"{n:x}" * 3 for n in random.integers(0, 1 << 40, rows)])
    })


def make(_, data):
    for number in range(24):
        pq.write_table(table_of(number), data / f"{number:03}.parquet", row_group_size=10_000)


def add_table(epoch, table):
    for batch in table.combine_chunks().to_batches():
        for column in batch.columns:
            if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
                column = column.cast(pa.string())
            epoch.add_digest(digest(*(buffer for buffer in column.buffers() if buffer is not None)))


def reader(data):
    def read(epoch):
        for fragment in ds.dataset(str(data), format="parquet").get_fragments():
            add_table(epoch, fragment.to_table())

    return read
