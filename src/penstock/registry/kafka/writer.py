"""The one writer of the topic, and what fences the writer before it.

All nodes of a registry use one transactional id. A node that is elected takes it (InitProducerId), which gives it the
next epoch of the same producer id, and writes a NOOP record in that epoch. From then on the partition's leader refuses
every batch of an earlier epoch. So each record of an earlier writer either precedes the NOOP, and the new writer has
read it before it decides anything, or is refused. A writer that was paused between its decision and its request can
write nothing, however late it wakes up.

The records are not in transactions: Confluent's registry reads the topic without regard to them, and would see aborted
ones. A record is written once, because its batch has the producer's sequence number. After any failure the outcome is
unknown and the writer is spent: the node takes the id anew, and reads the topic up to its NOOP, which contains the
record or does not.

Brokers forget an epoch that is not used: the partition after `producer.id.expiration.ms` (one day), the coordinator
after `transactional.id.expiration.ms` (seven days). The writer renews its epoch every RENEW_S, long before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from penstock.client.errors import ClientError, RecordTooLarge, raise_for
from penstock.client.wire.closing import Closing
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.transaction import Transaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.records.builder import build_batch
from penstock.registry.core.records import SchemasRecord

RENEW_S: Final = 6 * 3600.0
_ALL_IN_SYNC: Final = -1
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
# The broker has refused the batch before it could be in any log.
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class WriteFailed(Exception):
    """The records may or may not be in the topic; the writer is spent."""


class WriterFenced(WriteFailed):
    """Another node is the writer; the records are not in the topic."""


class TopicWriter(Closing):
    def __init__(self, bootstrap: str, topic: str, transactional_id: str, *, timeout: float) -> None:
        """Take the transactional id, which fences the writer before as soon as something is appended."""
        self._partition = TopicPartition(topic, 0)
        self._timeout = timeout
        self._leaders = Leaders(bootstrap, timeout=timeout)
        try:
            self._leaders.find([topic])
            taken = Transaction(
                bootstrap, transactional_id, timeout=timeout, request_timeout=timeout, cluster=self._leaders.cluster
            )
            self._identity = taken.identity
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._leaders.close()

    def append(self, records: Sequence[SchemasRecord]) -> int:
        """Write the records as one batch; return the offset after the last, when all replicas in sync have them."""
        now = time.time_ns() // 1_000_000
        batch = build_batch(
            [(now, *record.encoded(), ()) for record in records],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._identity.sequence(self._partition),
        )
        try:
            offset = self._produce(batch)
        except KafkaError as error:
            if error.code in _FENCED:
                raise WriterFenced(str(error)) from error
            if error.code in _TOO_LARGE:
                raise RecordTooLarge(str(error)) from error
            raise WriteFailed(str(error)) from error
        except ClientError as error:
            raise WriteFailed(str(error)) from error
        self._identity.advance(self._partition, len(records))
        return offset + len(records)

    def _produce(self, batch: bytearray) -> int:
        """One attempt: a second one could come after another node's election."""
        leader = self._leaders.leader_of(self._partition)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._partition} has no leader")
        topic = self._partition.topic
        data = PartitionProduceData(index=self._partition.partition, records=batch)
        named = TopicProduceData(name=topic, topic_id=self._leaders.topics[topic].topic_id, partition_data=[data])
        request = ProduceRequest(acks=_ALL_IN_SYNC, timeout_ms=int(self._timeout * 1000), topic_data=[named])
        answer = self._leaders.cluster.request_broker(leader.broker_id, request, ProduceResponse)
        ((result,),) = (topic.partition_responses for topic in answer.responses)
        raise_for(result.error_code, result.error_message, f"cannot write to {self._partition}")
        return result.base_offset
