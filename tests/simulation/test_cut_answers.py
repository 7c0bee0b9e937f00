"""Answers to fetches that end in the middle of a batch, as those of Apache Kafka's leaders do where `max_bytes` ends:
what comes before the cut is used. What cannot be used at all is asked for again after a while, and told of rarely."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from narrowing import present
from penstock.broker.metadata.raft_driver import RaftDriver
from penstock.broker.partitions import follower_fetch
from penstock.broker.partitions.follower_fetch import FollowerFetch
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse
from penstock.records.batch import iterate_headers
from penstock.simulator.stories.cluster_world import CONTROLLER_PORT
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic


def cut(records: Any) -> Any:
    """In the middle of the last of several batches."""
    batches = list(iterate_headers(records))
    if len(batches) < 2:
        return records
    position, header = batches[-1]
    return records[: position + header.size // 2]


class Cuts:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, records: Any) -> Any:
        shorter = cut(records)
        self.count += len(shorter) < len(records)
        return shorter


@pytest.fixture
def cut_by_leaders(monkeypatch: pytest.MonkeyPatch) -> Cuts:
    cuts, original = Cuts(), FollowerFetch._response

    def response(self: FollowerFetch, results: Any) -> FetchResponse:
        answer = original(self, results)
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.records:
                    partition.records = cuts(partition.records)
        return answer

    monkeypatch.setattr(follower_fetch, "_plain_results", lambda results: None)
    monkeypatch.setattr(FollowerFetch, "_response", response)
    return cuts


@pytest.fixture
def cut_by_the_quorum(monkeypatch: pytest.MonkeyPatch) -> Cuts:
    cuts, original = Cuts(), RaftDriver.read_log

    def read_log(self: RaftDriver, offset: int, max_bytes: int, end: int) -> bytes:
        records: bytes = cuts(original(self, offset, max_bytes, end))
        return records

    monkeypatch.setattr(RaftDriver, "read_log", read_log)
    return cuts


def test_a_follower_catches_up(cut_by_leaders: Cuts) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2))
        for number in range(20):
            assert await topic.produce(f"value {number}") == ErrorCode.NONE
        await topic.reassign(1, 2, 3)
        await topic.in_sync(1, 2, 3, patience_s=20)
        assert topic.replica(topic.machine(3)).log.log_end_offset == 20
        assert present(topic.machine(3).broker).replication.fetchers.damaged_answers == 0

    simulate(story)
    assert cut_by_leaders.count > 0


def test_the_quorum_catches_up(cut_by_the_quorum: Cuts) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2, 3))
        late = topic.machine(3)
        late.crash()
        late.lose_disk()
        await topic.in_sync(1, 2)
        late.start()
        await topic.in_sync(1, 2, 3, patience_s=30)

    simulate(story)
    assert cut_by_the_quorum.count > 0


def test_what_the_quorum_cannot_use_is_asked_for_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one whole batch for a minute, then all is well. The leader is a bootstrap server, too: by that name it is
    not to be asked in between."""
    original, asked = RaftDriver.read_log, list[float]()
    bootstrap = {"controller.quorum.bootstrap.servers": f"controller-1:{CONTROLLER_PORT}"}

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2, 3), properties=bootstrap)
        late = topic.machine(3)
        late.crash()
        late.lose_disk()
        await topic.in_sync(1, 2)
        broken = True

        def read_log(self: RaftDriver, offset: int, max_bytes: int, end: int) -> bytes:
            records = original(self, offset, max_bytes, end)
            if offset > 0 or not broken:
                return records
            asked.append(loop.time())
            return records[:70]

        monkeypatch.setattr(RaftDriver, "read_log", read_log)
        late.start()
        await asyncio.sleep(60)
        broken = False
        await topic.in_sync(1, 2, 3, patience_s=30)

    with caplog.at_level(logging.INFO):
        simulate(story)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert len(asked) < 80, pauses[:10]
    assert max(pauses) < 1.5
    told = [record for record in caplog.records if "metadata log cannot be used" in record.getMessage()]
    assert 0 < len(told) < 30


def test_what_a_follower_cannot_use_is_told_of_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original, asked = FollowerFetch._response, list[float]()

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2))
        assert await topic.produce("value") == ErrorCode.NONE
        broken = True

        def response(self: FollowerFetch, results: Any) -> FetchResponse:
            answer = original(self, results)
            for part in answer.responses:
                for partition in part.partitions:
                    if isinstance(partition.records, bytes | memoryview) and partition.records and broken:
                        asked.append(loop.time())
                        partition.records = partition.records[:65]
            return answer

        monkeypatch.setattr(follower_fetch, "_plain_results", lambda results: None)
        monkeypatch.setattr(FollowerFetch, "_response", response)
        await topic.reassign(1, 2, 3)
        await asyncio.sleep(60)
        broken = False
        await topic.in_sync(1, 2, 3, patience_s=30)

    with caplog.at_level(logging.INFO):
        simulate(story)
    assert 30 < len(asked) < 70
    told = [record for record in caplog.records if "cannot be appended" in record.getMessage()]
    assert 0 < len(told) < 30
