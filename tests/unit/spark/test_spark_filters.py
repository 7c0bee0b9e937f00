"""Filters that decide where to read, and those that are left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.model.ids import TopicPartition
from penstock.spark.source.filters import push
from penstock.spark.source.planning import Piece

OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("pushed", "first", "end"),
    [
        (EqualTo(OFFSET, 7), 7, 8),
        (EqualNullSafe(OFFSET, 7), 7, 8),
        (GreaterThan(OFFSET, 7), 8, 100),
        (GreaterThanOrEqual(OFFSET, 7), 10, 100),
        (GreaterThanOrEqual(OFFSET, 70), 70, 100),
        (LessThan(OFFSET, 50), 10, 50),
        (LessThanOrEqual(OFFSET, 50), 10, 51),
        (LessThan(OFFSET, -5), 10, 10),
        (In(OFFSET, (20, 21, 22)), 20, 23),
        (In(OFFSET, ()), 10, 10),
    ],
)
def test_offsets_decide_where_to_read_exactly(pushed: Filter, first: int, end: int) -> None:
    selection, remaining = push([pushed])
    assert remaining == []
    piece = selection.narrow(Piece(TopicPartition("a", 0), 10, 100), None)
    assert set(range(piece.first, piece.end)) == set(range(max(first, 10), end))


def test_offsets_with_holes_between_are_narrowed_and_left_to_spark() -> None:
    pushed = In(OFFSET, (20, 30, None))
    selection, remaining = push([pushed])
    assert remaining == [pushed]
    assert selection.narrow(Piece(TopicPartition("a", 0), 10, 100), None)[1:] == (20, 31)


def test_partitions_and_topics_decide_where_to_read_exactly() -> None:
    filters = [IsNotNull(PARTITION), In(PARTITION, (1, 2, 3)), GreaterThan(PARTITION, 1), LessThan(TOPIC, "b")]
    selection, remaining = push(filters)
    assert remaining == []
    everywhere = [TopicPartition(topic, index) for topic in "abc" for index in range(5)]
    assert [each for each in everywhere if selection.takes(each)] == [("a", 2), ("a", 3)]


def test_a_time_says_where_to_begin_and_spark_looks_again() -> None:
    local = NOON.astimezone(timezone(timedelta(hours=5)))
    for pushed in (GreaterThanOrEqual(TIME, NOON), GreaterThan(TIME, local), EqualTo(TIME, NOON), In(TIME, (NOON,))):
        selection, remaining = push([pushed])
        assert remaining == [pushed]
        assert selection.from_time == NOON_MS
        assert selection.narrow(Piece(TopicPartition("a", 0), 10, 100), 40)[1:] == (40, 100)
    fraction, _ = push([GreaterThanOrEqual(TIME, NOON + timedelta(microseconds=300))])
    assert fraction.from_time == NOON_MS  # never later than asked


@pytest.mark.parametrize(
    "left",
    [
        LessThan(TIME, NOON),
        LessThanOrEqual(TIME, NOON),
        GreaterThan(TIME, "noon"),
        GreaterThan(TIME, NOON.replace(year=1969)),
        In(TIME, (NOON, None)),
        Not(EqualTo(OFFSET, 5)),
        EqualTo(OFFSET, None),
        EqualTo(OFFSET, 5.5),
        EqualTo(OFFSET, True),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        IsNotNull(("key",)),
        IsNull(OFFSET),
        In(PARTITION, (1, None)),
        StringStartsWith(TOPIC, "a"),
    ],
)
def test_everything_else_is_left_to_spark(left: Filter) -> None:
    selection, remaining = push([left])
    assert remaining == [left]
    assert selection == push([])[0]
