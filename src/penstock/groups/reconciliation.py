"""How a member gets from what it has to what it should have.

    Stable               a new target               -> what it must give up comes first, if there is any
    UnrevokedPartitions  it has given all of it up  -> the target's epoch, with what is free of its target
    UnreleasedPartitions what others held is free   -> it gets that too
    anything             nothing missing            -> Stable, in the target's epoch

A member learns what it must give up by an assignment without it, and confirms by a heartbeat that lists what it owns.
Only then does it enter the epoch of its target, and only then may others have what it gave up: no partition is ever
with two members. What is still with another is simply left out, and follows with a later heartbeat.

Whatever the target says, a member gets nothing of topics it is not subscribed to any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from penstock.groups.consumer_member import ConsumerMember, MemberState, Owned, Target
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.consumer_group_heartbeat import TopicPartitions


class WantedAssignment(NamedTuple):
    """What a member is to have, and in which epoch."""

    epoch: int
    target: Target
    # Ids of the topics it is subscribed to.
    subscribed: Collection[Uuid]
    # Whether that has just changed, so that even a member that is up to date may have to give something up.
    subscription_changed: bool
    # Who has a partition now.
    owner_of: Callable[[Uuid, int], str | None]


def reconcile(
    member: ConsumerMember, wanted: WantedAssignment, owned: Iterable[TopicPartitions] | None
) -> ConsumerMember:
    """The member after its heartbeat. `owned`: what it says it has; None if it did not say."""
    reported = None if owned is None else {part.topic_id: frozenset(part.partitions) for part in owned}
    if member.state is MemberState.STABLE and member.epoch == wanted.epoch:
        return _shed(member, wanted, reported) if wanted.subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_has(member.revoking, reported):
        return _shed(member, wanted, reported) if wanted.subscription_changed else member
    if member.state is MemberState.UNKNOWN and reported != {}:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _advance(member, wanted, reported)


def _still_has(revoking: Owned, reported: Target | None) -> bool:
    """Who does not say what it owns may still own all of it."""
    if reported is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, ())) for topic_id, partitions in reported.items())


def _shed(member: ConsumerMember, wanted: WantedAssignment, reported: Target | None) -> ConsumerMember:
    """Within its epoch, a member gives up the topics it has unsubscribed from."""
    kept = {topic_id: part for topic_id, part in member.assigned.items() if topic_id in wanted.subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoking = {topic_id: dict(part) for topic_id, part in member.revoking.items()}
    for topic_id, part in member.assigned.items():
        if topic_id not in kept:
            revoking.setdefault(topic_id, {}).update(part)
    if _still_has(revoking, reported):
        return member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    # It has given them up before it was asked to.
    return member._replace(previous_epoch=member.epoch, assigned=kept)


def _advance(member: ConsumerMember, wanted: WantedAssignment, reported: Target | None) -> ConsumerMember:
    assigned: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    granted: dict[Uuid, dict[int, int]] = {}
    waits = False
    for topic_id in {*wanted.target, *member.assigned}:
        target = wanted.target.get(topic_id, frozenset()) if topic_id in wanted.subscribed else frozenset()
        has = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in has.items() if partition in target}
        lost = {partition: epoch for partition, epoch in has.items() if partition not in target}
        new = {}
        for partition in target - has.keys():
            # What it was giving up, and has given up, it may have back.
            if wanted.owner_of(topic_id, partition) in (None, member.member_id):
                new[partition] = wanted.epoch
            else:
                waits = True
        if kept or new:
            assigned[topic_id] = kept
            granted[topic_id] = {**kept, **new}
        if lost:
            revoking[topic_id] = lost
    if revoking and _still_has(revoking, reported):
        return member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned={topic_id: part for topic_id, part in assigned.items() if part},
            revoking=revoking,
        )
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    if (member.state, member.epoch, member.assigned) == (state, wanted.epoch, granted):
        # Still waiting for the same.
        return member
    return member._replace(
        state=state,
        epoch=wanted.epoch,
        previous_epoch=member.epoch,
        assigned=granted,
        revoking={},
    )
