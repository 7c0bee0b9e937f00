"""The pipelines of examples/ at volume, from topics to topics and tables, beside the same computed by DuckDB.

Twelve hours of events, skewed, a little out of order, some of them late and some poison, replayed in half hours: what
comes out is what windows, watermarks and decoding say, row by row; every late row is missing and counted, and every
poison record is a dead letter. `PENSTOCK_VOLUME=200000 make soak ARGS=tests/spark/test_pipeline_volume.py` has fewer
events than the five million of each example.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.arrow import Writer, read_table
from penstock.demo.events import HOUR_MS, STREAMS, Event, Stream
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.runner import Runner
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import TopicSink, TopicSource
from spark.example_outputs import EXAMPLES, Expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Cluster

FILES = Path(__file__).parents[2] / "examples" / "pipelines"
VOLUME = int(os.environ.get("PENSTOCK_VOLUME", "5000000"))
BATCH_MS = HOUR_MS // 2
CHUNK = 50_000
PARTITIONS = 4
EVENTS_A_KEY = {"activity": 50, "fleet": 720, "lake": 50}
"""So few that users fall silent and trucks stand for a while; elsewhere there are a hundred keys."""
LATE_STEPS = {"activity": "sessions", "feeds": "once", "fleet": "trucks", "logs": "rates", "metrics": "by_minute"}
"""A query of each example that drops late rows."""


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_at_volume(name: str, spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    keys = max(100, VOLUME // EVENTS_A_KEY.get(name, VOLUME))
    # None is late in the first five hours: of the others two in a hundred, of all one.
    stream = Stream(step_ms=12 * HOUR_MS / VOLUME, late=0.02, keys=keys)

    _check(name, stream, VOLUME, spark, cluster, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_sessions_with_late_rows(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """A quick look: four hours of page views, of which the last have late rows."""
    stream = Stream(
        step_ms=4 * HOUR_MS / 3000, keys=100, late=0.05, late_ms_min=5 * HOUR_MS // 2, late_ms_max=3 * HOUR_MS
    )

    _check("activity", stream, 3000, spark, cluster, tmp_path, only="sessions")


def _check(
    name: str, stream: Stream, count: int, spark: SparkSession, cluster: Cluster, place: Path, *, only: str = ""
) -> None:
    """`place`: where checkpoints and tables go. `only`: one query, and what it writes."""
    expected = Expected(EXAMPLES[name])
    given = {"table": str(place / "table")} if name == "lake" else {}
    loaded, _ = load_checked(str(FILES / f"{name}.yaml"), given=given)
    topics = _topics(loaded)
    for topic in topics:
        cluster.create_topic(topic, PARTITIONS, configs={"retention.ms": "-1"})
    try:
        with Writer(cluster.bootstrap) as writer:
            for events in _chunks(islice(STREAMS[name](stream), count)):
                expected.add(events)
                _produce(writer, events)
        expected.finish()
        batches = round(count * stream.step_ms / BATCH_MS)
        paced = _paced(loaded, expected.counts, batches, place)
        runner = Runner(paced, spark, cluster.bootstrap, only=(only,) if only else ())

        runner.run_once()

        for sink in [sink for query in runner.queries.values() for sink in query.sinks]:
            assert expected.differences(sink, _written(loaded, sink, expected, cluster, place)) == {}
            assert expected.count(sink)
        if not only:
            letters = read_table(cluster.bootstrap, loaded.pipeline.dead_letter_topic, columns=["value", "headers"])
            assert expected.letters
            assert Counter(map(_letter, letters.to_pylist())) == Counter(expected.letters)
        if name in LATE_STEPS:
            _check_late_rows(name, expected, runner)
    finally:
        with cluster.admin() as admin:
            for topic in topics:
                admin.topics.delete(topic)


def _check_late_rows(name: str, expected: Expected, runner: Runner) -> None:
    """Spark counts them after it has put those of a batch together that belong to one window of one key."""
    late = sum(expected.late.values())
    assert late
    assert 0 < runner.status[LATE_STEPS[name]].report().late_rows <= late


def _chunks(events: Iterator[Event]) -> Iterator[list[Event]]:
    while chunk := list(islice(events, CHUNK)):
        yield chunk


def _produce(writer: Writer, events: list[Event]) -> None:
    by_topic: dict[str, list[Event]] = {}
    for event in events:
        by_topic.setdefault(event.topic, []).append(event)
    for topic, some in by_topic.items():
        columns = {
            "key": pa.array([event.key for event in some], pa.binary()),
            "value": pa.array([event.value for event in some], pa.binary()),
            "timestamp": pa.array([event.timestamp_ms for event in some], pa.timestamp("ms", "UTC")),
        }
        writer.write(topic, pa.table(columns), timestamp="timestamp")


def _topics(loaded: Loaded) -> list[str]:
    """Of all sources and sinks; routing writes to those that its rows name."""
    pipeline = loaded.pipeline
    named = [topic for source in pipeline.sources.values() if isinstance(source, TopicSource) for topic in source.topic]
    named += [sink.topic for sink in pipeline.sinks.values() if isinstance(sink, TopicSink) and sink.topic]
    if pipeline.name == "routing":
        named += ["notify.mail", "notify.sms", "notify.push"]
    return sorted({*named, pipeline.dead_letter_topic})


def _paced(loaded: Loaded, counts: dict[str, int], batches: int, place: Path) -> Loaded:
    """All sources in as many batches, so that one hour is read of all of them at once."""
    sources: dict[str, Any] = {}
    for name, source in loaded.pipeline.sources.items():
        assert isinstance(source, TopicSource)
        written = sum(counts.get(topic, 0) for topic in source.topic) or sum(counts.values())
        sources[name] = replace(source, max_records=-(-written // batches))
    return replace(loaded, pipeline=replace(loaded.pipeline, sources=sources, checkpoints=str(place / "checkpoints")))


def _written(loaded: Loaded, name: str, expected: Expected, cluster: Cluster, place: Path) -> pa.Table:
    """What a sink wrote, with the fields that are compared."""
    sink = loaded.pipeline.sinks[name]
    fields = expected.example.found[name]
    if not isinstance(sink, TopicSink):
        table = DeltaTable(str(place / "table")).to_pyarrow_table()
        places = set(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        assert len(places) == len(table)
        times = table["at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        return table.append_column("ms", times)
    topics = [sink.topic] if sink.topic else ["notify.mail", "notify.sms", "notify.push"]
    rows: list[Any] = []
    for topic in topics:
        values = read_table(cluster.bootstrap, topic, value="string", columns=["value"])["value"].to_pylist()
        rows += [json.loads(value) for value in values]
    return pa.table({field: [row[field] for row in rows] for field in fields})


def _letter(row: dict[str, Any]) -> tuple[str, bytes | None]:
    headers = {each["key"]: each["value"].decode() for each in row["headers"]}
    return headers["dead-letter.topic"], row["value"]
