"""Fetches the rows that a Spark task reads of a partition, as Arrow record batches.

Spark keeps its Python workers from batch to batch, so a task leaves its connections and its knowledge of leaders to the
next task. It has them to itself while it runs, and leaves them only if it has read everything without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.arrow import errors as arrow_errors
from penstock.arrow.bounds import OffsetRange
from penstock.arrow.columns import Columns
from penstock.arrow.reading import Reader, ReadSettings
from penstock.client.wire.leaders import Leaders
from penstock.model.ids import ZERO_UUID, TopicPartition
from penstock.spark.source.errors import data_lost, lost, report_losses
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.partitions import PiecePartition
from penstock.spark.workers import exempt_imports

_BATCH_ROWS = 1_000_000
_kept: dict[tuple[str, float], Leaders] = {}  # by bootstrap addresses and time-out


def record_batches(options: SourceOptions, columns: list[str], piece: PiecePartition) -> Iterator[Any]:
    partition = TopicPartition(piece.topic, piece.partition)
    settings = ReadSettings(
        isolation=options.kafka.isolation,
        batch_bytes=options.kafka.batch_bytes,
        batch_rows=_BATCH_ROWS,
        timeout=options.read_patience,
        skip_lost=not options.fail_on_data_loss,
        grows=False,
    )
    leaders = _leaders(options, piece)
    if piece.topic_id not in (ZERO_UUID, leaders.topics[piece.topic].topic_id):
        leaders.close()
        why = f"topic {piece.topic!r} was deleted and created again"
        report_losses([lost(partition, piece.first, piece.end, why)], fail=options.fail_on_data_loss)
        return
    try:
        ranges = {partition: OffsetRange(piece.first, piece.end)}
        for _, batch in Reader(leaders, ranges, Columns(columns, None, None), settings).record_batches():
            yield batch
    except arrow_errors.DataLost as error:
        leaders.close()
        why = f"the log begins at {error.available}, the rest was deleted by retention or on request"
        raise data_lost([lost(partition, error.first, min(error.available, piece.end), why)]) from None
    except BaseException:
        leaders.close()
        raise
    _kept[_key(options)] = leaders
    exempt_imports("read")


def close_connections() -> None:
    """Close the connections that the last task left."""
    for leaders in _kept.values():
        leaders.close()
    _kept.clear()


def _key(options: SourceOptions) -> tuple[str, float]:
    return options.kafka.bootstrap, options.kafka.request_timeout


def _leaders(options: SourceOptions, piece: PiecePartition) -> Leaders:
    """The connections of the last task, or new ones; they know the id of the topic."""
    leaders = _kept.pop(_key(options), None)
    if leaders is None:
        leaders = Leaders(options.kafka.bootstrap, timeout=options.kafka.request_timeout)
    try:
        led = leaders.topics.get(piece.topic)
        if led is None or led.topic_id != piece.topic_id:
            leaders.forget([piece.topic])
            leaders.find([piece.topic])
        return leaders
    except BaseException:
        leaders.close()
        raise
