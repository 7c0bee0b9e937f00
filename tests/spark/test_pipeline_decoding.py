"""Values that Spark reads, and that are not what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.engine.decoding import ERROR, decoded
from penstock.pipelines.spec.model import Decoding, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
MORE = "not JSON: more after the object"
FAR = "JSON that does not fit the schema: {} is after the year 10000; a number in a TIMESTAMP is in seconds"


def reasons(spark: SparkSession, schema: str, *values: str | None, **options: str) -> list[str | None]:
    rows = [(None, None if value is None else value.encode(), "t", 0, n, None, None) for n, value in enumerate(values)]
    source = TopicSource(topic=("t",), value=Decoding(format="json", schema=schema, options=dict(options)))
    found = decoded(spark.createDataFrame(rows, RECORD), source, ".").orderBy("_offset").select(f"{ERROR}.reason")
    return [row["reason"] for row in found.collect()]


def test_one_record_is_one_object(spark: SparkSession) -> None:
    """Spark reads the first JSON value of a text, and says nothing of the rest."""
    more = ('{"id":1}{"id":2}', '{"id":1}\n{"id":2}\n', '{"id":1},{"id":2}', '{"id":1} x', '{"id":1,"s":"}"}\n{"id":2}')
    one = ('{"id":1}', '{"id":1}\r\n\t ', '{"s":"} {"}', '{"o":{"a":[{"b":1}, {"b":2}]}}', '{"s":"ž}"}', "", " ", None)
    schema = "id BIGINT, s STRING, o STRUCT<a: ARRAY<STRUCT<b: INT>>>"

    assert reasons(spark, schema, *more, *one) == [MORE] * len(more) + [None] * len(one)
    assert reasons(spark, schema, '{"id":01,"s":"}{"}', allowNumericLeadingZeros="true") == [None]


def test_numbers_that_are_no_seconds(spark: SparkSession) -> None:
    """A time in milliseconds would be in the year 58000, and the watermark with it."""
    schema = "at TIMESTAMP, o STRUCT<at: TIMESTAMP>"
    fine = ('{"at":1777636800}', '{"at":"9999-12-31T23:59:59.999-12:00"}', '{"at":-62135596800}', '{"o":{"at":null}}')
    far = ('{"at":1777636800000}', '{"at":1777636800000000}')

    assert reasons(spark, schema, *fine, *far, '{"o":{"at":1777636800000}}') == [
        *[None] * len(fine),
        *[FAR.format("at")] * len(far),
        FAR.format("o.at"),
    ]
