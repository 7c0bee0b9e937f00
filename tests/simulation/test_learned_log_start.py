"""A follower learns where the log begins, also if the first answer that says so is one that followers ignore: it says
where the logs diverge.

In a session, leaders of Apache Kafka do not repeat what was in such an answer, and its followers do not ask again. A
follower that did not know would bring deleted records back when it is elected.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from narrowing import present
from penstock.broker.partitions import follower_fetch
from penstock.broker.partitions.divergence import divergence
from penstock.broker.partitions.fetcher import Fetcher
from penstock.broker.partitions.follower_fetch import FollowerFetch
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.fetch import EpochEndOffset
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic


def leads_like_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    note_sent = FollowerFetch._note_sent

    def note_all_sent(self: FollowerFetch, results: Any) -> None:
        note_sent(self, results)
        for position, data in results:
            position.sent_high_watermark, position.sent_log_start = data.high_watermark, data.log_start_offset

    monkeypatch.setattr(FollowerFetch, "_note_sent", note_all_sent)


def follows_like_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees, reset_session = Fetcher._agrees, Fetcher._reset_session

    def go_on_in_the_session(self: Fetcher, followed: Any, data: Any) -> bool:
        agreed = agrees(self, followed, data)
        if data.diverging_epoch is not None:
            self._changed[followed.key] = followed
            data.diverging_epoch = None
            monkeypatch.setattr(self, "_reset_session", lambda: None)
            self._loop.call_soon(monkeypatch.setattr, self, "_reset_session", reset_session.__get__(self))
        return agreed

    monkeypatch.setattr(Fetcher, "_agrees", go_on_in_the_session)


@pytest.mark.parametrize("one_side_like_kafka", [leads_like_kafka, follows_like_kafka])
def test_an_answer_about_divergence_hides_no_log_start(
    one_side_like_kafka: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[int] = []

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2))
        leader, follower = topic.leader, topic.followers[0]
        one_side_like_kafka(monkeypatch)
        for number in range(10):
            assert await topic.produce(f"value {number}") == ErrorCode.NONE
        await asyncio.sleep(2)

        def diverging_once(log: Any, offset: int, epoch: int) -> EpochEndOffset | None:
            if said or log is not topic.replica(leader).log or offset < log.log_end_offset:
                return divergence(log, offset, epoch)
            said.append(offset)
            present(leader.broker).storage.delete_before(topic.replica(leader), 5)
            return EpochEndOffset(epoch=epoch, end_offset=offset)  # nothing has to be cut

        monkeypatch.setattr(follower_fetch, "divergence", diverging_once)
        monkeypatch.setattr(FollowerFetch, "_read_plainly", lambda *_: None)  # it does not look for divergence
        follower.crash()
        follower.start()
        await topic.in_sync(1, 2)
        await asyncio.sleep(5)
        assert [topic.replica(each).log.log_start_offset for each in (leader, follower)] == [5, 5]

    simulate(story)
    assert said
