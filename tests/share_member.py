"""A member of a share group by hand: its share session with one broker, request by request."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    Partition,
)
from penstock.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as Acknowledged,
)
from penstock.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionResult,
    ShareFetchRequest,
)
from penstock.share_state.key import SharePartitionKey
from penstock.shares.states import AcknowledgeType
from waiting import wait_until
from wire import Wire

Acks = Sequence[tuple[int, int, AcknowledgeType | Sequence[AcknowledgeType]]]

SHARE = 2  # the type of coordinator

_numbers = itertools.count(1)


def initialize(wire: Wire, group: str, topic_id: bytes, *partitions: int, start_offset: int = 0) -> None:
    """What the group coordinator does before it assigns a partition."""
    for partition in partitions or (0,):
        request = InitializeShareGroupStateRequest(
            group_id=group,
            topics=[
                InitializeStateData(
                    topic_id=topic_id,
                    partitions=[Partition(partition=partition, state_epoch=1, start_offset=start_offset)],
                )
            ],
        )
        key = str(SharePartitionKey(group, topic_id, partition))
        wait_until(lambda key=key, request=request: _ask_coordinator(wire, key, request))  # type: ignore[misc]


def _ask_coordinator(wire: Wire, key: str, request: InitializeShareGroupStateRequest) -> bool:
    """The first question makes the topic of the share coordinators."""
    (found,) = wire.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])).coordinators
    if found.error_code:
        return False
    with Wire((found.host, found.port)) as coordinator:
        (topic,) = coordinator.ask(request).results
        (result,) = topic.partitions
        return bool(result.error_code == ErrorCode.NONE)


def kinds(types: AcknowledgeType | Sequence[AcknowledgeType]) -> list[int]:
    return [types] if isinstance(types, AcknowledgeType) else list(types)


class Member:
    def __init__(self, wire: Wire, group: str, topic_id: bytes, member_id: str | None = None) -> None:
        self.wire = wire
        self.group = group
        self.topic_id = topic_id
        self.id = member_id or f"member-{next(_numbers)}"
        self.epoch = 0

    def request(
        self, *partitions: int, acks: dict[int, Acks] | None = None, forget: Iterable[int] = (), **options: Any
    ) -> ShareFetchRequest:
        acks = acks or {}
        options = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500} | options
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=options.pop("epoch", self.epoch),
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=kinds(types)
                                )
                                for first, last, types in acks.get(index, ())
                            ],
                        )
                        for index in sorted({*partitions, *acks})
                    ],
                )
            ],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=[each]) for each in forget],
            **options,
        )

    def send(self, *partitions: int, **options: Any) -> None:
        self.wire.send(self.request(*partitions, **options))
        self.epoch += 1

    def receive(self) -> dict[int, PartitionResult]:
        response = self.wire.receive()
        assert response.error_code == ErrorCode.NONE, response
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    def fetch(self, *partitions: int, **options: Any) -> dict[int, PartitionResult]:
        self.send(*partitions, **options)
        return self.receive()

    def acquire(self, partition: int = 0, **options: Any) -> list[tuple[int, int, int]]:
        """The first, the last and the delivery count of what was acquired."""
        result = self.fetch(*(() if self.epoch else (partition,)), **options).get(partition)
        if result is None:
            return []
        assert result.error_code == ErrorCode.NONE, result
        return acquired(result)

    def error(self, *partitions: int, **options: Any) -> ErrorCode:
        return ErrorCode(self.wire.ask(self.request(*partitions, **options)).error_code)

    def acknowledge(
        self, acks: Acks, partition: int = 0, *, is_renewal: bool = False, epoch: int | None = None
    ) -> ErrorCode:
        """The error of the partition, or of the request."""
        response = self.wire.ask(
            ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.id,
                share_session_epoch=self.epoch if epoch is None else epoch,
                is_renew_ack=is_renewal,
                topics=[
                    AcknowledgeTopic(
                        topic_id=self.topic_id,
                        partitions=[
                            AcknowledgePartition(
                                partition_index=partition,
                                acknowledgement_batches=[
                                    Acknowledged(first_offset=first, last_offset=last, acknowledge_types=kinds(types))
                                    for first, last, types in acks
                                ],
                            )
                        ],
                    )
                ],
            )
        )
        if response.error_code:
            return ErrorCode(response.error_code)
        self.epoch += 1
        (topic,) = response.responses
        (result,) = topic.partitions
        return ErrorCode(result.error_code)

    def leave(self) -> None:
        response = self.wire.ask(self.request(epoch=-1))
        assert response.error_code == ErrorCode.NONE
        self.epoch = 0


def acquired(result: PartitionResult) -> list[tuple[int, int, int]]:
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in result.acquired_records]
