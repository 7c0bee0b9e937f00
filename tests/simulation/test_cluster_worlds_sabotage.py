"""The laws that hold in some worlds of the simulated cluster catch someone, too.

`test_cluster_sabotage` has the laws that hold in all worlds.

Each world is what brings the fault out: its circumstances, and what happens in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from penstock.broker.apis import delete_records, fetch, offset_for_leader_epoch
from penstock.broker.apis.fetch import Fetch
from penstock.broker.partitions.replica import Replica
from penstock.controller.result import Result
from penstock.controller.topics import TopicHandlers
from penstock.controller.view import ClusterView
from penstock.log import stored
from penstock.log.log import Appended, Log
from penstock.log.retention import deletable
from penstock.log.stored import StoredLog
from penstock.metadata.cluster import BrokerRegistration
from penstock.metadata.partition import Partition
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.protocol.messages.fetch import PartitionData
from penstock.protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderPartition
from penstock.records.batch import BatchHeader, iterate_headers
from penstock.replication.follower import FollowerState
from penstock.replication.partition import LeaderState
from penstock.settings.topic import TopicSettings
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.cluster_circumstances import Circumstances
from penstock.simulator.stories.cluster_story import ROUNDS, ClusterStory
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = 30


# -- who may lead ---------------------------------------------------------------------------------------------------


def keep_eligible_replicas_anyway(patch: Patch) -> None:
    """The controller does as if the feature were on."""
    original = ClusterView.__init__

    def init(self: ClusterView, *arguments: Any) -> None:
        original(self, *arguments)
        self.elr = True

    patch.setattr(ClusterView, "__init__", init)


def lead_with_what_is_committed(patch: Patch) -> None:
    """A new leader begins by cutting its log to its high watermark."""
    original = Replica._begin_to_lead

    def begin_to_lead(self: Replica, partition: Partition, now_ms: int) -> None:
        if self.leader is None and self.high_watermark < self.log.log_end_offset:
            self._cut(self.high_watermark)
        original(self, partition, now_ms)

    patch.setattr(Replica, "_begin_to_lead", begin_to_lead)


def tell_no_truncation(patch: Patch) -> None:
    """Whatever a reader has read, and in whichever epoch: it may go on."""

    def look_up(services: Any, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
        replica = services.replicas.get(topic, partition.partition)
        return EpochEndOffset(leader_epoch=partition.leader_epoch, end_offset=replica.log.log_end_offset)

    patch.setattr(fetch, "divergence", lambda log, offset, epoch: None)
    patch.setattr(offset_for_leader_epoch, "_look_up", look_up)


# -- readers of followers -------------------------------------------------------------------------------------------


def name_whoever_is_close(patch: Patch) -> None:
    """In sync or not."""

    def closest_replica(
        leader: LeaderState, offset: int, rack: str, brokers: dict[int, BrokerRegistration]
    ) -> int | None:
        here = brokers[leader.broker_id].rack == rack
        close = [each for each in leader.followers if brokers[each].rack == rack and not brokers[each].fenced]
        return close[0] if close and not here else None

    patch.setattr(fetch, "closest_replica", closest_replica)


def take_all_for_committed(patch: Patch) -> None:
    """Followers, whatever their leader says."""

    def learned(self: FollowerState, leader_high_watermark: int, log_end: int) -> bool:
        moved = log_end > self.high_watermark
        self.high_watermark = max(log_end, self.high_watermark)
        return moved

    patch.setattr(FollowerState, "learned", learned)


def skip_a_batch(patch: Patch) -> None:
    """Followers leave out the first batch where they have several."""
    original = Fetch._found

    def found(self: Fetch, replica: Replica, offset: int, data: PartitionData, *arguments: Any) -> None:
        original(self, replica, offset, data, *arguments)
        if data.records and replica.leader is None:
            assert isinstance(data.records, bytes | bytearray | memoryview)
            records = bytes(data.records)
            begins = [position for position, _ in iterate_headers(records)]
            if len(begins) > 1:
                data.records = records[begins[1] :]

    patch.setattr(Fetch, "_found", found)


# -- the beginning of the log ---------------------------------------------------------------------------------------


def acknowledge_before_it_is_stored(patch: Patch) -> None:
    """The start of a log is reported before it is on the disk."""
    patch.setattr(StoredLog, "durable_log_start", property(lambda self: self.log_start_offset))


def forget_the_beginning(patch: Patch) -> None:
    """A replica that comes to follow begins where its first file does."""
    original = Replica.follow

    def follow(self: Replica, partition: Partition) -> bool:
        is_new = original(self, partition)
        if is_new:
            self.log.log_start_offset = self.log.first_base_offset
        return is_new

    patch.setattr(Replica, "follow", follow)


def delete_what_is_not_committed(patch: Patch) -> None:
    original = delete_records._delete

    def delete(node: Any, topic: str, index: int, offset: int) -> tuple[Replica, int]:
        replica, offset = original(node, topic, index, offset)
        replica.log.advance_log_start(replica.log.log_end_offset)
        return replica, offset

    patch.setattr(delete_records, "_delete", delete)


def retain_less(patch: Patch) -> None:

    def less(segments: Sequence[Any], settings: TopicSettings, **options: Any) -> tuple[int, str]:
        return deletable(segments, replace(settings, retention_bytes=0), **options)

    patch.setattr(stored, "deletable", less)


# -- producers ------------------------------------------------------------------------------------------------------


def stamp_repeated_batches_anew(patch: Patch) -> None:
    """The response to a repeated batch has the time of the repetition, and not that of the append."""
    original = Log.append_as_leader

    def append_as_leader(
        self: Log, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int, **options: Any
    ) -> Appended:
        appended = original(self, batch, header, leader_epoch, now_ms, **options)
        return appended._replace(log_append_time_ms=now_ms + 1) if appended.duplicate else appended

    patch.setattr(Log, "append_as_leader", append_as_leader)


def forget_some_batches(patch: Patch) -> None:
    """Of those without a producer id; they are acknowledged all the same."""
    original = Replica.append

    def append(self: Replica, batch: memoryview, header: BatchHeader, now_ms: int, **options: Any) -> Appended:
        if header.producer_id < 0 and header.crc % 5 == 0:
            end = self.log.log_end_offset
            return Appended(end, end + header.last_offset_delta, -1, self.log.log_start_offset, False)
        return original(self, batch, header, now_ms, **options)

    patch.setattr(Replica, "append", append)


def promise_partitions(patch: Patch) -> None:
    """CreatePartitions succeeds, and nothing is created."""
    original = TopicHandlers.create_partitions

    def create_partitions(self: TopicHandlers, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
        return original(self, request)._replace(records=[])

    patch.setattr(TopicHandlers, "create_partitions", create_partitions)


class Variant(NamedTuple):
    sabotage: Callable[[Patch], None]
    checker: str
    circumstances: Circumstances
    misfortunes: tuple[str, ...]
    rounds: int = ROUNDS
    first: int = 6  # the seed to begin with


VARIANTS = [
    Variant(keep_eligible_replicas_anyway, "LastInSyncStays", Circumstances(elr=False), ("kill", "stop")),
    Variant(lead_with_what_is_committed, "Durability", Circumstances(unclean="setting"), ("strand",), 2),
    Variant(tell_no_truncation, "ToldOfTruncation", Circumstances(unclean="setting"), ("strand",), 3),
    Variant(name_whoever_is_close, "PreferredIsInSync", Circumstances(racks=True), ("separate",), first=16),
    Variant(take_all_for_committed, "NeverAboveHighWatermark", Circumstances(racks=True), ("separate",)),
    Variant(skip_a_batch, "ReadersFindAll", Circumstances(racks=True), ("separate",)),
    Variant(
        acknowledge_before_it_is_stored, "DeletedStays", Circumstances(deletes=True), ("kill", "lose_power"), first=145
    ),
    Variant(forget_the_beginning, "LogStartStays", Circumstances(deletes=True), ("kill", "stop"), first=9),
    Variant(delete_what_is_not_committed, "OnlyCommittedGoes", Circumstances(deletes=True), ("slow_network",), 2),
    Variant(retain_less, "RetentionKeeps", Circumstances(retains=True), ("jump",), 2),
    Variant(stamp_repeated_batches_anew, "AppendTime", Circumstances(stamps=True), ("kill", "cut_one_way")),
    Variant(forget_some_batches, "AtLeastOnce", Circumstances(plain_acks=1), ("jump",), 2),
    Variant(promise_partitions, "PartitionsStay", Circumstances(grows=True), ("grow",), 2),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.sabotage.__name__)
def test_what_is_broken_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    quietly()
    variant.sabotage(monkeypatch)

    def story(loop: SimulatedLoop, seed: int) -> ClusterStory:
        return ClusterStory(
            loop,
            seed,
            rounds=variant.rounds,
            misfortunes=variant.misfortunes,
            circumstances=variant.circumstances,
        )

    seeds = range(variant.first, variant.first + SEEDS)
    assert_caught(variant.checker, seeds, lambda seed: play_on_loop(seed, lambda loop: story(loop, seed)).violation)
