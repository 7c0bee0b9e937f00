"""A follower that begins below the leader's log start learns that at once, throttled or not. A follower of Apache Kafka
that gets the log start without the error gives the partition up ("Cannot increment the log start offset to ... since
it is larger than the high watermark", "marked as failed")."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from narrowing import present
from penstock.broker.partitions.follower_fetch import FollowerFetch
from penstock.broker.partitions.throttle import ReplicationThrottle
from penstock.model.errors import ErrorCode, KafkaError
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic


def test_a_throttled_follower_below_the_log_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationThrottle, "is_unlimited", property(lambda self: False))
    monkeypatch.setattr(ReplicationThrottle, "holds_back", lambda self, replica: True)
    original, answers = FollowerFetch._read_position, list[tuple[int, int, ErrorCode]]()

    def read_position(self: FollowerFetch, position: Any, *arguments: Any, **options: Any) -> Any:
        try:
            data, cold = original(self, position, *arguments, **options)
        except KafkaError as error:
            answers.append((position.offset, -1, error.code))
            raise
        answers.append((position.offset, data.log_start_offset, ErrorCode.NONE))
        return data, cold

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2))
        for number in range(10):
            assert await topic.produce(f"value {number}") == ErrorCode.NONE
        present(topic.leader.broker).storage.delete_before(topic.replica(topic.leader), 5)
        monkeypatch.setattr(FollowerFetch, "_read_position", read_position)
        await topic.reassign(1, 2, 3)
        await asyncio.sleep(5)

    simulate(story)
    below = [answer for answer in answers if answer[0] < 5]
    assert below and all(code is ErrorCode.OFFSET_OUT_OF_RANGE for _, _, code in below), below
