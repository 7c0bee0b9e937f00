"""A transaction coordinator on a table: a log that is a list, time that stands still, and brokers that are played.

`Coordinator` does what the runtime does: it appends what was decided, replays it, and tells the shard when it is
committed. Records go through their bytes, as in a log.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from narrowing import expect
from penstock.coordinator.decision import Caller, Decision
from penstock.model.ids import TopicPartition
from penstock.protocol.codec import decode, encode
from penstock.protocol.declaration import Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.settings.transactions import TransactionSettings
from penstock.transactions.records import by_topic, value_version
from penstock.transactions.shard import MarkersDue, TransactionShard
from penstock.transactions.state import NOBODY, Identity, Transaction

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Logged = tuple[bytes, bytes | None, int]


@dataclass
class Log:
    """The partition of `__transaction_state`: it outlives coordinators."""

    records: list[Logged] = field(default_factory=list)
    leader_epoch: int = 0


class Coordinator:
    def __init__(
        self,
        log: Log | None = None,
        *,
        version: int = 2,
        now: int = 1000,
        ids: Callable[[], int | None] | None = None,
        commit: bool = True,
        **settings: object,
    ) -> None:
        self.log = log or Log()
        self.log.leader_epoch += 1
        self.version = version
        self.now = now
        self.ids = ids or itertools.count(1000).__next__
        self.settings = TransactionSettings(**settings)  # type: ignore[arg-type]
        self.shard = TransactionShard(
            coordinator_epoch=self.log.leader_epoch,
            settings=self.settings,
            transaction_version=lambda: self.version,
            next_producer_id=lambda: self.ids(),
            offsets_partition=len,
        )
        for key, value, value_format in self.log.records:
            self._replay(key, value, value_format)
        self.run(self.shard.loaded(now))
        if commit:
            self.shard.committed(self.shard.position)

    def run(self, decision: Decision, *, commit: bool = True) -> Decision:
        for record in decision.records:
            key = encode(record.key, 0)
            value, value_format = None, 0
            if record.value is not None:
                value_format = value_version(expect(TransactionLogValue, record.value))
                value = encode(record.value, value_format)
            self.log.records.append((key, value, value_format))
            self._replay(key, value, value_format)
        if commit and decision.records:
            self.shard.committed(self.shard.position)
        return decision

    def _replay(self, key: bytes, value: bytes | None, value_format: int) -> None:
        decoded = None if value is None else decode(TransactionLogValue, value, value_format)
        self.shard.replay(decode(TransactionLogKey, key, 0), decoded)

    def _ask(
        self,
        handler: Callable[[Request, str, Caller, int], Decision],
        request: Request,
        response_type: type[Response],
        api_version: int,
        commit: bool,
    ) -> tuple[Decision, Response]:
        decision = self.run(handler(request, "token", Caller("client", "host", api_version), self.now), commit=commit)
        (reply,) = decision.replies
        response = expect(response_type, reply.response)
        assert reply.token == "token"
        assert decode(type(response), encode(response, api_version), api_version) == response
        return decision, response

    # -- requests

    def init(
        self,
        transactional_id: str = "t",
        shown: Identity = NOBODY,
        *,
        timeout: int = 60_000,
        v: int = 5,
        two_phase: bool = False,
        keep: bool = False,
        commit: bool = True,
    ) -> tuple[Decision, InitProducerIdResponse]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout,
            producer_id=shown.producer_id,
            producer_epoch=shown.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        return self._ask(self.shard.init_producer_id, request, InitProducerIdResponse, v, commit)

    def add(
        self,
        transactional_id: str,
        shown: Identity,
        partitions: Iterable[TopicPartition],
        *,
        v: int = 5,
        verify: bool = False,
        commit: bool = True,
    ) -> tuple[Decision, dict[TopicPartition, int]]:
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()
        ]
        if v < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=shown.producer_id,
                v3_and_below_producer_epoch=shown.epoch,
                v3_and_below_topics=topics,
            )
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=shown.producer_id,
                producer_epoch=shown.epoch,
                verify_only=verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        decision, response = self._ask(self.shard.add_partitions_to_txn, request, AddPartitionsToTxnResponse, v, commit)
        results = response.results_by_topic_v3_and_below if v < 4 else response.results_by_transaction[0].topic_results
        return decision, {
            TopicPartition(topic.name, result.partition_index): result.partition_error_code
            for topic in results
            for result in topic.results_by_partition
        }

    def add_offsets(
        self, transactional_id: str, shown: Identity, group: str, *, v: int = 4, commit: bool = True
    ) -> tuple[Decision, int]:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=shown.producer_id,
            producer_epoch=shown.epoch,
            group_id=group,
        )
        decision, response = self._ask(self.shard.add_offsets_to_txn, request, AddOffsetsToTxnResponse, v, commit)
        return decision, response.error_code

    def end(
        self, transactional_id: str, shown: Identity, committed: bool, *, v: int = 5, commit: bool = True
    ) -> tuple[Decision, EndTxnResponse]:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=shown.producer_id,
            producer_epoch=shown.epoch,
            committed=committed,
        )
        return self._ask(self.shard.end_txn, request, EndTxnResponse, v, commit)

    # -- markers and time

    def markers(self, leader_of: Callable[[TopicPartition], int | None] = lambda _partition: 1) -> MarkersDue:
        due = self.shard.markers_due(leader_of, self.now)
        self.run(due.decision)
        return due

    def tick(self, milliseconds: int = 0) -> Decision:
        self.now += milliseconds
        return self.run(self.shard.tick(self.now))

    # -- what is checked

    @property
    def state(self) -> dict[str, Transaction]:
        return {transaction.transactional_id: transaction for transaction in self.shard.transactions}
