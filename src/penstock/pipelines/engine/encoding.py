"""Encodes rows as records for topics, including dead letters."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from penstock.pipelines.check import codecs
from penstock.pipelines.engine.tables import REASON, DeadRows
from penstock.pipelines.spec.model import METADATA_COLUMNS, TopicSink
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADER = "struct<key:string,value:binary>"


def records(frame: DataFrame, sink: TopicSink, directory: str) -> DataFrame:
    """Columns topic, key, value, headers."""
    from pyspark.sql import functions as f

    topic = f.lit(sink.topic) if sink.topic else f.expr(sink.topic_expression).cast("string")
    headers = [_header(name, f.expr(text)) for name, text in sink.headers.items()]
    return frame.select(
        topic.alias("topic"),
        _bytes(frame, sink.key).alias("key"),
        _value(frame, sink, directory).alias("value"),
        (f.array(*headers) if headers else f.lit(None).cast(f"array<{_HEADER}>")).alias("headers"),
    )


def dead_letters(dead: list[DeadRows], pipeline: str, topic: str) -> DataFrame:
    """The original records, with headers that contain the reason and the origin."""
    from pyspark.sql import functions as f

    frames = [each.frame.dropDuplicates([SOURCE_ROW]) if each.multiplied else each.frame for each in dead]
    rows = reduce(lambda above, below: above.unionByName(below), frames)
    record = f.col(SOURCE_ROW)
    told = f.array(
        _header("dead-letter.reason", f.col(REASON)),
        _header("dead-letter.pipeline", f.lit(pipeline)),
        _header("dead-letter.topic", record["topic"]),
        _header("dead-letter.partition", record["partition"]),
        _header("dead-letter.offset", record["offset"]),
        _header("dead-letter.timestamp", f.unix_millis(record["timestamp"])),
    )
    told = f.filter(told, lambda header: header["value"].isNotNull())
    before = f.coalesce(record["headers"], f.array().cast(f"array<{_HEADER}>"))
    return rows.select(
        f.lit(topic).alias("topic"),
        record["key"].alias("key"),
        record["value"].alias("value"),
        f.concat(before, told).alias("headers"),
    )


def columns_written(frame: DataFrame) -> list[str]:
    """All columns except the metadata of the records they come from."""
    return [name for name in frame.columns if name not in METADATA_COLUMNS and name != SOURCE_ROW]


def _value(frame: DataFrame, sink: TopicSink, directory: str) -> Column:
    from pyspark.sql import functions as f

    coding = sink.value
    if coding.format in ("string", "bytes"):
        return f.expr(coding.column).cast("string" if coding.format == "string" else "binary").cast("binary")
    row = f.struct(*(f.col(f"`{name}`") for name in columns_written(frame)))
    if coding.format == "json":
        return f.to_json(row, {"ignoreNullFields": "false"}).cast("binary")
    codec = codecs.codec(coding, directory)
    return f.udf(lambda values: codec.encode(values), returnType="binary")(row)


def _bytes(frame: DataFrame, text: str) -> Column:
    """Binary stays as it is; anything else becomes text."""
    from pyspark.sql import functions as f

    if not text:
        return f.lit(None).cast("binary")
    column = f.expr(text)
    binary = frame.select(column).schema.fields[0].dataType.simpleString() == "binary"
    return column if binary else column.cast("string").cast("binary")


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
