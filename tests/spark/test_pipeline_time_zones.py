"""Times are the same instants in every time zone that a session may have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from penstock.pipelines.engine.table_runs import RunLog, rows_of
from penstock.pipelines.sinks import Destination
from penstock.pipelines.sinks.delta import DeltaSink
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.sinks.shaping import as_json, as_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[SparkSession]:
    before = str(spark.conf.get(ZONE))
    spark.conf.set(ZONE, "Europe/Berlin")
    yield spark
    spark.conf.set(ZONE, before)


def test_texts_of_times(berlin: SparkSession) -> None:
    """Until 1893 Berlin was 53 minutes and 28 seconds ahead."""
    times = ("1890-01-01 12:00:00.000001", "1969-12-31 23:59:59.999999", "2026-10-25 00:30:00", "2026-10-25 01:30:00")
    given = ", ".join(f"(TIMESTAMP '{time}Z', array(TIMESTAMP '{time}Z'))" for time in times)
    frame = berlin.sql(f"SELECT * FROM VALUES {given}, (NULL, NULL) AS t(at, all)")
    expected = [f"{time.replace(' ', 'T').partition('.')[0]}.{time.partition('.')[2] or '0':0<6}Z" for time in times]

    texts = [tuple(row) for row in as_text(frame).collect()]
    documents = [row[0] for row in frame.select(as_json(frame)).collect()]

    assert texts == [*((time, f'["{time}"]') for time in expected), (None, None)]
    assert documents[:-1] == [f'{{"at":"{time}","all":["{time}"]}}' for time in expected]


def test_times_in_partitions_of_delta(berlin: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    to = Destination("shop", "orders", "lake", path, ("at",))

    DeltaSink(to).write(berlin.sql("SELECT 1L AS id, TIMESTAMP '2026-05-01 12:00:00.5Z' AS at"), 0)

    (row,) = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert row["at"] == datetime(2026, 5, 1, 12, 0, 0, 500_000, UTC)


def test_a_cursor_goes_on_in_another_zone(berlin: SparkSession, tmp_path: Path) -> None:
    rows = "SELECT id, TIMESTAMP '2026-10-25 00:30:00Z' + make_interval(0, 0, 0, 0, id) AS at FROM range({})"
    log = RunLog(Files(berlin, str(tmp_path)), str(tmp_path))

    def increment(count: int) -> list[int]:
        table = berlin.sql(rows.format(count))
        run = log.next(table, "at")
        assert run is not None
        found = [row["id"] for row in rows_of(table, "at", run).orderBy("id").collect()]
        log.done(run)
        return found

    assert increment(2) == [0, 1]  # the same hour twice, in Berlin
    berlin.conf.set(ZONE, "UTC")
    assert increment(4) == [2, 3]
