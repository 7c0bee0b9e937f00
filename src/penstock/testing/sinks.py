"""A conformance test for sinks of pipelines, for authors of sinks.

    from penstock.testing.sinks import SinkCase, check_sink

    def test_my_sink(spark, my_server):
        destination = Destination("shop", "orders", "lake", options={"url": my_server.url}, table="orders", key=("id",))
        check_sink(spark, SinkCase(open=lambda: MySink(destination), read=my_server.rows, keyed=True))

`check_sink` writes batches as a pipeline would, with repetitions, restarts and failures in between, and reads the
content after each. It fails with the name of the violated law. It needs a Spark session and an empty destination.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipelines.sinks import Sink

Row = Mapping[str, Any]

COLUMNS = {
    "id": "BIGINT",
    "text": "STRING",
    "number": "DOUBLE",
    "small": "INT",
    "exact": "DECIMAL(12,2)",
    "flag": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP",
    "raw": "BINARY",
    "tags": "ARRAY<STRING>",
    "nested": "STRUCT<a: INT, b: STRING>",
}
"""The columns of the written rows, with their SQL types."""

_AT = datetime.datetime(2026, 5, 1, 12, 30, 15, 250_000, tzinfo=datetime.UTC)
_TEXTS = (
    "plain",
    "",
    'it\'s "quoted", with a comma; and \\ a slash',
    "two\nlines\tand a tab",
    "žluťoučký 🐎",
    "NULL",
    "\\N",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCase:
    """A sink, and how to read what it wrote."""

    open: Callable[[], Sink]
    """Creates the sink anew, like a restarted pipeline; always for the same, initially empty destination."""
    read: Callable[[], Iterable[Row]]
    """Returns all current rows, as dictionaries of Python values: datetimes in UTC, Decimals, bytes, lists."""
    keyed: bool
    """Whether a row replaces an earlier one with the same `id`; otherwise rows are appended."""
    columns: Sequence[str] = tuple(COLUMNS)
    """The columns that the destination has types for; must include `id`."""
    texts: Sequence[str] = _TEXTS
    """The texts that it can store unchanged."""


def check_sink(session: SparkSession, case: SinkCase) -> None:
    """Check all laws, one after the other."""
    _Story(session, case).run()


class _Story:
    def __init__(self, session: SparkSession, case: SinkCase) -> None:
        self._session = session
        self._case = case
        self._sink = case.open()
        self._expected: list[dict[str, Any]] = []

    def run(self) -> None:
        first = [self._row(number, text) for number, text in enumerate(self._case.texts)]
        first.append({name: 100 if name == "id" else None for name in self._case.columns})
        self._write(first, 0)
        self._look("types, texts and NULLs are as they were written")

        self._sink.write(self._frame(first), 0)
        self._look("a batch that is written again changes nothing")
        self._restart()
        self._sink.write(self._frame(first, partitions=3), 0)
        self._look("nor does it after a restart, in other partitions")

        second = [self._row(number, f"second {number}") for number in range(200, 240)]
        with pytest.raises(Exception):  # noqa: B017  # whatever Spark makes of a task that dies
            self._sink.write(self._dying(second), 1)
        self._restart()
        self._write(second, 1)
        self._look("a batch that failed in the middle is there once when it is written again")

        self._write([], 2)
        self._look("a batch without rows changes nothing")
        third = [self._row(number, f"{turn} of {number}") for turn in ("first", "last") for number in (0, 200, 300)]
        self._write(third, 3)
        self._look("of rows with the same key the last one counts" if self._case.keyed else "rows are added")
        self._restart()
        self._sink.write(self._frame(third), 3)
        self._look("the last batch can come again after a restart, too")
        self._sink.close()
        self._look("closing changes nothing")

    # -- inside

    def _write(self, rows: list[dict[str, Any]], batch: int) -> None:
        refused = self._sink.write(self._frame(rows), batch)
        assert not refused, refused
        self._expected += rows
        if self._case.keyed:
            self._expected = list({row["id"]: row for row in self._expected}.values())

    def _restart(self) -> None:
        """Restart as after a kill: the previous sink is not closed."""
        self._sink = self._case.open()

    def _look(self, law: str) -> None:
        found = [{name: row.get(name) for name in self._case.columns} for row in self._case.read()]
        assert _sorted(found) == _sorted(self._expected), law

    def _frame(self, rows: list[dict[str, Any]], partitions: int = 2) -> DataFrame:
        schema = ", ".join(f"{name} {COLUMNS[name]}" for name in self._case.columns)
        values = [tuple(row[name] for name in self._case.columns) for row in rows]
        return self._session.createDataFrame(values, schema).coalesce(partitions)

    def _dying(self, rows: list[dict[str, Any]]) -> DataFrame:
        """Return rows of which one task has written its part when another dies."""
        from pyspark.sql import functions as f

        last = max(row["id"] for row in rows)
        dies = f.when(f.col("id") == last, f.raise_error(f.lit("killed on purpose"))).otherwise(f.col("id"))
        return self._frame(rows).withColumn("id", dies.cast("bigint"))

    def _row(self, number: int, text: str) -> dict[str, Any]:
        values = {
            "id": number,
            "text": text,
            "number": number + 0.5,
            "small": -number,
            "exact": Decimal(number) + Decimal("0.25"),
            "flag": number % 2 == 0,
            "day": datetime.date(2026, 5, 1) + datetime.timedelta(days=number),
            "at": _AT + datetime.timedelta(seconds=number),
            "raw": bytes([0, 255, number % 256]),
            "tags": [f"tag {number}", text],
            "nested": {"a": number, "b": text},
        }
        return {name: values[name] for name in self._case.columns}


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], str(row.get("text"))))
