"""Members of many groups, each with a connection of its own: join, heartbeats at the clients' pace, leave.

They do what consumers do and nothing else, so that what is measured is the coordinator: `classic` members join, sync
(the leader deals out the partitions) and send a Heartbeat every three seconds; those of the `consumer` protocol send
their ConsumerGroupHeartbeat every five, at once when they get another assignment. Settings as JSON in, results
as JSON out; the server's CPU and memory are read from /proc in between.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import uvloop

from bench.processes import cpu_seconds, resident_bytes
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import decode, encode
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

CLASSIC_INTERVAL_S = 3.0
CONSUMER_INTERVAL_S = 5.0
SESSION_TIMEOUT_MS = 45_000
JOIN_TIMEOUT_S = 180.0
CONNECTING_AT_ONCE = 200
_COMMIT_VERSION = 9

Answered = Callable[[Any], None]


@dataclass(frozen=True, kw_only=True)
class MembersSettings:
    host: str
    port: int
    pid: int
    protocol: str
    groups: int
    members_a_group: int
    topic: str
    partitions: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class MembersResult:
    members: int
    join_s: float
    join_cpu_s: float
    heartbeats_a_second: float
    cpu_percent: float
    cpu_us_a_heartbeat: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    connection_bytes: float
    member_bytes: float
    idle_cpu_percent: float
    client_cpu_percent: float


class Wire(asyncio.Protocol):
    """A connection with one request on its way at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answered: Answered | None = None
        self._answer_type: type[Message]
        self._version = 0
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(
        self, request: Message, answer_type: type[Message], answered: Answered, version: int | None = None
    ) -> None:
        key = request.__schema__.key
        assert key is not None and self._answered is None
        self._version = API[ApiKey(key)].max_version if version is None else version
        self._answer_type = answer_type
        self._answered = answered
        self.sent_at = time.perf_counter()
        self._transport.write(encode_request(request, self._version, 1, "bench"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        key = self._answer_type.__schema__.key
        assert key is not None
        start = 9 if response_header_version(key, self._version) else 8
        answer = decode(self._answer_type, bytes(self._received), self._version, start)
        self._received.clear()
        answered, self._answered = self._answered, None
        assert answered is not None
        answered(answer)

    def close(self) -> None:
        self._transport.close()


class Member:
    """One of a group, in either protocol."""

    interval_s = CLASSIC_INTERVAL_S

    def __init__(self, fleet: Fleet, group: str, wire: Wire) -> None:
        self.fleet = fleet
        self.group = group
        self.wire = wire
        self.member_id = ""
        self.epoch = 0
        self.owned: list[int] = []
        self.is_joined = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        raise NotImplementedError

    def heartbeat(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def in_time(self, delay: float | None = None) -> None:
        if not self.fleet.is_leaving:
            self._timer = self.fleet.loop.call_later(self.interval_s if delay is None else delay, self.heartbeat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def noted(self) -> None:
        self.fleet.latencies.append(time.perf_counter() - self.wire.sent_at)


class ClassicMember(Member):
    def begin(self) -> None:
        subscription = ConsumerProtocolSubscription(topics=[self.fleet.settings.topic])
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00" + encode(subscription, 0))],
        )
        self.wire.send(request, JoinGroupResponse, self._joined)

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.begin()
            return
        self.fleet.expect(answer.error_code)
        self.epoch = answer.generation_id
        self.wire.send(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.epoch,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=bytes(30))
                    for member in answer.members
                ],
            ),
            SyncGroupResponse,
            self._synced,
        )

    def _synced(self, answer: SyncGroupResponse) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.begin()
            return
        self.fleet.expect(answer.error_code)
        self.is_joined = True
        self.in_time(random.uniform(0, self.interval_s))

    def heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        self.wire.send(request, HeartbeatResponse, self._answered)

    def _answered(self, answer: HeartbeatResponse) -> None:
        self.noted()
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_joined = False
            self.begin()
            return
        self.fleet.expect(answer.error_code)
        self.in_time()

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        self.wire.send(request, LeaveGroupResponse, self.fleet.left)


class ConsumerMember(Member):
    interval_s = CONSUMER_INTERVAL_S

    def begin(self) -> None:
        self.member_id = str(uuid.uuid4())
        self._send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=[self.fleet.settings.topic],
                topic_partitions=[],
            )
        )

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        self.wire.send(request, ConsumerGroupHeartbeatResponse, self._answered)

    def _answered(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.noted()
        self.fleet.expect(answer.error_code)
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            # Those that joined at once do not go on in step.
            self.in_time(None if self.is_joined else random.uniform(0, self.interval_s))
            self.is_joined = True
            return
        parts = answer.assignment.topic_partitions
        self.owned = [index for part in parts for index in part.partitions]
        # What it has now it says at once.
        self._send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                topic_partitions=[
                    TopicPartitions(topic_id=part.topic_id, partitions=part.partitions) for part in parts
                ],
            )
        )

    def heartbeat(self) -> None:
        self._send(
            ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        )

    def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        self.wire.send(request, ConsumerGroupHeartbeatResponse, self.fleet.left)


