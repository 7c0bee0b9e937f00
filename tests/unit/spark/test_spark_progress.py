"""What is said of streaming queries, and when."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.model.ids import TopicPartition
from penstock.spark.progress.publisher import Group, QueryBoard, Word
from penstock.spark.progress.query_progress import LOST_AFTER_MS, QueryProgress, SourceIdentity, UnreadableProgress

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
        "endOffset": {"orders": {"0": end, "1": 3}},
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


def board_of(*sources: SourceIdentity) -> QueryBoard:
    board = QueryBoard()
    board.started(beginning(), "here:9092", sources)
    return board


def say(board: QueryBoard, now_ms: int, *, heard: bool = True, hurry: bool = False) -> list[Word]:
    words = board.due(now_ms, hurry=hurry)
    for word in words:
        board.said(word, now_ms, heard=heard)
    return words


def test_at_most_a_word_a_second_and_a_heartbeat() -> None:
    board = board_of(ORDERS)
    assert [word.progress.batch_id for word in say(board, 2000)] == [None]
    board.progressed(batch(0))
    assert say(board, 2500) == []
    board.progressed(batch(1))
    assert board.next_due_ms() == 3000
    (word,) = say(board, 3000)
    assert (word.progress.batch_id, word.progress.heartbeat_ms) == (1, 3000)
    assert say(board, 12_999) == []
    assert [word.progress.heartbeat_ms for word in say(board, 13_000)] == [13_000]


def test_what_a_batch_tells() -> None:
    board = board_of(ORDERS)
    operators = [
        {"operatorName": "stateStoreSave", "numRowsTotal": 4, "memoryUsedBytes": 9, "numRowsDroppedByWatermark": 2}
    ]
    more = {"stateOperators": operators, "eventTime": {"watermark": "2026-01-02T03:04:05.678Z"}}
    board.progressed(batch(0, **more))
    board.progressed(batch(1, **more))
    (word,) = say(board, 2000)
    told = word.progress
    assert (told.rows, told.rows_total, told.late_rows_dropped_total) == (8, 16, 4)
    assert (told.state_rows, told.state_memory_bytes, told.watermark_ms) == (4, 9, 1767323045678)
    assert (told.batch_ms, told.durations_ms, told.sink) == (90, {"addBatch": 70}, "NoopTable")
    (source,) = told.sources
    assert (source.lag, source.group, source.processed_rows_per_second) == (5, "spark-orders", 0.0)
    assert word.commits == {
        Group("here:9092", "spark-orders", False): {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 3}
    }
    assert QueryProgress.from_json(told.to_json()) == told


def test_a_topic_read_twice_is_committed_where_the_slower_reader_is() -> None:
    board = board_of(ORDERS, RATE, ORDERS)
    fast, slow = batch(0, end=9), batch(0, end=4)
    rate = {"description": "RateStream", "endOffset": 17, "latestOffset": 17}
    board.progressed({**fast, "sources": [*fast["sources"], rate, *slow["sources"]]})
    (word,) = say(board, 2000)
    assert word.commits[Group("here:9092", "spark-orders", False)][TopicPartition("orders", 0)] == 4
    assert [(each.description, each.lag) for each in word.progress.sources] == [
        ("penstock: orders", 1),
        ("rate", None),
        ("penstock: orders", 6),
    ]


def test_sources_that_cannot_be_told_apart_are_told_as_spark_does() -> None:
    board = board_of(ORDERS, RATE)
    board.progressed(batch(0))
    (word,) = say(board, 2000)
    assert word.commits == {}
    assert [(each.description, each.lag) for each in word.progress.sources] == [("PythonMicroBatchStream@1", None)]


def test_the_last_word_does_not_wait_and_is_the_last() -> None:
    board = board_of(ORDERS)
    say(board, 2000)
    board.progressed(batch(0))
    board.terminated("q", "r", "no such customer" + "." * 5000)
    (word,) = say(board, 2100)
    assert (word.progress.state, word.progress.batch_id) == ("failed", 0)
    assert len(word.progress.error or "") == 2000
    assert word.commits
    assert board.next_due_ms() is None


def test_what_is_not_heard_is_said_again_and_counted() -> None:
    board = board_of(ORDERS)
    board.progressed(batch(0))
    say(board, 2000, heard=False)
    board.terminated("q", "r", None)
    assert say(board, 2500) == []
    (word,) = say(board, 3000, heard=False)
    assert word.progress.unsaid == 1
    (word,) = say(board, 3100, hurry=True)
    assert (word.progress.unsaid, word.progress.state) == (2, "terminated")
    assert word.commits
    assert say(board, 9000) == []


def test_news_while_a_word_is_said_are_for_the_next() -> None:
    board = board_of(ORDERS)
    board.progressed(batch(0))
    (word,) = board.due(2000)
    board.progressed(batch(1, end=6))
    board.said(word, 2010, heard=True)
    (word,) = say(board, 3010)
    assert word.progress.batch_id == 1
    assert word.commits[Group("here:9092", "spark-orders", False)][TopicPartition("orders", 0)] == 6
    board.idle("q", "r")
    (word,) = say(board, 5000)
    assert (word.progress.state, word.commits) == ("idle", {})


def test_a_run_that_was_replaced_is_not_spoken_for() -> None:
    board = board_of(ORDERS)
    board.started(beginning(run_id="second"), "here:9092", (ORDERS,))
    board.progressed(batch(7))
    board.terminated("q", "r", None)
    (word,) = say(board, 2000)
    assert (word.run_id, word.progress.state, word.progress.batch_id) == ("second", "running", None)
    board.all_terminated()
    assert [word.progress.state for word in say(board, 2001)] == ["terminated"]


def test_queries_that_ended_unheard_do_not_pile_up() -> None:
    board = QueryBoard()
    for number in range(150):
        board.started(beginning(f"q{number}"), "away:9092", ())
        board.terminated(f"q{number}", "r", None)
    board.started(beginning("live"), "away:9092", ())
    waiting = [word.progress.query_id for word in board.due(2000)]
    assert len(waiting) == 101
    assert (waiting[0], waiting[-1]) == ("q50", "live")


def test_silence_is_loss_only_before_the_end() -> None:
    running = beginning()
    assert running.seen_at(1000 + LOST_AFTER_MS).state == "running"
    assert running.seen_at(1001 + LOST_AFTER_MS).state == "lost"
    assert dataclasses.replace(running, state="terminated").seen_at(10**12).state == "terminated"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "sources": [], "operators": []}'])
def test_what_is_not_progress_is_refused(text: str) -> None:
    with pytest.raises(UnreadableProgress):
        QueryProgress.from_json(text)


def test_fields_that_are_newer_than_we_are_do_not_matter() -> None:
    told = beginning()
    text = told.to_json().replace('{"version":1', '{"version":1,"colour":"blue"', 1)
    assert QueryProgress.from_json(text) == told
