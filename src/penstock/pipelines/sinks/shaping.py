"""Converts rows to text and JSON, for servers with types of their own: Spark writes a form that all of them read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipelines.sinks.destination import ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_UTC = {"timeZone": "UTC"}  # other zones had offsets with seconds, which no such text has
ORDER = "__order"


def as_text(frame: DataFrame) -> DataFrame:
    """Each column in the form that SQL databases read from a file: times with their zone, bytes as \\x..., other types
    that are not scalar as JSON."""
    return frame.select(*(_text(field).alias(field.name) for field in frame.schema.fields))


def as_json(frame: DataFrame, *, times: str = TIMES, binary: str = "") -> Column:
    """The row as one document, NULLs included, without its origin. `binary`: write bytes in hexadecimal after this
    prefix; without it in base 64."""
    from pyspark.sql import functions as f

    columns = [
        f.concat(f.lit(binary), f.hex(_column(field))).alias(field.name)
        if binary and field.dataType.typeName() == "binary"
        else _column(field).alias(field.name)
        for field in frame.schema.fields
        if field.name != ORIGIN
    ]
    return f.to_json(f.struct(*columns), {"ignoreNullFields": "false", "timestampFormat": times, **_UTC})


def time_text(column: Column) -> Column:
    """A TIMESTAMP as text, the same in every session. Only writers of files take a time zone."""
    from pyspark.sql import functions as f

    return f.when(column.isNotNull(), f.to_csv(f.struct(column), {"timestampFormat": TIMES, **_UTC}))


def in_order_by(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Rows with the same key are in one partition, in their original order."""
    from pyspark.sql import functions as f

    columns = [f.col(f"`{name}`") for name in key]
    numbered = frame.withColumn(ORDER, f.monotonically_increasing_id())
    return numbered.repartition(*columns).sortWithinPartitions(ORDER).drop(ORDER)


def having(rows: DataFrame, others: DataFrame, key: Sequence[str], kind: str) -> DataFrame:
    """The rows that have the key of one of the others (left_semi), or of none (left_anti). NULL is a key like any
    other."""
    from pyspark.sql import functions as f

    names = [name.replace("`", "``") for name in key]
    keys = others.select(*(f.col(f"`{name}`").alias(f"__key_{index}") for index, name in enumerate(names)))
    same = f.lit(True)
    for index, name in enumerate(names):
        same = same & f.col(f"`{name}`").eqNullSafe(f.col(f"__key_{index}"))
    return rows.join(keys, same, kind)


def _text(field: StructField) -> Column:
    from pyspark.sql import functions as f

    kind, column = field.dataType.typeName(), _column(field)
    if kind == "binary":
        return f.concat(f.lit("\\x"), f.hex(column))
    if kind == "timestamp":
        return time_text(column)
    if _nested(field.dataType):
        return f.to_json(column, {"ignoreNullFields": "false", "timestampFormat": TIMES, **_UTC})
    return column.cast("string")


def _nested(kind: DataType) -> bool:
    return kind.typeName() in ("array", "map", "struct")


def _column(field: StructField) -> Column:
    from pyspark.sql import functions as f

    return f.col(f"`{field.name.replace('`', '``')}`")
