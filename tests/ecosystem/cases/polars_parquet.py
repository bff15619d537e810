"""polars: scan_parquet over the files of pyarrow_parquet."""

import polars as pl

TITLE = "polars scan_parquet, 24 files of 2 MB"
VENV = "data"
PACKAGES = ("polars",)
DATA = "pyarrow_parquet"


def reader(data):
    files = sorted(data.glob("*.parquet"))

    def read(epoch):
        for file in files:
            frame = pl.scan_parquet(file).collect()
            epoch.add(frame["key"].to_numpy(), frame["value"].to_numpy(), "".join(frame["text"]))

    return read
