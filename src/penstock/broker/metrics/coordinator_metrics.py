"""Metrics of the groups and transactions that this broker coordinates.

The lag of a group needs two brokers: the coordinator knows the committed offset, the partition leader the end offset.
So the coordinator asks: once per scrape, it sends one ListOffsets to each broker that leads partitions which the groups
here read, for just those partitions. If a leader does not answer in time, its partitions have no lag in this scrape.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from penstock.broker.coordinators.coordinators import Coordinators
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metrics import families as f
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.exposition import Collected, Sample
from penstock.broker.net.peers import PeerFailed
from penstock.broker.partitions.replicas import Replicas
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.shard import GroupShard
from penstock.groups.streams_group import StreamsGroup
from penstock.io.clock import Clock
from penstock.metadata.image import Metadata
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.settings.live import LiveSettings
from penstock.transactions.state import Status

CHANNEL: Final = "metrics"
LATEST: Final = -1
CONSUMER: Final = -1
ASK_S: Final = 2.0
LOOKED_UP_AT_ONCE: Final = 2000

Ends = dict[TopicPartition, int]
Committed = list[tuple[str, str, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSources:
    loop: asyncio.AbstractEventLoop
    clock: Clock
    settings: LiveSettings
    counters: Counters
    metadata: Metadata
    brokers: Brokers
    replicas: Replicas
    coordinators: Coordinators


def coordinators(sources: CoordinatorSources) -> Iterator[Collected]:
    shards: dict[str, list[object]] = {
        "group": [each.shard for each in sources.coordinators.groups.partitions.values()],
        "transaction": [each.shard for each in sources.coordinators.transactions.partitions.values()],
        "share": [each.shard for each in sources.coordinators.shares.partitions.values()],
    }
    states: list[Sample] = []
    for name, of_partitions in shards.items():
        loading = of_partitions.count(None)
        states += [((name, "active"), len(of_partitions) - loading), ((name, "loading"), loading)]
    yield f.COORDINATORS, states


def transactions(sources: CoordinatorSources) -> Iterator[Collected]:
    found: Counter[str] = Counter({Status.ONGOING.label: 0})
    oldest_ms = now_ms = sources.clock.now_ms()
    for partition in list(sources.coordinators.transactions.partitions.values()):
        if partition.shard is None:
            continue
        for transaction in list(partition.shard.transactions):
            found[transaction.status.label] += 1
            if transaction.status is Status.ONGOING and transaction.started_ms >= 0:
                oldest_ms = min(oldest_ms, transaction.started_ms)
    yield f.TRANSACTIONS, [((state,), count) for state, count in found.items()]
    yield f.OLDEST_TRANSACTION, [((), (now_ms - oldest_ms) / 1000)]


def groups(sources: CoordinatorSources, committed: Committed, ends: Ends) -> Iterator[Collected]:
    states: Counter[str] = Counter()
    members: list[Sample] = []
    generations: list[Sample] = []
    for shard in _shards(sources):
        modern: list[ConsumerGroup | StreamsGroup] = [*shard.state.consumer.values(), *shard.state.streams.values()]
        for group in modern:
            states[group.state.value] += 1
            members.append(((group.group_id,), len(group.members)))
            generations.append(((group.group_id,), group.epoch))
        for group_id, classic in list(shard.state.classic.items()):
            states[classic.state.value] += 1
            members.append(((group_id,), len(classic.members)))
            generations.append(((group_id,), classic.generation))
        for group_id, share in list(shard.state.shares.items()):
            states[share.state] += 1
            members.append(((group_id,), len(share.members)))
            generations.append(((group_id,), share.epoch))
    limit = sources.settings.now.penstock_metrics_max_series
    sources.counters.series_left_out += max(0, len(members) - limit)
    yield f.GROUP_STATES, [((state,), count) for state, count in states.items()]
    yield f.GROUP_MEMBERS, members[:limit]
    yield f.GROUP_GENERATION, generations[:limit]
    yield f.GROUP_OFFSET, (((group, topic, str(index)), offset) for group, topic, index, offset in committed)
    yield f.GROUP_LAG, _lags(committed, ends)


def _lags(committed: Committed, ends: Ends) -> Iterator[Sample]:
    for group_id, topic, index, offset in committed:
        end = ends.get(TopicPartition(topic, index))
        if end is not None:
            yield (group_id, topic, str(index)), max(0, end - offset)


def _shards(sources: CoordinatorSources) -> list[GroupShard]:
    partitions = list(sources.coordinators.groups.partitions.values())
    return [partition.shard for partition in partitions if partition.shard is not None]


def committed_offsets(sources: CoordinatorSources) -> Committed:
    """Group, topic, partition and offset for the groups that this broker coordinates, up to the limit of series."""
    limit = sources.settings.now.penstock_metrics_max_series
    found: Committed = []
    for shard in _shards(sources):
        offsets = shard.state.offsets
        for group_id in list(offsets.groups()):
            for topic, partitions in offsets.of_group(group_id).items():
                room = limit - len(found)
                if room < len(partitions):
                    sources.counters.series_left_out += len(partitions) - max(0, room)
                named = islice(partitions.items(), room)
                found += [(group_id, topic, index, each.offset) for index, each in named]
    return found


async def ends_of(sources: CoordinatorSources, partitions: set[TopicPartition]) -> Ends:
    """The end offsets of partitions as consumers see them: the high watermarks of their leaders."""
    ends: Ends = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for number, where in enumerate(partitions, 1):
        if not number % LOOKED_UP_AT_ONCE:
            await asyncio.sleep(0)
        replica = sources.replicas.get(*where)
        if replica is not None and replica.leader is not None:
            if replica.leader.is_settled:
                ends[where] = replica.high_watermark
            continue
        topic = sources.metadata.image.topics.by_name(where.topic)
        partition = None if topic is None else topic.partitions.get(where.partition)
        if partition is not None and partition.leader >= 0:
            elsewhere.setdefault(partition.leader, []).append(where)
    for found in await asyncio.gather(*(_ask(sources, leader, asked) for leader, asked in elsewhere.items())):
        ends |= found
    return ends


async def _ask(sources: CoordinatorSources, leader: int, partitions: list[TopicPartition]) -> Ends:
    peer = sources.brokers.peer(leader, CHANNEL)
    if peer is None:
        return {}
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=list(topics.values()))
    future: asyncio.Future[ListOffsetsResponse | PeerFailed] = sources.loop.create_future()
    peer.send(request, lambda outcome: None if future.done() else future.set_result(outcome), timeout=ASK_S)
    answer = await future
    if isinstance(answer, PeerFailed):
        return {}
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
        if not partition.error_code and partition.offset >= 0
    }
