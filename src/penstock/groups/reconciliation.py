"""Reconciliation: how a member moves from its current assignment to its target.

    Stable               a new target                 -> first it must revoke partitions, if there are any to revoke
    UnrevokedPartitions  it has revoked all of them   -> the target's epoch, with the free partitions of its target
    UnreleasedPartitions others released partitions   -> it gets these too
    anything             nothing missing              -> Stable, in the target's epoch

A member learns what it must give up from an assignment without those partitions, and confirms with a heartbeat that
lists what it owns. Only then does it enter the epoch of its target, and only then may others get these partitions: no
partition ever has two owners. Partitions that another member still has are left out, and follow with a later heartbeat.

Whatever the target says, a member gets no partitions of topics it is no longer subscribed to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from penstock.groups.consumer_member import ConsumerMember, MemberState, Owned, Target
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.consumer_group_heartbeat import TopicPartitions


class WantedAssignment(NamedTuple):
    """The target of a member, and its epoch."""

    epoch: int
    target: Target
    # Ids of the topics it is subscribed to.
    subscribed: Collection[Uuid]
    # Whether that has just changed: then even a member that is up to date may have to give up partitions.
    subscription_changed: bool
    # The current owner of a partition.
    owner_of: Callable[[Uuid, int], str | None]


def reconcile(
    member: ConsumerMember, wanted: WantedAssignment, owned: Iterable[TopicPartitions] | None
) -> ConsumerMember:
    """Return the member after its heartbeat. `owned`: the partitions it lists; None if it lists none."""
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
    """Whether the member may still own revoked partitions. A member that lists nothing may still own all of them."""
    if reported is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, ())) for topic_id, partitions in reported.items())


def _shed(member: ConsumerMember, wanted: WantedAssignment, reported: Target | None) -> ConsumerMember:
    """Give up topics that the member has unsubscribed from, within its epoch."""
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
    # It gave them up before it was asked to.
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
            # The member may get back partitions that it has given up.
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
        # It still waits for the same partitions.
        return member
    return member._replace(
        state=state,
        epoch=wanted.epoch,
        previous_epoch=member.epoch,
        assigned=granted,
        revoking={},
    )
