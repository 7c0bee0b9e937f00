"""Times are the same instants in every time zone that a session or a machine may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.cli.pipeline_preview import previewed
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.fixtures import pipeline_output, run_tests
from penstock.pipelines.engine.table_runs import RunLog, rows_of
from penstock.pipelines.sinks import Destination
from penstock.pipelines.sinks.delta import DeltaSink
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.sinks.shaping import as_json, as_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[SparkSession]:
    before = str(spark.conf.get(ZONE))
    spark.conf.set(ZONE, "Europe/Berlin")
    yield spark
    spark.conf.set(ZONE, before)


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process, in which PySpark returns times."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


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


# Pipelines compute in UTC, whatever the machine's zone is and the file says.


def test_an_example_on_a_machine_in_new_york() -> None:
    command = [sys.executable, "-m", "penstock", "pipeline", "test", str(EXAMPLES / "lake.yaml")]

    done = subprocess.run(command, env={**os.environ, "TZ": "America/New_York"}, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 0 failed" in done.stdout


TIMES = """\
name: times
spark: {{spark.sql.session.timeZone: Asia/Tokyo}}
sources:
  views:
    topic: views
    value: {{format: json, schema: "at TIMESTAMP, said STRING"}}
steps:
  rows:
    sql: |
      SELECT at, CAST(at AS TIMESTAMP_NTZ) AS wall, struct(array(at) AS all) AS inner, map('a', at) AS named, said
      FROM views
sinks:
  lake: {{from: rows, format: json, path: lake}}
  copies: {{from: rows, topic: copies}}
tests:
  - name: times
    given: {{views: [{{value: {{at: "2026-05-01T08:00:00", said: "2026-05-01T08:00:00Z"}}}}]}}
    expect:
      lake: [{{{row}}}]
      copies: [{{value: {{{row}}}}}]
"""


def times(row: str, place: Path) -> Loaded:
    (place / "times.yaml").write_text(TIMES.format(row=row))
    return load_checked(str(place / "times.yaml"))[0]


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    "text",
    [
        "2026-05-01T08:00:00Z",
        "2026-05-01T08:00:00.000Z",
        "2026-05-01T08:00:00",
        "2026-05-01 08:00:00.000000",
        "2026-05-01T10:00:00+02:00",
    ],
)
def test_times_in_tests_are_compared_as_instants(text: str, spark: SparkSession, tmp_path: Path) -> None:
    row = f'at: "{text}", inner: {{all: ["{text}"]}}, named: {{a: "{text}"}}'

    assert [result.differences for result in run_tests(times(row, tmp_path), spark)] == [[]]


ONE_PLAN = """\
name: one-plan
sources:
  views:
    topic: views
    value: {format: json, schema: "at TIMESTAMP"}
sinks:
  copies: {from: views, topic: copies, key: at}
tests:
  - name: as instants, in milliseconds
    given: {views: [{value: {at: "2026-05-01T08:00:00.123456"}}]}
    expect:
      copies: [{key: "2026-05-01 08:00:00.123456", value: {at: "2026-05-01T10:00:00.123+02:00"}}]
"""


@pytest.mark.usefixtures("new_york")
def test_times_in_records_that_are_made_in_one_plan(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "one-plan.yaml").write_text(ONE_PLAN)
    loaded, _ = load_checked(str(tmp_path / "one-plan.yaml"))

    assert [result.differences for result in run_tests(loaded, spark)] == [[]]


@pytest.mark.usefixtures("new_york")
def test_times_that_differ_are_shown_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    (result,) = run_tests(times('at: "2026-05-01T08:00:00-04:00"', tmp_path), spark)

    assert [each.partition(", ")[0] for each in sorted(result.differences)] == [
        'sink "copies": missing {"value": {"at": "2026-05-01T08:00:00-04:00"}}',
        'sink "copies": unexpected {"topic": "copies"',
        'sink "lake": missing {"at": "2026-05-01T08:00:00-04:00"}',
        'sink "lake": unexpected {"at": "2026-05-01T08:00:00Z"',
    ]
    (of_topic,) = [each for each in result.differences if 'unexpected {"topic"' in each]
    assert '"value": {"at": "2026-05-01T08:00:00.000Z", "wall": "2026-05-01T08:00:00.000"' in of_topic


@pytest.mark.usefixtures("new_york")
def test_text_is_compared_as_text(spark: SparkSession, tmp_path: Path) -> None:
    """A STRING may look like a time, and a TIMESTAMP_NTZ is no instant."""
    (same,) = run_tests(times('said: "2026-05-01T08:00:00Z"', tmp_path), spark)
    (other,) = run_tests(times('said: "2026-05-01T08:00:00.000Z"', tmp_path), spark)
    (wall,) = run_tests(times('wall: "2026-05-01T08:00:00Z"', tmp_path), spark)

    assert (same.differences, len(other.differences), len(wall.differences)) == ([], 4, 4)


@pytest.mark.usefixtures("new_york")
def test_what_is_written_has_times_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    """From the first year to the last, also at the end of summer time."""
    given = ("2026-05-01T08:00:00.5", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z")
    ends = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z")
    views = [{"value": {"at": text}} for text in (*given, *ends)]

    written = pipeline_output(times("", tmp_path), spark, {"views": views})

    expected = ["2026-05-01T08:00:00.500000Z", *given[1:], *ends]
    assert [(row["at"], row["inner"], row["named"]) for row in written.sinks["lake"]] == [
        (text, {"all": [text]}, {"a": text}) for text in expected
    ]
    assert [row["wall"] for row in written.sinks["lake"]] == [text.removesuffix("Z") for text in expected]


PREVIEWED = """\
name: previewed
sources:
  views: {format: json, path: views, mode: snapshot, schema: "at TIMESTAMP"}
steps:
  rows:
    sql: |
      SELECT at, to_date(at) AS day, date_trunc('DAY', at) AS day_start, hour(at) AS h,
        CAST(at AS TIMESTAMP_NTZ) AS wall, map(at, 1) AS by_time
      FROM views
sinks:
  out: {from: rows, topic: out}
"""


@pytest.mark.usefixtures("new_york")
def test_a_preview_shows_times_in_utc(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "views").write_text('{"at": "2026-05-01T02:30:00+02:00"}')
    (tmp_path / "previewed.yaml").write_text(PREVIEWED)
    loaded, _ = load_checked(str(tmp_path / "previewed.yaml"))

    def shown(*, as_json: bool) -> str:
        previewed(loaded, "rows", "", lambda: spark, limit=10, records=None, as_json=as_json)
        return capsys.readouterr().out

    at = "2026-05-01T00:30:00Z"
    row: dict[str, Any] = {"at": at, "day": "2026-05-01", "day_start": "2026-05-01T00:00:00Z", "h": 0}
    row |= {"wall": "2026-05-01T00:30:00", "by_time": {at: 1}}
    assert json.loads(shown(as_json=True))["rows"] == [row]
    assert shown(as_json=False).splitlines()[1].split(maxsplit=5) == [
        *map(str, [*row.values()][:5]),
        f'{{"{at}": 1}}',
    ]
