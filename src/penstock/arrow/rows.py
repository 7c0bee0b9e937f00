"""Prepares a table for writing: cuts it into pieces, and converts each piece to the columns that make records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrow.encoding import (
    ByteColumn,
    HeaderColumns,
    Serializer,
    byte_column,
    column,
    header_columns,
    no_headers,
    nulls,
    serialized,
    timestamps,
)
from penstock.records.columnar import Longs

PIECE_BYTES = 64 * 1024 * 1024
PIECE_ROWS_MAX = 1_000_000


class Rows(NamedTuple):
    """A piece of a table, ready to be encoded."""

    keys: ByteColumn
    values: ByteColumn
    headers: HeaderColumns
    timestamps: Longs


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The column for each part of a record. None: keys and headers come from columns of that name, if there are any."""

    key: str | None
    value: str | None
    headers: str | None
    partition: str | None
    timestamp: str | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None


def pieces_of(table: Any) -> Iterator[Any]:
    """Record batches that are large enough for a round of requests, and small enough to be in memory twice."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif not isinstance(table, pa.Table):
        table = pa.table(table)
    rows = len(table)
    if not rows:
        return
    size = max(1, min(PIECE_ROWS_MAX, PIECE_BYTES * rows // max(table.nbytes, 1)))
    for start in range(0, rows, size):
        yield from table.slice(start, size).combine_chunks().to_batches()


def rows_of(topic: str, piece: Any, names: ColumnNames, first_row: int) -> Rows:
    count = len(piece)
    value_name = "value" if names.value is None else names.value
    key_name = names.key or ("key" if "key" in piece.schema.names else None)
    headers_name = names.headers or ("headers" if "headers" in piece.schema.names else None)
    values = _bytes(topic, piece, value_name, "value", names.value_serializer, first_row)
    keys = nulls(count) if key_name is None else _bytes(topic, piece, key_name, "key", names.key_serializer, first_row)
    if headers_name is None:
        headers = no_headers(count)
    else:
        headers = header_columns(column(piece, headers_name, "headers"), headers_name, first_row)
    now_ms = time.time_ns() // 1_000_000
    times: Longs
    if names.timestamp is None:
        times = np.full(count, now_ms, np.int64)
    else:
        times = timestamps(column(piece, names.timestamp, "timestamp"), names.timestamp, now_ms)
    return Rows(keys, values, headers, times)


def _bytes(topic: str, piece: Any, name: str, what: str, serializer: Serializer | None, first_row: int) -> ByteColumn:
    array = column(piece, name, what)
    if serializer is None:
        return byte_column(array, name)
    return serialized(array, name, serializer, topic, first_row)
