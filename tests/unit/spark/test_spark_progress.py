"""Which progress of streaming queries is published, and when."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.model.ids import TopicPartition
from penstock.spark.progress.query_progress import LOST_AFTER_MS, QueryProgress, SourceIdentity, UnreadableProgress
from penstock.spark.progress.schedule import Group, ProgressUpdate, UpdateSchedule

ORDERS = SourceIdentity("penstock: orders", bootstrap="here:9092", group="spark-orders")
RATE = SourceIdentity("rate")


def beginning(query_id: str = "q", run_id: str = "r") -> QueryProgress:
    return QueryProgress(
        query_id=query_id, run_id=run_id, name="orders", state="running", started_ms=1000, heartbeat_ms=1000
    )


def batch(number: int, end: int = 5, run_id: str = "r", **more: Any) -> dict[str, Any]:
    """As Spark tells it, of a query that reads `orders`."""
    source = {
        "description": "PythonMicroBatchStream@1",
        "endOffset": {"orders": {"0": end, "1": 3}, "topic ids": {"orders": "8bY2OhTzRhKZyc1KZkHcyw"}},
        "latestOffset": {"orders": {"0": 10, "1": 3, "2": 4}},
        "numInputRows": 8,
        "inputRowsPerSecond": 8.0,
        "processedRowsPerSecond": "Infinity",
    }
    return {
        "id": "q",
        "runId": run_id,
        "batchId": number,
        "numInputRows": 8,
        "durationMs": {"triggerExecution": 90, "addBatch": 70},
        "sources": [source],
        "sink": {"description": "NoopTable"},
        **more,
    }


def schedule_of(*sources: SourceIdentity) -> UpdateSchedule:
    schedule = UpdateSchedule()
    schedule.started(beginning(), "here:9092", sources)
    return schedule


def publish(
    schedule: UpdateSchedule, now_ms: int, *, succeeded: bool = True, hurry: bool = False
) -> list[ProgressUpdate]:
    updates = schedule.due(now_ms, hurry=hurry)
    for update in updates:
        schedule.published(update, now_ms, succeeded=succeeded)
    return updates


def test_at_most_an_update_a_second_and_a_heartbeat() -> None:
    schedule = schedule_of(ORDERS)
    assert [update.progress.batch_id for update in publish(schedule, 2000)] == [None]
    schedule.progressed(batch(0))
    assert publish(schedule, 2500) == []
    schedule.progressed(batch(1))
    assert schedule.next_due_ms() == 3000
    (update,) = publish(schedule, 3000)
    assert (update.progress.batch_id, update.progress.heartbeat_ms) == (1, 3000)
    assert publish(schedule, 12_999) == []
    assert [update.progress.heartbeat_ms for update in publish(schedule, 13_000)] == [13_000]


def test_what_a_batch_tells() -> None:
    schedule = schedule_of(ORDERS)
    operators = [
        {"operatorName": "stateStoreSave", "numRowsTotal": 4, "memoryUsedBytes": 9, "numRowsDroppedByWatermark": 2}
    ]
    more: dict[str, Any] = {"stateOperators": operators, "eventTime": {"watermark": "2026-01-02T03:04:05.678Z"}}
    schedule.progressed(batch(0, **more))
    schedule.progressed(batch(1, **more))
    (update,) = publish(schedule, 2000)
    told = update.progress
    assert (told.rows, told.rows_total, told.late_rows_dropped_total) == (8, 16, 4)
    assert (told.state_rows, told.state_memory_bytes, told.watermark_ms) == (4, 9, 1767323045678)
    assert (told.batch_ms, told.durations_ms, told.sink) == (90, {"addBatch": 70}, "NoopTable")
    (source,) = told.sources
    assert (source.lag, source.group, source.processed_rows_per_second) == (5, "spark-orders", 0.0)
    assert update.commits == {
        Group("here:9092", "spark-orders", False): {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 3}
    }
    assert QueryProgress.from_json(told.to_json()) == told


def test_a_topic_read_twice_is_committed_where_the_slower_reader_is() -> None:
    schedule = schedule_of(ORDERS, RATE, ORDERS)
    fast, slow = batch(0, end=9), batch(0, end=4)
    rate = {"description": "RateStream", "endOffset": 17, "latestOffset": 17}
    schedule.progressed({**fast, "sources": [*fast["sources"], rate, *slow["sources"]]})
    (update,) = publish(schedule, 2000)
    assert update.commits[Group("here:9092", "spark-orders", False)][TopicPartition("orders", 0)] == 4
    assert [(each.description, each.lag) for each in update.progress.sources] == [
        ("penstock: orders", 1),
        ("rate", None),
        ("penstock: orders", 6),
    ]


def test_sources_that_cannot_be_told_apart_are_told_as_spark_does() -> None:
    schedule = schedule_of(ORDERS, RATE)
    schedule.progressed(batch(0))
    (update,) = publish(schedule, 2000)
    assert update.commits == {}
    assert [(each.description, each.lag) for each in update.progress.sources] == [("PythonMicroBatchStream@1", None)]


def test_the_last_update_does_not_wait_and_is_the_last() -> None:
    schedule = schedule_of(ORDERS)
    publish(schedule, 2000)
    schedule.progressed(batch(0))
    schedule.terminated("q", "r", "no such customer" + "." * 5000)
    (update,) = publish(schedule, 2100)
    assert (update.progress.state, update.progress.batch_id) == ("failed", 0)
    assert len(update.progress.error or "") == 2000
    assert update.commits
    assert schedule.next_due_ms() is None


def test_what_is_not_published_is_counted_and_tried_again() -> None:
    schedule = schedule_of(ORDERS)
    schedule.progressed(batch(0))
    publish(schedule, 2000, succeeded=False)
    schedule.terminated("q", "r", None)
    assert publish(schedule, 2500) == []
    (update,) = publish(schedule, 3000, succeeded=False)
    assert update.progress.unpublished == 1
    (update,) = publish(schedule, 3100, hurry=True)
    assert (update.progress.unpublished, update.progress.state) == (2, "terminated")
    assert update.commits
    assert publish(schedule, 9000) == []


def test_news_while_an_update_is_published_are_for_the_next() -> None:
    schedule = schedule_of(ORDERS)
    schedule.progressed(batch(0))
    (update,) = schedule.due(2000)
    schedule.progressed(batch(1, end=6))
    schedule.published(update, 2010, succeeded=True)
    (update,) = publish(schedule, 3010)
    assert update.progress.batch_id == 1
    assert update.commits[Group("here:9092", "spark-orders", False)][TopicPartition("orders", 0)] == 6
    schedule.idle("q", "r")
    (update,) = publish(schedule, 5000)
    assert (update.progress.state, update.commits) == ("idle", {})


def test_a_run_that_was_replaced_is_not_published() -> None:
    schedule = schedule_of(ORDERS)
    schedule.started(beginning(run_id="second"), "here:9092", (ORDERS,))
    schedule.progressed(batch(7))
    schedule.terminated("q", "r", None)
    (update,) = publish(schedule, 2000)
    assert (update.run_id, update.progress.state, update.progress.batch_id) == ("second", "running", None)
    schedule.all_terminated()
    assert [update.progress.state for update in publish(schedule, 2001)] == ["terminated"]


def test_queries_that_ended_unpublished_do_not_pile_up() -> None:
    schedule = UpdateSchedule()
    for number in range(150):
        schedule.started(beginning(f"q{number}"), "away:9092", ())
        schedule.terminated(f"q{number}", "r", None)
    schedule.started(beginning("live"), "away:9092", ())
    waiting = [update.progress.query_id for update in schedule.due(2000)]
    assert len(waiting) == 101
    assert (waiting[0], waiting[-1]) == ("q50", "live")


def test_silence_is_loss_only_before_the_end() -> None:
    running = beginning()
    assert running.as_of(1000 + LOST_AFTER_MS).state == "running"
    assert running.as_of(1001 + LOST_AFTER_MS).state == "lost"
    assert dataclasses.replace(running, state="terminated").as_of(10**12).state == "terminated"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "sources": [], "operators": []}'])
def test_what_is_not_progress_is_refused(text: str) -> None:
    with pytest.raises(UnreadableProgress):
        QueryProgress.from_json(text)


def test_fields_that_are_newer_than_we_are_do_not_matter() -> None:
    told = beginning()
    text = told.to_json().replace('{"version":1', '{"version":1,"colour":"blue"', 1)
    assert QueryProgress.from_json(text) == told
