"""Encodes rows as records for topics, including dead letters.

Avro and Protobuf are encoded in Python. Spark may call the encoder for rows of other sinks (`one_scan`), and their row
is NULL then: so the row is a column of its own, and NULL for NULL is what the encoder returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from penstock.pipelines.check import codecs
from penstock.pipelines.engine.one_scan import NULL_FOR_NULL
from penstock.pipelines.engine.tables import FIELD, KIND, REASON, DeadRows
from penstock.pipelines.spec.model import METADATA_COLUMNS, TopicSink
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD = ("topic", "key", "value", "headers")
TIME = "record_time"
"""Beside a record to write: the timestamp of the record it comes from, in milliseconds; NULL if it has none."""
MEASURED = (TIME, KIND)
"""What metrics are made of, and no sink gets. `KIND` is that of a dead letter's reason."""
_HEADER = "struct<key:string,value:binary>"


def records(frame: DataFrame, sink: TopicSink, directory: str) -> DataFrame:
    """Columns topic, key, value, headers, and those of `MEASURED`. `frame`: a table, with or without the record that
    each row comes from."""
    from pyspark.sql import functions as f

    topic = f.lit(sink.topic) if sink.topic else f.expr(sink.topic_expression).cast("string")
    headers = [_header(name, f.expr(text)) for name, text in sink.headers.items()]
    parts = [
        topic.alias("topic"),
        _bytes(frame, sink.key).alias("key"),
        (f.array(*headers) if headers else f.lit(None).cast(f"array<{_HEADER}>")).alias("headers"),
        _time(frame).alias(TIME),
        f.lit(None).cast("string").alias(KIND),
    ]
    if sink.value.format not in ("avro", "protobuf"):
        return frame.select(*parts, _value(frame, sink, directory).alias("value")).select(*RECORD, *MEASURED)
    encode = _encoder(codecs.writing_codec(sink.value, directory))
    return frame.select(*parts, _row(frame).alias("row")).select(
        "topic", "key", encode("row").alias("value"), "headers", *MEASURED
    )


def as_text(frame: DataFrame, *kept: str) -> DataFrame:
    """Records as the sink takes them from Penstock's own writers: with headers as text. `kept`: further columns."""
    from pyspark.sql import functions as f

    from penstock.spark.sink.columns import HEADERS_TEXT

    return frame.select("topic", "key", "value", f.to_json("headers").alias(HEADERS_TEXT), *kept)


def dead_letters(dead: list[DeadRows], pipeline: str, topic: str) -> DataFrame:
    """The original records, with headers that contain the reason and the origin; columns as those of `records`."""
    from pyspark.sql import functions as f

    frames = [each.frame.dropDuplicates([SOURCE_ROW]) if each.multiplied else each.frame for each in dead]
    rows = reduce(lambda above, below: above.unionByName(below), frames)
    record = f.col(SOURCE_ROW)
    added = f.array(
        _header("dead-letter.reason", f.col(REASON)),
        _header("dead-letter.field", f.col(FIELD)),
        _header("dead-letter.pipeline", f.lit(pipeline)),
        _header("dead-letter.topic", record["topic"]),
        _header("dead-letter.partition", record["partition"]),
        _header("dead-letter.offset", record["offset"]),
        _header("dead-letter.timestamp", f.unix_millis(record["timestamp"])),
    )
    added = f.filter(added, lambda header: header["value"].isNotNull())
    before = f.coalesce(record["headers"], f.array().cast(f"array<{_HEADER}>"))
    return rows.select(
        f.lit(topic).alias("topic"),
        record["key"].alias("key"),
        record["value"].alias("value"),
        f.concat(before, added).alias("headers"),
        f.lit(None).cast("bigint").alias(TIME),
        f.col(KIND),
    )


def columns_written(frame: DataFrame) -> list[str]:
    """All columns except the metadata of the records they come from."""
    return [name for name in frame.columns if name not in METADATA_COLUMNS and name != SOURCE_ROW]


def _value(frame: DataFrame, sink: TopicSink, directory: str) -> Column:
    from pyspark.sql import functions as f

    coding = sink.value
    if coding.format in ("string", "bytes"):
        return f.expr(coding.column).cast("string" if coding.format == "string" else "binary").cast("binary")
    text = f.to_json(_row(frame), {"ignoreNullFields": "false"}).cast("binary")
    return f.concat(f.lit(codecs.prefix(coding, directory)), text) if coding.registry else text


def _row(frame: DataFrame) -> Column:
    from pyspark.sql import functions as f

    return f.struct(*(f.col(f"`{name}`") for name in columns_written(frame)))


def _time(frame: DataFrame) -> Column:
    from pyspark.sql import functions as f

    if SOURCE_ROW not in frame.columns:
        return f.lit(None).cast("bigint")
    return f.unix_millis(f.col(SOURCE_ROW)["timestamp"])


def _encoder(codec: codecs.Codec) -> Callable[[str], Column]:
    from pyspark.sql import functions as f

    # Without annotations: Spark would take them for those of a pandas UDF.
    def encode(row):  # type: ignore[no-untyped-def]
        return None if row is None else codec.encode(row)

    encode.__name__ = NULL_FOR_NULL
    encoder: Callable[[str], Column] = f.udf(encode, returnType="binary")
    return encoder


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
