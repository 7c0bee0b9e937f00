"""Writes rows to topics: the sink's batch and stream writers, as Spark's API defines them.

Spark creates a writer on the driver for each batch, pickles it into tasks, and creates it again where the batch is
committed. So a writer holds only options. Spark tells the query and the batch only to tasks, so the tasks pass them to
the driver in their messages. With exactly-once (the default) tasks leave transactions open and `commit` decides
(`two_phase`). With at-least-once a row counts as soon as it is written, and a repeated batch is written again.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client.errors import ClientError
from penstock.client.wire.transaction import Transaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.spark.sink import two_phase
from penstock.spark.sink.columns import SinkColumns, sink_columns
from penstock.spark.sink.decisions import NAMELESS
from penstock.spark.sink.naming import sink_id
from penstock.spark.sink.options import SinkOptions, sink_options
from penstock.spark.sink.two_phase import TaskTransaction
from penstock.spark.sink.worker_connections import WorkerConnections, discard, worker_connections
from penstock.spark.source.errors import BadOption
from penstock.spark.workers import exempt_imports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

logger = logging.getLogger("penstock.spark")

QUERY_ID, RUN_ID, BATCH_ID = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"
# How long a task that is being stopped may take to notice.
STRAGGLERS_S = 2.0
_LOOK_AGAIN_S = 0.25

# Usually one process of the driver creates the writers of batches: the next writer reuses the transactional ids.
_application = uuid.uuid4().hex


def _begin_anew() -> None:
    """In a forked process."""
    global _application
    _application = uuid.uuid4().hex


os.register_at_fork(after_in_child=_begin_anew)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The batch and the sink that a task writes to."""

    sink: str
    batch: int
    query: str
    run: str


@dataclass
class TaskMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    sink_batch: SinkBatch | None
    transaction: TaskTransaction | None  # None: it wrote nothing, or nothing that can be undone


