"""The source's batch and stream readers, as Spark's API defines them: they plan batches and read partitions.

Spark creates readers in several places, pickles them into tasks, and keeps one in a separate process to plan a stream.
So a reader holds only options until a method is called; the planning reader then opens connections. Spark does not tell
it that the query has stopped: it ends the process, and nothing in it needs to be saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.source.filters import Selection, push
from penstock.spark.source.log_bounds import resolved, starting_offsets
from penstock.spark.source.offsets import SparkOffset, check_order, from_spark, to_spark, topic_ids
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.partitions import PiecePartition, input_partitions
from penstock.spark.source.planning import Piece
from penstock.spark.source.stream_planner import StreamPlanner
from penstock.spark.source.topic_logs import TopicLogs


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._selection = Selection()

    @property
    def pushFilters(self) -> Any:  # noqa: N802
        """A callable that Spark takes for the inherited method. Spark refuses a reader that overrides this method if
        the session has pushdown turned off, which is the default. Filtering is correct without pushdown, too, so this
        override is hidden: its `__func__` is that of the base class."""
        pushing = partial(self._push)
        pushing.__func__ = DataSourceReader.pushFilters  # type: ignore[attr-defined]
        return pushing

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._selection, remaining = push(filters)
        return remaining

    def partitions(self) -> Sequence[InputPartition]:
        with TopicLogs(self._options) as logs:
            logs.look()
            pieces = self._pieces(logs)
            return input_partitions(pieces, self._options, logs.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, PiecePartition):
            return iter(())  # Spark's result for no partitions at all
        return _rows(self._options, self._columns, partition)

    def _pieces(self, logs: TopicLogs) -> list[Piece]:
        options, selection = self._options, self._selection
        earliest, latest = logs.begins(), logs.ends()
        first = starting_offsets(options, logs, earliest, latest)
        end = resolved(options.end, logs, earliest, latest, fail=options.fail_on_data_loss)
        end = {partition: end.get(partition, latest[partition]) for partition in first}
        check_order(first, end, options.start.option, options.end.option)
        wanted = [Piece(each, first[each], end[each]) for each in sorted(first) if selection.takes(each)]
        if selection.from_time is not None:
            found = logs.at_time([piece.partition for piece in wanted], selection.from_time)
            return [selection.narrow(piece, found.get(piece.partition, piece.end)) for piece in wanted]
        return [selection.narrow(piece, None) for piece in wanted]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._planner: StreamPlanner | None = None

    def _planning(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner

    def initialOffset(self) -> SparkOffset:  # noqa: N802
        planning = self._planning()
        return to_spark(planning.initial(), planning.topic_ids)

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        planning, begin, ids = self._planning(), from_spark(start), topic_ids(start)
        end = planning.latest(begin, everything=isinstance(limit, ReadAllAvailable), ids=ids)
        # Unchanged offsets are returned as they came: in a checkpoint of an earlier version they have no ids.
        same = end == begin and all(planning.topic_ids.get(topic) == each for topic, each in ids.items())
        return start if same else to_spark(end, planning.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        return ReadAllAvailable() if limits.offsets_min is None else ReadMinRows(limits.offsets_min)

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802
        return to_spark(self._planning().known) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planning().stop_at_present()

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        return self._planning().pieces(from_spark(start), from_spark(end), topic_ids(start), topic_ids(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, PiecePartition)
        return _rows(self._options, self._columns, partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


def _rows(options: SourceOptions, columns: list[str], piece: PiecePartition) -> Iterator[Any]:
    """Only tasks decode records, so planning does not wait for the imports that decoding needs."""
    from penstock.spark.source.fetching import record_batches

    batches = record_batches(options, columns, piece)
    return map(_without_empty_headers, batches) if "headers" in columns else batches


def _without_empty_headers(batch: Any) -> Any:
    """For a record without headers Arrow has an empty list, Spark's own source has null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    index = batch.schema.get_field_index("headers")
    headers = batch.column(index)
    missing = pc.equal(pc.list_value_length(headers), 0)
    found = pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=missing)
    return batch.set_column(index, batch.schema.field(index), found)
