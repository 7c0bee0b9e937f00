"""The columns that make records: those of Spark's Kafka sink, with their types checked before anything runs.

Rows arrive in small record batches (`spark.sql.execution.arrow.maxRecordsPerBatch`). They are combined into pieces that
are worth a round of requests, and split by topic if there is a topic column.

Spark computes the size of what it sends to Python after every row, and with columns of lists that takes longer than all
the rest. So Penstock's own writers use a second form of headers: text, the JSON of the list, NULL for none.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from penstock.arrow.columns import HEADERS_TYPE
from penstock.arrow.errors import BadColumn
from penstock.spark.source.kafka_settings import nearest

PIECE_BYTES = 16 * 1024 * 1024
HEADERS_TEXT = "__headers"
_TEXT_OR_BYTES = (StringType, BinaryType)
_NEEDED: dict[str, str] = {
    "key": "string or binary",
    "value": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
}
# Columns that the source has besides these, so that a topic can be copied unchanged.
_PASSED_OVER = ("offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class SinkColumns:
    names: tuple[str, ...]
    topic: str | None  # the topic of all rows; None: their column says it

    def pieces(self, batches: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        """Tables for one topic each, in the order of their rows."""
        gathered: list[Any] = []
        size = 0
        for batch in batches:
            if len(batch):
                gathered.append(batch.select(self.names))
                size += batch.nbytes
            if size >= PIECE_BYTES:
                yield from self._by_topic(_with_headers(pa.Table.from_batches(gathered)))
                gathered, size = [], 0
        if gathered:
            yield from self._by_topic(_with_headers(pa.Table.from_batches(gathered)))

    def _by_topic(self, table: Any) -> Iterator[tuple[str, Any]]:
        if self.topic is not None:
            yield self.topic, table
            return
        topics = table.column("topic")
        if topics.null_count:
            row = pc.index(pc.is_null(topics), True).as_py()
            raise BadColumn(
                f"column 'topic' is null in row {row} of this task: every row needs one, or say option('topic', ...)"
            )
        table = table.drop_columns(["topic"])
        names = pc.unique(topics).to_pylist()
        for name in names:
            yield name, table if len(names) == 1 else table.filter(pc.equal(topics, name))


def _with_headers(table: Any) -> Any:
    """Parse the headers if they are text."""
    if HEADERS_TEXT not in table.column_names:
        return table
    texts = table.column(HEADERS_TEXT)
    table = table.drop_columns([HEADERS_TEXT])
    if texts.null_count == len(texts):
        return table
    return table.append_column("headers", pa.array(map(parsed_headers, texts.to_pylist()), HEADERS_TYPE))


def parsed_headers(text: str | None) -> list[tuple[str, bytes | None]] | None:
    """Spark's JSON omits NULL values and encodes bytes in base64."""
    if text is None:
        return None
    values = ((each["key"], each.get("value")) for each in json.loads(text))
    return [(key, None if value is None else base64.b64decode(value)) for key, value in values]


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    for found in schema.fields:
        if found.name == HEADERS_TEXT:
            continue
        if found.name in _NEEDED:
            if not _fits(found.name, found.dataType):
                raise BadColumn(
                    f"column {found.name!r} is of type {found.dataType.simpleString()}; the sink needs "
                    f"{_NEEDED[found.name]}: cast it, or encode it (to_json for a struct)"
                )
        elif found.name not in _PASSED_OVER:
            raise BadColumn(
                f"the sink has no column {found.name!r}, only {', '.join(_NEEDED)}: drop or rename it."
                f"{nearest(found.name, _NEEDED)}"
            )
    names = schema.fieldNames()
    if len(set(names)) != len(names):
        raise BadColumn(f"columns of the same name: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    if "value" not in names:
        raise BadColumn("there is no column 'value', which the sink needs: select ... AS value")
    if topic is None and "topic" not in names:
        raise BadColumn("no topic is given: say option('topic', ...), or have a column named topic")
    used = tuple(
        name for name in names if name == HEADERS_TEXT or (name in _NEEDED and (name != "topic" or topic is None))
    )
    return SinkColumns(used, topic)


def _fits(name: str, kind: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(kind, _TEXT_OR_BYTES)
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pair = [(each.name, type(each.dataType)) for each in kind.elementType.fields]
    return pair == [("key", StringType), ("value", BinaryType)]