class _Sink:
    """What both kinds of writers share."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        if options.topic is not None:
            worker_connections(options.producer).check_topic(options.topic)

    def write_rows(self, batches: Iterator[Any], sink_batch: SinkBatch | None) -> TaskMessage:
        pieces = self._columns.pieces(batches)
        try:
            mine = worker_connections(self._options.producer)
            if sink_batch is None:
                for topic, table in pieces:
                    mine.write(topic, table, None)
                return TaskMessage(None, None)
            return TaskMessage(sink_batch, self._write_once(mine, sink_batch, pieces))
        except (ClientError, KafkaError):
            discard(self._options.producer)
            raise

    def commit_batch(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        sink_batch, transactions = _transactions_of(messages)
        if sink_batch is not None:
            steps = two_phase.commit(sink_batch.sink, sink_batch.batch, sink_batch.query, transactions)
            self._run(sink_batch, steps)

    def abort_batch(self, messages: Sequence[WriterCommitMessage | None], usual: SinkBatch | None) -> None:
        """If every task has succeeded, Spark has called `commit`, which may still run: it cleans up after itself.

        Otherwise tasks are being stopped, and may still start to write.
        """
        sink_batch, _ = _transactions_of(messages)
        if (sink_batch := sink_batch or usual) is None or None not in messages:
            return
        deadline = time.monotonic() + STRAGGLERS_S
        while True:
            self._run(sink_batch, two_phase.abandon(sink_batch.batch, sink_batch.run))
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOK_AGAIN_S)

    def _write_once(
        self, mine: WorkerConnections, sink_batch: SinkBatch, pieces: Iterable[tuple[str, Any]]
    ) -> TaskTransaction | None:
        known = mine.brokers.decisions.known(sink_batch.sink)
        two_phase.check_order(sink_batch.sink, known, sink_batch.batch, sink_batch.query)
        if known.batch == sink_batch.batch:
            return None  # decided before: there is nothing to write
        transaction: Transaction | None = None
        try:
            for topic, table in pieces:
                transaction = transaction or mine.begin(sink_batch.sink, sink_batch.run, sink_batch.batch)
                mine.write(topic, table, transaction)
        except BaseException:
            if transaction is not None:
                _abort_quietly(transaction)
            raise
        return None if transaction is None else _task_transaction(transaction)

    def _run(self, sink_batch: SinkBatch, steps: two_phase.Steps) -> None:
        try:
            worker_connections(self._options.producer).brokers.run(sink_batch.sink, steps)
        except (ClientError, KafkaError):
            discard(self._options.producer)
            raise


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, sink: _Sink, options: SinkOptions) -> None:
        self._sink = sink
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        written = self._sink.write_rows(iterator, self._sink_batch())
        exempt_imports("write")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.commit_batch(messages)
        exempt_imports("commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._sink.abort_batch(messages, None)

    def _sink_batch(self) -> SinkBatch | None:
        if not self._options.exactly_once:
            return None
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if context is None or query is None or batch is None:
            raise ClientError("Spark does not tell this task its query and batch: say deliveryGuarantee=at-least-once")
        run = _short(context.getLocalProperty(RUN_ID) or query)
        if self._options.sink_names:
            # The name contains the query, so its decisions need not; `foreachBatch` makes the same ones.
            return SinkBatch(sink_id(*self._options.sink_names, checkpoint=query), int(batch), "", run)
        return SinkBatch(self._options.sink_id or query, int(batch), query, run)


class BatchSink(DataSourceArrowWriter):
    def __init__(self, sink: _Sink, options: SinkOptions) -> None:
        self._sink = sink
        self._sink_batch = None
        if options.exactly_once:
            name = options.sink_id or NAMELESS + uuid.uuid4().hex
            self._sink_batch = SinkBatch(name, options.version or 0, "", _short(_application))

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        written = self._sink.write_rows(iterator, self._sink_batch)
        exempt_imports("write")
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit_batch(messages)
        exempt_imports("commit")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort_batch(messages, self._sink_batch)


def stream_sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamSink:
    if overwrite:
        raise BadOption(
            "outputMode('complete') would replace a topic, and topics only grow: use 'append', or 'update' with "
            "foreachBatch and df.write"
        )
    parsed = sink_options(options, streaming=True)
    sink = StreamSink(_Sink(parsed, sink_columns(schema, parsed.topic)), parsed)
    exempt_imports("plan")
    return sink


def batch_sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchSink:
    if overwrite:
        raise BadOption("mode('overwrite') would replace a topic, and topics only grow: use mode('append')")
    parsed = sink_options(options, streaming=False)
    sink = BatchSink(_Sink(parsed, sink_columns(schema, parsed.topic)), parsed)
    exempt_imports("plan")
    return sink


def _transactions_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[SinkBatch | None, list[TaskTransaction]]:
    sink_batch: SinkBatch | None = None
    transactions: list[TaskTransaction] = []
    for message in messages:
        if isinstance(message, TaskMessage):
            sink_batch = sink_batch or message.sink_batch
            if message.transaction is not None:
                transactions.append(message.transaction)
    return sink_batch, transactions


def _short(run: str) -> str:
    return run.replace("-", "")[:12]


def _task_transaction(transaction: Transaction) -> TaskTransaction:
    identity = transaction.identity
    partitions = tuple(str(partition) for partition in sorted(transaction.partitions))
    return TaskTransaction(transaction.transactional_id, identity.producer_id, identity.producer_epoch, partitions)


def _abort_quietly(transaction: Transaction) -> None:
    """The task fails for another reason; the batch or the time-out ends what stays open."""
    try:
        transaction.abort()
    except (ClientError, KafkaError) as error:
        known = isinstance(error, KafkaError) and error.code is ErrorCode.PRODUCER_FENCED
        if not known:
            logger.info("%s stays open for now: %s", transaction.transactional_id, error)
