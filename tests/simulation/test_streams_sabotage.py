"""Mistakes made on purpose in streams groups: the laws of their story must catch each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.groups.modern_group import Replay
from penstock.groups.streams_group import StreamsGroup
from penstock.groups.streams_heartbeat import StreamsHeartbeat
from penstock.groups.streams_membership import StreamsMembership
from penstock.groups.streams_tasks import TaskSets
from penstock.protocol.messages.streams_group_records import (
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
)
from penstock.simulator.stories.streams_story import play
from penstock.simulator.story import quietly
from simulation.sabotage import assert_caught

SEEDS = range(4)

Patch = pytest.MonkeyPatch


def tasks_are_given_before_they_are_given_up(patch: Patch) -> None:
    patch.setattr(StreamsGroup, "active_in", lambda self, task: None)


def a_group_forgets_its_epoch(patch: Patch) -> None:
    replay = StreamsGroup.REPLAY[StreamsGroupMetadataKey]

    def forgetful(self: StreamsGroup, key: Any, value: Any) -> None:
        replay(self, key, value)
        if self.epoch == 8:
            self.epoch = 2

    changed: Replay = {**StreamsGroup.REPLAY, StreamsGroupMetadataKey: forgetful}
    patch.setattr(StreamsGroup, "REPLAY", changed)


def a_task_is_left_out(patch: Patch) -> None:
    replay = StreamsGroup.REPLAY[StreamsGroupTargetAssignmentMemberKey]

    def careless(self: StreamsGroup, key: StreamsGroupTargetAssignmentMemberKey, value: Any) -> None:
        replay(self, key, value)
        if key.member_id in self.target:
            target = self.target[key.member_id]
            kept = frozenset(task for task in target.active if task != ("0", 1))
            self.target[key.member_id] = TaskSets(kept, target.standby, target.warmup)

    changed: Replay = {**StreamsGroup.REPLAY, StreamsGroupTargetAssignmentMemberKey: careless}
    patch.setattr(StreamsGroup, "REPLAY", changed)


def members_that_died_are_not_missed(patch: Patch) -> None:
    patch.setattr(StreamsMembership, "watch", lambda self, *given: None)


def a_change_is_not_written(patch: Patch) -> None:
    keep = StreamsHeartbeat._keep

    def unwritten(self: StreamsHeartbeat, group: StreamsGroup, *given: Any) -> None:
        keep(self, group, *given)
        group.validated_epoch += 1

    patch.setattr(StreamsHeartbeat, "_keep", unwritten)


@pytest.mark.parametrize(
    ("sabotage", "law"),
    [
        (tasks_are_given_before_they_are_given_up, "OneActiveOwner"),
        (a_group_forgets_its_epoch, "EpochsNeverFall"),
        (a_task_is_left_out, "EveryTaskAssigned"),
        (members_that_died_are_not_missed, "EveryTaskAssigned"),
        (a_change_is_not_written, "StateEqualsLog"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_law_catches(sabotage: Callable[[Patch], None], law: str, monkeypatch: Patch) -> None:
    quietly()
    sabotage(monkeypatch)
    assert_caught(law, SEEDS, lambda seed: play(seed).violation)
