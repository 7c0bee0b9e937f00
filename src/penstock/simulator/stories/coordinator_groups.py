"""Consumer groups of a simulated cluster, of both protocols, with members that join, leave, vanish and hang.

A member commits the offsets of the partitions it owns, one after the other. A new owner of a partition continues where
the last owner was. The laws:

- `OneOwner`: a partition has one owner in a generation of a classic group. In a consumer group it has one at any
  moment: a member owns what it was given until it reports that it has given it up, or its session may have ended.
- `AcknowledgedCommits`: a new owner of a partition finds what was committed before, whichever broker answers.
- `MembersStay`: a member whose session lasts is not removed.
- `GroupsSettle`: once everything works, the remaining members share all partitions.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from penstock.groups.embedded import CONSUMER, read_assignment
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.codec import encode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.simulator.client import Client
from penstock.simulator.stories.coordinator_clients import GROUP, Answer, Ask, CoordinatorClients, Place
from penstock.simulator.story import Violation

SESSION_MS: Final = 6000
REBALANCE_MS: Final = 8000
# A coordinator's clock that catches up after a jump runs a tenth faster.
LEASE_S: Final = SESSION_MS / 1000 * 0.9
HANGS_S: Final = 2 * SESSION_MS / 1000
JOIN_PATIENCE_S: Final = 15.0

_VERSION_0: Final = b"\0\0"
_FORGOTTEN: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND))
_OUT: Final = _FORGOTTEN | {
    ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
}  # fmt: skip


class SimulatedGroup:
    """`is_over`: the remaining members may leave."""

    def __init__(self, clients: CoordinatorClients, name: str, partitions: int, *, members: int, classic: bool) -> None:
        self.clients = clients
        self.name = name
        self.place = Place(GROUP, name)
        self.partitions = range(partitions)
        self.acknowledged = dict.fromkeys(self.partitions, -1)
        self.is_over = False
        self.incarnations = 0
        kind: type[Member] = ClassicMember if classic else ConsumerMember
        self.members: list[Member] = [kind(self, stays=number % 2 == 0) for number in range(members)]
        self._owners: dict[tuple[int, int], str] = {}
        self._leases: dict[int, tuple[str, float]] = {}

    # -- ownership --------------------------------------------------------------------------------------------------

    def given(self, generation: int, member_id: str, partitions: set[int]) -> None:
        """In a classic group."""
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise Violation(
                    "OneOwner", f"{self.name}: {partition} is {owner}'s and {member_id}'s in generation {generation}"
                )

    def hold(self, member_id: str, partitions: set[int], until: float) -> None:
        """In a consumer group."""
        for partition in partitions:
            owner, lasts = self._leases.get(partition, (member_id, 0.0))
            if owner != member_id and lasts > self.clients.time:
                raise Violation("OneOwner", f"{self.name}: {member_id} has {partition}, as {owner} does")
            self._leases[partition] = member_id, until

    def let_go(self, member_id: str, partitions: set[int]) -> None:
        for partition in partitions:
            if self._leases.get(partition, ("", 0.0))[0] == member_id:
                del self._leases[partition]

    def is_settled(self) -> bool:
        owned = [partition for member in self.members if member.is_alive for partition in member.owned]
        return sorted(owned) == list(self.partitions)


class Member(ABC):
    """One place in the group: a member lives and ends, and another takes its place."""

    def __init__(self, group: SimulatedGroup, *, stays: bool) -> None:
        self.group = group
        self.clients = group.clients
        self.stays = stays  # when everything works
        self.is_alive = False
        self.owned: dict[int, int | None] = {}  # with the last committed offset, once that is known
        self._was_hung = False

    async def run(self) -> None:
        clients, chance = self.clients, self.clients.chance
        while not self.group.is_over:
            self._begin()
            self.is_alive = True
            end = clients.time + chance.uniform(3.0, 25.0)
            while not self.group.is_over and (clients.time < end if not clients.over else self.stays):
                await self._beat()
                await self._commit()
                await asyncio.sleep(chance.uniform(0.3, 1.0) * (2 if clients.over else 1))
                if clients.time >= end and not clients.over and chance.random() < 0.4:
                    await self._hang()
                    end += chance.uniform(3.0, 10.0)
            await self._end()
            if clients.over:
                return
            await asyncio.sleep(chance.uniform(0.0, 3.0))

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    async def _beat(self) -> None:
        """Join, or send a heartbeat."""

    @abstractmethod
    async def _leave(self) -> None: ...

    @abstractmethod
    async def _commit_as(self, offsets: dict[int, int]) -> Answer: ...

    def _lose(self, partitions: set[int]) -> None:
        for partition in partitions:
            del self.owned[partition]

    async def _hang(self) -> None:
        """For longer than its session. It does not notice, and commits."""
        self.clients.events["members hung"] += 1
        await asyncio.sleep(HANGS_S)
        self._was_hung = True
        await self._commit()
        self._was_hung = False

    async def _end(self) -> None:
        self.is_alive = False
        self._lose(set(self.owned))
        if self.clients.chance.random() < 0.5:
            await self._leave()
            self.clients.events["members left"] += 1
        else:
            self.clients.events["members vanished"] += 1

    # -- offsets ----------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        group = self.group
        for partition in [each for each, offset in self.owned.items() if offset is None]:
            await self._find_position(partition)
        offsets = {partition: offset + 1 for partition, offset in self.owned.items() if offset is not None}
        if not offsets:
            return
        code = (await self._commit_as(offsets)).code
        if code is ErrorCode.NONE:
            self.clients.events["commits of members"] += 1
            for partition, offset in offsets.items():
                group.acknowledged[partition] = max(offset, group.acknowledged[partition])
                if partition in self.owned:
                    self.owned[partition] = offset
        elif self._was_hung and code in _OUT:
            self.clients.events["commits too late"] += 1

    async def _find_position(self, partition: int) -> None:
        clients, group = self.clients, self.group
        least = group.acknowledged[partition]
        code, offset, _ = await clients.attempt(group.place, clients.fetch_offset(group.name, partition, stable=False))
        if code is not ErrorCode.NONE or partition not in self.owned:
            return
        if offset < least:
            raise Violation("AcknowledgedCommits", f"{group.name}: {partition} is at {offset}, and was at {least}")
        self.owned[partition] = offset


class ConsumerMember(Member):
    """Of the consumer protocol (KIP-848)."""

    def _begin(self) -> None:
        self.group.incarnations += 1
        self._member_id = f"member-{self.group.incarnations}"
        self._epoch = 0
        self._lease = 0.0
        self._topic_id = ZERO_UUID

    def _lose(self, partitions: set[int]) -> None:
        super()._lose(partitions)
        self.group.let_go(self._member_id, partitions)

    async def _beat(self) -> None:
        group, sent = self.group, self.clients.time
        joins = self._epoch == 0
        code, answer, is_current = await self.clients.attempt(group.place, self._heartbeat(joins=joins))
        if code in _OUT:
            if code in _FORGOTTEN and is_current and not joins and self.clients.time < self._lease:
                raise Violation("MembersStay", f"{group.name}: {self._member_id} in {self._epoch}: {code.name}")
            self.clients.events["members fenced"] += 1
            self._lose(set(self.owned))
            self._epoch = 0
        # A coordinator that has been cut off, and does not know, keeps no session alive.
        if code is not ErrorCode.NONE or not is_current:
            return
        self._epoch = answer.member_epoch
        self._lease = sent + LEASE_S
        if answer.assignment is not None:
            wanted = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
            self._topic_id = next((topic.topic_id for topic in answer.assignment.topic_partitions), ZERO_UUID)
            self._lose(self.owned.keys() - wanted)
            self.owned.update(dict.fromkeys(sorted(wanted - self.owned.keys())))
        group.hold(self._member_id, set(self.owned), self._lease)

    def _heartbeat(self, *, joins: bool) -> Ask:
        owned = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            subscribed_topic_names=[self.clients.topic] if joins else None,
            topic_partitions=owned,
        )

        async def ask(client: Client) -> tuple[ErrorCode, ConsumerGroupHeartbeatResponse]:
            answer = await client.ask(request)
            return ErrorCode(answer.error_code), answer

        return ask

    async def _leave(self) -> None:
        self._epoch = -1
        await self.clients.attempt(self.group.place, self._heartbeat(joins=False))

    async def _commit_as(self, offsets: dict[int, int]) -> Answer:
        ask = self.clients.commit_offset(self.group.name, offsets, generation=self._epoch, member=self._member_id)
        return await self.clients.attempt(self.group.place, ask)


class ClassicMember(Member):
    def _begin(self) -> None:
        self._member_id = ""
        self._generation = -1

    async def _beat(self) -> None:
        if self._generation < 0:
            await self._join()
            return
        request = HeartbeatRequest(group_id=self.group.name, generation_id=self._generation, member_id=self._member_id)

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            return ErrorCode((await client.ask(request)).error_code), None

        code = (await self.clients.attempt(self.group.place, ask)).code
        if code in _OUT:
            self._lose(set(self.owned))
            self._generation = -1
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self.clients.events["members fenced"] += 1
                self._member_id = "" if code in _FORGOTTEN else self._member_id

    async def _join(self) -> None:
        subscription = _VERSION_0 + encode(ConsumerProtocolSubscription(topics=[self.clients.topic]), 0)
        request = JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name="turns", metadata=subscription)],
        )

        async def ask(client: Client) -> tuple[ErrorCode, JoinGroupResponse]:
            answer = await client.ask(request)
            return ErrorCode(answer.error_code), answer

        code, answer, _ = await self.clients.attempt(self.group.place, ask, patience=JOIN_PATIENCE_S)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        elif code in _FORGOTTEN:
            self._member_id = ""
        elif code is ErrorCode.NONE:
            self._member_id = answer.member_id
            await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        generation = joined.generation_id
        members = [member.member_id for member in joined.members]  # only the leader gets them
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=generation,
            member_id=self._member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=self._turns(number, members, generation))
                for number, member_id in enumerate(members)
            ],
        )

        async def ask(client: Client) -> tuple[ErrorCode, bytes]:
            answer = await client.ask(request)
            return ErrorCode(answer.error_code), bytes(answer.assignment)

        code, assignment, _ = await self.clients.attempt(self.group.place, ask, patience=JOIN_PATIENCE_S)
        if code is not ErrorCode.NONE:
            return
        parts = read_assignment(assignment).assigned_partitions if assignment else []
        given = {index for part in parts for index in part.partitions}
        self.group.given(generation, self._member_id, given)
        self.clients.events["generations"] += bool(members)
        self._generation = generation
        self.owned = dict.fromkeys(sorted(given))

    def _turns(self, number: int, members: list[str], generation: int) -> bytes:
        mine = [index for index in self.group.partitions if (index + generation) % len(members) == number]
        parts = [ConsumerProtocolAssignmentTopicPartition(topic=self.clients.topic, partitions=mine)] if mine else []
        return _VERSION_0 + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0)

    async def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group.name, members=[MemberIdentity(member_id=self._member_id)])

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            return ErrorCode((await client.ask(request)).error_code), None

        await self.clients.attempt(self.group.place, ask)

    async def _commit_as(self, offsets: dict[int, int]) -> Answer:
        ask = self.clients.commit_offset(self.group.name, offsets, generation=self._generation, member=self._member_id)
        return await self.clients.attempt(self.group.place, ask)
