"""Migration of a group with members between the classic and the consumer protocol.

Upgrade: a consumer-protocol member joins a classic group. The partitions of the members become their assignment and
their target; each member keeps its classic fields; the new member starts the next epoch. Members that wait in a classic
rebalance get REBALANCE_IN_PROGRESS, join again, and so join the new group.

Downgrade: when the last consumer-protocol member has left, the group becomes classic, with the current assignment of
all members, and rebalances at once.

Either is one batch of records: the tombstones of the old group and the records of the new one. Before that batch is
replayed, a handler finds the group in a draft or, in a downgrade, in the live classic group created here.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.coordinator.decision import Decision, Reply
from penstock.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ClassicFacet, ConsumerMember
from penstock.groups.draft import Draft
from penstock.groups.embedded import (
    CONSUMER,
    by_topic_id,
    embedded_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.groups.rebalance import Rebalance, join_error, sync_error
from penstock.groups.records import (
    classic_group_record,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.groups.topics import metadata_hash
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

# Assignors whose user data, if an assignment carries any, is also in the members' subscriptions: librdkafka sends that
# of cooperative-sticky with each assignment. (Kafka takes it for a custom assignor's, and refuses.)
_SELF_CONTAINED = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


class Migration:
    def __init__(self, state: GroupState, rebalance: Rebalance) -> None:
        self._state = state
        self._rebalance = rebalance

    # -- upgrade -------------------------------------------------------------------------------------------------------

    def upgrade(self, classic: ClassicGroup, draft: Draft) -> None:
        """Write the classic group as a consumer group to the draft. KafkaError if that is impossible."""
        self._check_upgrade(classic)
        try:
            members = self._members(classic)
        except MalformedMessage:
            raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from None
        group_id, epoch = classic.group_id, classic.generation
        for member in members:
            draft.emit(member_record(group_id, member.member_id, member.wishes()))
        current_hash = metadata_hash(draft.group.subscribed_topics(), self._state.topics)
        draft.emit(epoch_record(group_id, epoch, current_hash))
        for member in members:
            draft.emit(target_record(group_id, member.member_id, member.assigned))
        draft.emit(target_epoch_record(group_id, epoch, 0))
        for member in members:
            draft.emit(current_record(group_id, member.member_id, member.possessions()))

    def upgraded(self, classic: ClassicGroup, group: ConsumerGroup, now_ms: int, out: Decision) -> None:
        """Complete an upgrade: waiting members get REBALANCE_IN_PROGRESS; sessions continue."""
        for member in classic.waiting():
            token = classic.take_join_token(member)
            if token is not None:
                out.replies.append(Reply(token, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
            token, member.sync_token = member.sync_token, None
            if token is not None:
                out.replies.append(Reply(token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
        for kind in ("join", "sync"):
            self._state.timers.cancel(TimerKey(kind, classic.group_id))
        for entry in group.members.values():
            if entry.classic is not None:
                key = TimerKey("session", classic.group_id, entry.member_id)
                self._state.timers.set(key, now_ms + entry.classic.session_timeout_ms)

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self._state.settings.allows_upgrade:
            raise _no_upgrade(classic, "online upgrade is disabled")
        if not classic.uses_consumer_protocol:
            raise _no_upgrade(classic, "the group does not use the consumer embedded protocol")
        if len(classic.members) > self._state.settings.consumer_max_size:
            raise _no_upgrade(classic, "the group size exceeds the consumer group maximum size")

    def _members(self, classic: ClassicGroup) -> list[ConsumerMember]:
        subscriptions = {}
        for member in classic.members.values():
            # Before the first vote there is no protocol; the subscription is the same in all of them.
            metadata = member.metadata(classic.protocol) if classic.protocol else member.protocols[0].metadata
            subscriptions[member.member_id] = read_subscription(metadata)
        owned = self._ownership(classic, subscriptions)
        members = []
        for member in classic.members.values():
            subscription = subscriptions[member.member_id]
            members.append(
                ConsumerMember(
                    member.member_id,
                    instance_id=member.instance_id,
                    rack_id=subscription.rack_id or None,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    topics=frozenset(subscription.topics),
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    classic=ClassicFacet(member.session_timeout_ms, member.protocols),
                    epoch=classic.generation,
                    previous_epoch=classic.generation,
                    assigned=owned[member.member_id],
                )
            )
        return members

    def _ownership(
        self, classic: ClassicGroup, subscriptions: Mapping[str, ConsumerProtocolSubscription]
    ) -> dict[str, dict[Uuid, dict[int, int]]]:
        """Return the partitions that each member may have now; each partition has one owner.

        That is what the member listed as owned when it last joined, plus what it was last assigned: the coordinator
        does not know which of the two it has received. Members that received their assignment in this generation come
        first: a static member that missed the rebalance may still claim some of the same partitions. A member that has
        less than assumed here says so when it joins again, which is soon.
        """
        claimed: set[tuple[Uuid, int]] = set()
        owned: dict[str, dict[Uuid, dict[int, int]]] = {}
        lacks_assignment = {
            member.member_id: member.waits or member.member_id in classic.pending_syncs
            for member in classic.members.values()
        }
        for member in sorted(classic.members.values(), key=lambda member: lacks_assignment[member.member_id]):
            said = [(part.topic, part.partitions) for part in subscriptions[member.member_id].owned_partitions]
            said += self._assigned(classic, member)
            share: dict[Uuid, dict[int, int]] = {}
            for topic_id, partitions in by_topic_id(said, self._state.topics).items():
                free = [partition for partition in sorted(partitions) if (topic_id, partition) not in claimed]
                claimed.update((topic_id, partition) for partition in free)
                if free:
                    share[topic_id] = dict.fromkeys(free, classic.generation)
            owned[member.member_id] = share
        return owned

    def _assigned(self, classic: ClassicGroup, member: ClassicMember) -> list[tuple[str, list[int]]]:
        if not member.assignment:
            return []
        assignment = read_assignment(member.assignment)
        if assignment.user_data and classic.protocol not in _SELF_CONTAINED:
            raise _no_upgrade(
                classic,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        return [(part.topic, part.partitions) for part in assignment.assigned_partitions]

    # -- downgrade -----------------------------------------------------------------------------------------------------

    def can_downgrade(self, group: ConsumerGroup) -> bool:
        """Whether all members use the classic protocol, and policy and `group.max.size` allow a classic group."""
        return (
            0 < len(group.members) == group.classic_members
            and self._state.settings.allows_downgrade
            and len(group.members) <= self._state.settings.max_size
        )

    def downgrade(self, draft: Draft, now_ms: int) -> ClassicGroup:
        """Return the group of the draft as a classic group; its records are in the draft."""
        group = draft.group
        classic = ClassicGroup(group.group_id, now_ms)
        classic.generation = group.epoch
        for member in group.members.values():
            assert member.classic is not None
            classic.add(
                ClassicMember(
                    member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.classic.session_timeout_ms,
                    protocols=member.classic.protocols,
                ),
                CONSUMER,
            )
        classic.state = ClassicState.STABLE
        classic.protocol = classic.elect_protocol()
        classic.subscribed_topics = classic.read_subscribed_topics()
        for entry in classic.members.values():
            version = version_of(entry.metadata(classic.protocol))
            entry.assignment = write_assignment(_has(group.members[entry.member_id]), self._state.topics, version)
        for record in group.tombstones():
            draft.records.append(record)
        # The log is one generation ahead of the members. If another coordinator takes over before the rebalance, which
        # is in memory only, is over, the members find out and join again.
        value = classic.value()
        value.generation += 1
        classic.skipped_generations = 1
        draft.records.append(classic_group_record(group.group_id, value))
        return classic

    def downgraded(self, classic: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Make the classic group live and start its rebalance."""
        self._state.classic[classic.group_id] = classic
        for member in classic.members.values():
            for kind in ("rejoin", "resync"):
                self._state.timers.cancel(TimerKey(kind, classic.group_id, member.member_id))
            self._rebalance.restart_session(classic, member, now_ms)
        self._rebalance.begin(classic, now_ms, out)


def version_of(metadata: bytes) -> int:
    """Return the version in which to answer a subscription; the first version, if it cannot be read."""
    try:
        return embedded_version(metadata)
    except MalformedMessage:
        return 0


def _has(member: ConsumerMember) -> dict[Uuid, list[int]]:
    """Return the partitions of a member, including those it is still giving up."""
    found: dict[Uuid, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, partitions in owned.items():
            found.setdefault(topic_id, []).extend(partitions)
    return found


def _no_upgrade(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.",
    )
