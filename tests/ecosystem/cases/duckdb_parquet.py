"""duckdb: a query over the files of pyarrow_parquet, and their rows by arrow batches."""

import duckdb

TITLE = "duckdb read_parquet, 24 files of 2 MB"
VENV = "data"
PACKAGES = ("duckdb",)
DATA = "pyarrow_parquet"


def reader(data):
    files = sorted(data.glob("*.parquet"))
    connection = duckdb.connect()
    connection.execute("SET threads = 2")

    def read(epoch):
        for file in files:
            columns = connection.execute("SELECT * FROM read_parquet(?) ORDER BY key",
                                         [str(file)]).fetchnumpy()
            epoch.add(columns["key"], columns["value"], "".join(columns["text"]))

    return read
