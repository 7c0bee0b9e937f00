"""The end offsets of partitions, from their leaders: for the lag of share groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from penstock.broker.coordinators.questions import Gathering
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.peers import PeerFailed
from penstock.broker.partitions.replicas import Replicas
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.settings.live import LiveSettings

CHANNEL = "shares"
_LATEST = -1

# The end offset of each partition, or the error instead.
Ends = Mapping[TopicPartition, int | ErrorCode]


class EndOffsets:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        metadata: Metadata,
        brokers: Brokers,
        replicas: Replicas,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._metadata = metadata
        self._brokers = brokers
        self._replicas = replicas

    def ask(self, partitions: Collection[TopicPartition], done: Callable[[Ends], None]) -> None:
        """`done` gets the end offsets, now or later."""
        ends: dict[TopicPartition, int | ErrorCode] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            replica = self._replicas.get(*each)
            if replica is not None and replica.leader is not None:
                ends[each] = replica.high_watermark
                continue
            ends[each] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            known = self._metadata.image.topics.partition(*each)
            if known is not None and known.leader != self._settings.static.node_id:
                elsewhere.setdefault(known.leader, []).append(each)
        gathering = Gathering(len(elsewhere), lambda: done(ends))
        for broker_id, asked in elsewhere.items():
            self._ask_broker(broker_id, asked, ends, gathering)

    def _ask_broker(
        self,
        broker_id: int,
        asked: list[TopicPartition],
        ends: dict[TopicPartition, int | ErrorCode],
        gathering: Gathering,
    ) -> None:
        def answered(outcome: ListOffsetsResponse | PeerFailed) -> None:
            if isinstance(outcome, ListOffsetsResponse):
                for topic in outcome.topics:
                    for part in topic.partitions:
                        code = ErrorCode(part.error_code)
                        ends[TopicPartition(topic.name, part.partition_index)] = code or part.offset
            gathering.one_more()

        peer = self._brokers.peer(broker_id, CHANNEL)
        if peer is None:
            self._loop.call_soon(answered, PeerFailed(f"broker {broker_id} cannot be reached"))
            return
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in asked:
            entry = topics.setdefault(topic, ListOffsetsTopic(name=topic))
            entry.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
        timeout_ms = self._settings.now.request_timeout_ms
        request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()), timeout_ms=timeout_ms)
        peer.send(request, answered, timeout=timeout_ms / 1000)