class Fleet:
    def __init__(self, settings: MembersSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.loop = loop
        self.latencies: list[float] = []
        self.is_leaving = False
        self._left = 0
        self._failure: asyncio.Future[None] = loop.create_future()

    def expect(self, code: int) -> None:
        if code and not self._failure.done():
            self._failure.set_exception(RuntimeError(f"a member was refused: {ErrorCode(code).name}"))

    def left(self, _: object) -> None:
        self._left += 1

    async def run(self) -> MembersResult:
        settings, pid = self.settings, self.settings.pid
        count = settings.groups * settings.members_a_group
        await self._find_coordinator()
        before = resident_bytes(pid)
        wires = await self._connect(count)
        connected = resident_bytes(pid)
        kind = {"classic": ClassicMember, "consumer": ConsumerMember}[settings.protocol]
        groups = [
            [kind(self, f"{settings.protocol}-{number}", wires.pop()) for _ in range(settings.members_a_group)]
            for number in range(settings.groups)
        ]
        members = [member for group in groups for member in group]
        began, cpu = time.perf_counter(), cpu_seconds(pid)
        for member in members:
            member.begin()
        is_whole = self._is_dealt_out if settings.protocol == "consumer" else self._is_joined
        await self._wait(lambda: all(map(is_whole, groups)))
        join_s, join_cpu_s = time.perf_counter() - began, cpu_seconds(pid) - cpu
        joined = resident_bytes(pid)
        await asyncio.sleep(CONSUMER_INTERVAL_S)  # what follows from joining is over
        self.latencies.clear()
        began, cpu, own = time.perf_counter(), cpu_seconds(pid), time.process_time()
        await asyncio.sleep(settings.seconds)
        seconds = time.perf_counter() - began
        cpu, own = cpu_seconds(pid) - cpu, time.process_time() - own
        latencies = sorted(self.latencies)
        if self._failure.done():
            self._failure.result()
        await self._leave(groups)
        idle_began, idle_cpu = time.perf_counter(), cpu_seconds(pid)
        await asyncio.sleep(settings.seconds)
        idle = (cpu_seconds(pid) - idle_cpu) / (time.perf_counter() - idle_began)
        return MembersResult(
            members=count,
            join_s=join_s,
            join_cpu_s=join_cpu_s,
            heartbeats_a_second=len(latencies) / seconds,
            cpu_percent=cpu / seconds * 100,
            cpu_us_a_heartbeat=cpu / len(latencies) * 1e6,
            p50_ms=latencies[len(latencies) // 2] * 1e3,
            p99_ms=latencies[len(latencies) * 99 // 100] * 1e3,
            max_ms=latencies[-1] * 1e3,
            connection_bytes=(connected - before) / count,
            member_bytes=(joined - connected) / count,
            idle_cpu_percent=idle * 100,
            client_cpu_percent=own / seconds * 100,
        )

    async def _find_coordinator(self) -> None:
        """The internal topic is made by the first who asks."""
        (wire,) = await self._connect(1)
        names = [f"{self.settings.protocol}-{number}" for number in range(self.settings.groups)]
        answers: list[FindCoordinatorResponse] = []
        while not answers or any(each.error_code for each in answers[-1].coordinators):
            count = len(answers)
            wire.send(FindCoordinatorRequest(coordinator_keys=names), FindCoordinatorResponse, answers.append)
            await self._wait(lambda count=count: len(answers) > count)  # type: ignore[misc]
        await asyncio.sleep(1.0)  # each of its partitions is loaded
        wire.close()

    async def _connect(self, count: int) -> list[Wire]:
        wires: list[Wire] = []
        while len(wires) < count:
            some = min(CONNECTING_AT_ONCE, count - len(wires))
            connected = await asyncio.gather(
                *(self.loop.create_connection(Wire, self.settings.host, self.settings.port) for _ in range(some))
            )
            wires += [wire for _, wire in connected]
        return wires

    @staticmethod
    def _is_joined(group: Sequence[Member]) -> bool:
        return all(member.is_joined and member.epoch == group[0].epoch for member in group)

    def _is_dealt_out(self, group: Sequence[Member]) -> bool:
        """Every member is where the others are, and together they have all partitions."""
        owned = sorted(index for member in group for index in member.owned)
        return owned == list(range(self.settings.partitions)) and all(
            member.epoch == group[0].epoch for member in group
        )

    async def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = self.loop.time() + JOIN_TIMEOUT_S
        while not condition():
            if self._failure.done():
                self._failure.result()
            if self.loop.time() > deadline:
                raise TimeoutError(f"not within {JOIN_TIMEOUT_S:g} s")
            await asyncio.sleep(0.05)

    async def _leave(self, groups: Sequence[Sequence[Member]]) -> None:
        """Offsets stay, or the groups would go with their members."""
        self.is_leaving = True
        await asyncio.sleep(1.0)  # every answer has come
        for group in groups:
            for member in group:
                member.stop()
        committed: list[OffsetCommitResponse] = []
        for group in groups:
            member = group[0]
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                for index in range(self.settings.partitions)
            ]
            request = OffsetCommitRequest(
                group_id=member.group,
                generation_id_or_member_epoch=member.epoch,
                member_id=member.member_id,
                topics=[OffsetCommitRequestTopic(name=self.settings.topic, partitions=partitions)],
            )
            member.wire.send(request, OffsetCommitResponse, committed.append, _COMMIT_VERSION)
        await self._wait(lambda: len(committed) == len(groups))
        members = [member for group in groups for member in group]
        for member in members:
            member.leave()
        await self._wait(lambda: self._left == len(members))
        for member in members:
            member.wire.close()
        await asyncio.sleep(1.0)


def main(arguments: dict[str, Any]) -> None:
    async def run() -> MembersResult:
        return await Fleet(MembersSettings(**arguments), asyncio.get_running_loop()).run()

    print(json.dumps(asdict(uvloop.run(run()))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
