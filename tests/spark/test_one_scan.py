"""Frames over one input, united: the rows of a union, from one scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from penstock.pipelines.engine.one_scan import NULL_FOR_NULL, NotOnePlan, united

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = [(1, "a,b", 10), (2, "", 0), (3, None, 5), (4, "c", 0), (5, "d,e,f", -3), (6, "x,", 7)]


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    """Of a file format, so that its scans can be counted in plans."""
    frame = spark.createDataFrame(ROWS, "id INT, words STRING, n INT").repartition(2).cache()
    frame.createOrReplaceTempView("numbers")
    return frame


def frames(spark: SparkSession, numbers: DataFrame) -> list[DataFrame]:
    from pyspark.sql import functions as f

    def step(name: str, sql: str) -> DataFrame:
        made = spark.sql(sql)
        made.createOrReplaceTempView(name)
        return made

    # Without the filter the division fails: Spark's SQL is ANSI's.
    step("divided", "SELECT id, words, 100 DIV n AS part, n FROM numbers WHERE n <> 0")
    split = step("parts", "SELECT id, part, word FROM divided LATERAL VIEW explode(split(words, ',')) AS word")
    outer = step("outer", "SELECT id, pos, w FROM numbers LATERAL VIEW OUTER posexplode(split(words, ',')) AS pos, w")
    chained = step("long", "SELECT id, word, letter FROM parts LATERAL VIEW explode(split(word, '')) AS letter")

    def encode(row):  # type: ignore[no-untyped-def]
        return None if row is None else f"<{row.id + 1}>"  # fails for a row without id

    encode.__name__ = NULL_FOR_NULL
    encoder = f.udf(encode, "string")
    encoded = spark.sql("SELECT struct(id, words) AS row FROM divided WHERE part > 0").select(encoder("row").alias("x"))
    return [
        numbers.selectExpr("cast(id AS STRING) AS x"),
        spark.table("divided").selectExpr("concat('divided ', part) AS x"),
        numbers.filter("n = 0").selectExpr("concat('zero ', id) AS x"),
        split.filter("word <> ''").selectExpr("concat('word ', word, part) AS x"),
        outer.selectExpr("concat_ws(' ', 'outer', id, pos, w) AS x"),
        chained.selectExpr("concat('letter ', letter) AS x"),
        encoded,
    ]


def test_the_rows_of_a_union_from_one_scan(spark: SparkSession, numbers: DataFrame) -> None:
    parts = frames(spark, numbers)
    apart = Counter((number, row.x) for number, frame in enumerate(parts) for row in frame.collect())

    together = united(parts)

    assert Counter((row.output, row.x) for row in together.collect()) == apart
    assert len({number for number, _ in apart}) == len(parts)
    plan = together._jdf.queryExecution().executedPlan().toString().partition("== Initial Plan ==")[0]
    assert plan.count("InMemoryTableScan") == 1


def test_one_frame_stays_as_it_is(spark: SparkSession, numbers: DataFrame) -> None:
    rows = united([numbers.select("id")]).collect()

    assert sorted((row.output, row.id) for row in rows) == [(0, each[0]) for each in ROWS]


def refused(spark: SparkSession, make: Callable[[], list[DataFrame]]) -> str:
    with pytest.raises(NotOnePlan) as raised:
        united(make())
    return str(raised.value)


def test_what_cannot_be_united(spark: SparkSession, numbers: DataFrame) -> None:
    from pyspark.sql import functions as f

    function = f.udf(lambda n: n // 1, "int")
    plain = numbers.select("id")

    behind = refused(spark, lambda: [plain, numbers.filter("n <> 0").select(function("n").alias("id"))])
    assert behind == "Spark would call its Python functions on rows of other outputs"
    assert refused(spark, lambda: [plain, spark.range(3)]) == "its outputs are not made of the same rows"
    assert (
        refused(spark, lambda: [plain, numbers.distinct().select("id")]) == "its outputs are not made of the same rows"
    )
    rows = united([plain, numbers.select(function("n").alias("id"))]).collect()  # every row is its own: no filter
    assert Counter(row.output for row in rows) == {0: len(ROWS), 1: len(ROWS)}
