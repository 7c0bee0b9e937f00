"""`__spark_decisions`: the compacted topic with the transactions of each sink's last batch, one record per sink.

The sink has a topic of its own because it cannot continue without its decisions: nothing expires here, unlike in other
topics that tools write. One partition holds all sinks, so adding partitions to the topic loses none of them. A second
record per sink notes that the decision is carried out. It is not written under the sink's lock, so it has a key of its
own and names its batch: a late note says nothing about a later decision.

Readers take committed records only, up to the end of the log at the time they ask. They wait for a decision that is in
progress, which takes milliseconds, or the ten seconds of its time-out if its driver died.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.arrow.bounds import OffsetRange
from penstock.arrow.columns import Columns
from penstock.arrow.reading import Reader, ReadSettings
from penstock.arrow.writing import Writer
from penstock.client.errors import UnknownTopic
from penstock.client.wire.admin.topics import LATEST, Topics
from penstock.client.wire.leaders import Leaders, first_contact
from penstock.client.wire.log_offsets import READ_COMMITTED, READ_UNCOMMITTED, LogOffsets
from penstock.client.wire.transaction import Transaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.spark.sink.two_phase import Decision, Known, TaskTransaction

TOPIC = "__spark_decisions"
# A write without a name decides once. Its record is deleted when the decision is carried out; a process that finds the
# record earlier carries the decision out.
NAMELESS = "once-"

_PARTITION = TopicPartition(TOPIC, 0)
_DONE = "/done"
_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_BATCH_BYTES = 1024 * 1024


class DecisionLog:
    """Reads the decisions, keeps those read so far, and writes new ones."""

    def __init__(self, bootstrap: str, *, timeout: float, request_timeout: float) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._request_timeout = request_timeout
        self._leaders = Leaders(bootstrap, timeout=request_timeout)
        self._offsets = LogOffsets(self._leaders, READ_UNCOMMITTED, timeout)
        self._notes = Writer(bootstrap, idempotent=False, timeout=timeout, request_timeout=request_timeout)
        self._decisions: Writer | None = None
        self._position = 0
        self._found: dict[str, Decision] = {}
        self._done: dict[str, int] = {}

    def close(self) -> None:
        self._leaders.close()
        self._notes.close()
        if self._decisions is not None:
            self._decisions.close()

    def known(self, sink: str) -> Known:
        """The sink's decision, including everything decided before this call."""
        if TOPIC not in self._leaders.topics:
            self._find()
        end = self._offsets.at([_PARTITION], LATEST)[_PARTITION]
        if end > self._position:
            self._read_to(end)
        decision = self._found.get(sink)
        return Known(decision, decision is not None and self._done.get(sink) == decision.batch)

    def nameless(self) -> dict[str, Decision]:
        """Decisions that are not carried out, of writes that will not be repeated."""
        return {sink: decision for sink, decision in self._found.items() if sink.startswith(NAMELESS)}

    def write(self, sink: str, decision: Decision, transaction: Transaction) -> None:
        """Write the decision in the transaction; the caller commits it."""
        if self._decisions is None:
            self._decisions = Writer(
                self._bootstrap,
                compression="zstd",
                transaction=transaction,
                timeout=self._timeout,
                request_timeout=self._request_timeout,
            )
        self._decisions.transaction = transaction
        self._decisions.write(TOPIC, _record(sink, _encoded(decision)), partition="partition")

    def note_done(self, sink: str, batch: int) -> None:
        if sink.startswith(NAMELESS):
            self._notes.write(TOPIC, _record(sink, None), partition="partition")
        else:
            self._notes.write(TOPIC, _record(sink + _DONE, json.dumps({"batch": batch})), partition="partition")

    def _find(self) -> None:
        cluster = self._leaders.cluster
        (found,) = first_contact(cluster, lambda: cluster.metadata([TOPIC])).topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            try:
                Topics(cluster).create(TOPIC, partitions=1, configs=_CONFIGS)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise UnknownTopic(
                        f"exactly-once needs the topic {TOPIC}, and it cannot be created: {error}; create it with one "
                        f"partition and cleanup.policy=compact, or say deliveryGuarantee=at-least-once"
                    ) from error
        self._leaders.find([TOPIC])

    def _read_to(self, end: int) -> None:
        settings = ReadSettings(
            isolation=READ_COMMITTED,
            batch_bytes=_BATCH_BYTES,
            batch_rows=10_000,
            timeout=self._timeout,
            skip_lost=True,
            grows=False,
        )
        columns = Columns(["key", "value"], "string", "string")
        reader = Reader(self._leaders, {_PARTITION: OffsetRange(self._position, end)}, columns, settings)
        for _, batch in reader.record_batches():
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                self._replay(key, value)
        self._position = end

    def _replay(self, key: str, value: str | None) -> None:
        if value is None:
            self._found.pop(key, None)
        elif key.endswith(_DONE):
            self._done[key.removesuffix(_DONE)] = json.loads(value)["batch"]
        else:
            self._found[key] = _decoded(value)


def _record(key: str, value: str | None) -> Any:
    columns = {"key": pa.array([key]), "value": pa.array([value], pa.string()), "partition": pa.array([0], pa.int32())}
    return pa.table(columns)


def _encoded(decision: Decision) -> str:
    transactions = [
        [each.transactional_id, each.producer_id, each.producer_epoch, list(each.partitions)]
        for each in decision.transactions
    ]
    return json.dumps({"batch": decision.batch, "query": decision.query, "transactions": transactions})


def _decoded(text: str) -> Decision:
    found = json.loads(text)
    transactions = (
        TaskTransaction(name, producer_id, epoch, tuple(partitions))
        for name, producer_id, epoch, partitions in found["transactions"]
    )
    return Decision(found["batch"], found["query"], tuple(transactions))
