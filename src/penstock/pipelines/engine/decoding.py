"""Decodes records to columns: `value` by its format, with the record itself kept beside it.

A record that does not decode has the reason in the column `__error`, and NULL in all others; other modules decide what
happens to it. Spark reads JSON; `codecs` reads Avro and Protobuf, in Python, because Spark's own readers are not in its
PyPI package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.spec import schemas
from penstock.pipelines.spec.model import Decoding, TopicSource
from penstock.pipelines.spec.secrets import plain
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ERROR = "__error"
_VALUE, _CORRUPT = "__value", "__corrupt"
_NOT_JSON = "not JSON"
_OTHER_JSON = "JSON that does not fit the schema"


def decoded(raw: DataFrame, source: TopicSource, directory: str) -> DataFrame:
    """With the columns of the value, the metadata, `__source`, and `__error` where something can go wrong."""
    from pyspark.sql import functions as f

    record = f.struct("key", "value", "headers", "topic", "partition", "offset", "timestamp")
    metadata = [
        (f.col("key").cast("string") if source.key == "string" else f.col("key")).alias("_key"),
        *(f.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp", "headers")),
        record.alias(SOURCE_ROW),
    ]
    coding = source.value
    if coding.format in ("bytes", "string"):
        value = f.col("value").cast("string") if coding.format == "string" else f.col("value")
        return raw.select(value.alias("value"), *metadata)
    if coding.format == "json":
        columns = schemas.json_columns(coding, directory)
        parsed = raw.select(_json(coding, directory), *metadata, f.col("value").cast("string").alias("__text"))
        error = _json_error(source, columns)
        values = [f.col(f"{_VALUE}.`{name}`").alias(name) for name in columns]
    else:
        parsed = raw.select(_by_codec(coding, directory), *metadata)
        error = f.col(f"{_VALUE}.error")
        values = [
            f.col(f"{_VALUE}.value.`{name}`").alias(name) for name in schemas.columns_of_values(coding, directory)
        ]
    kept = ["_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", SOURCE_ROW]
    return parsed.select(*values, *kept, error.alias(ERROR))


def _json(coding: Decoding, directory: str) -> Column:
    from pyspark.sql import functions as f

    ddl = schemas.text(coding, directory).strip().rstrip(",")
    options = {"mode": "PERMISSIVE", **plain(coding.options), "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(f.col("value").cast("string"), f"{ddl}, {_CORRUPT} STRING", options).alias(_VALUE)


def _json_error(source: TopicSource, columns: dict[str, bool]) -> Column:
    """The first error. NULL values are not JSON objects, and are wrong only if a column must not be NULL."""
    from pyspark.sql import functions as f

    text, corrupt = f.col("__text"), f.col(f"{_VALUE}.{_CORRUPT}")
    error = f.when(corrupt.isNotNull() & f.try_parse_json(text).isNull(), _NOT_JSON)
    error = error.when(corrupt.isNotNull(), _OTHER_JSON)
    for name, nullable in columns.items():
        if not nullable:
            error = error.when(f.col(f"{_VALUE}.`{name}`").isNull(), f"{name} is null")
    if source.evolution in ("fail", "dead-letter"):
        more = f.array_except(f.expr("json_object_keys(__text)"), f.array(*(f.lit(name) for name in columns)))
        told = f.concat(f.lit("fields that the schema lacks: "), f.array_join(more, ", "))
        if source.evolution == "fail":
            told = f.raise_error(told).cast("string")
        error = error.when(f.size(more) > 0, told)
    return error


def _by_codec(coding: Decoding, directory: str) -> Column:
    from pyspark.sql import functions as f

    from penstock.pipelines.check import codecs

    codec = codecs.codec(coding, directory)
    # Without annotations: Spark would take them for those of a pandas UDF.
    decode = f.udf(lambda data: codec.decode(data), returnType=f"struct<value:{codec.spark_type()},error:string>")
    return decode(f.col("value")).alias(_VALUE)
