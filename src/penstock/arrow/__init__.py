"""Reads and writes topics as Arrow tables.

    table = read_table("127.0.0.1:9092", "orders", value="string")
    for batch in scan("127.0.0.1:9092", "orders", follow=True): ...
    write_table("127.0.0.1:9092", "orders", table, key="customer", value="order")

The columns are those of Spark's Kafka source. Kernels convert directly between record batches and Arrow's buffers;
numba compiles each once per machine (a second or so, at its first use). pandas, polars and DuckDB take such a table in
one line. Needs the packages of `penstock[arrow]`.
"""

from __future__ import annotations

from importlib import import_module

from penstock.serializers.base import missing

try:
    import_module("numba")
    import_module("pyarrow")
except ModuleNotFoundError as error:
    raise missing(error.name or "numba", "arrow", "penstock.arrow") from error

from penstock.arrow.columns import DEFAULT_COLUMNS, HEADERS_TYPE, TYPES
from penstock.arrow.errors import (
    ArrowError,
    BadBounds,
    BadColumn,
    BadValue,
    DataLost,
    ReadStalled,
    RecordTooLarge,
    UnreadableBatch,
    WriteFailed,
)
from penstock.arrow.scanning import Scan, read_table, scan
from penstock.arrow.writing import Writer, Written, write_table
from penstock.client.wire.transaction import Transaction
from penstock.model.ids import TopicPartition

__all__ = [
    "DEFAULT_COLUMNS",
    "HEADERS_TYPE",
    "TYPES",
    "ArrowError",
    "BadBounds",
    "BadColumn",
    "BadValue",
    "DataLost",
    "ReadStalled",
    "RecordTooLarge",
    "Scan",
    "TopicPartition",
    "Transaction",
    "UnreadableBatch",
    "WriteFailed",
    "Writer",
    "Written",
    "read_table",
    "scan",
    "write_table",
]
