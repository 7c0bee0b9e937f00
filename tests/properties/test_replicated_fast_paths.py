"""The hand-written ways answer as the general ones do on partitions with followers, byte for byte, and all replicas
store the same bytes.

Two clusters of three brokers get the same requests: one as it is, one with its short cuts closed on all brokers. The
streams are those of `test_broker_fast_paths`, and transactions. Followers crash while producers wait for them: some get
a time-out, some an error after the append. In every third stream clients have quotas, in another third ACLs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import wire as w
from penstock.broker.apis.fetch_follower_plain import PlainFollowerFetch
from penstock.broker.apis.produce_acks import Acknowledgement
from penstock.broker.apis.produce_plain import PlainProduce
from penstock.broker.apis.produce_run import ProduceRun
from penstock.broker.net.connection import Connection as Accepted
from penstock.broker.partitions import replication_frames
from penstock.broker.partitions.follower_fetch import FollowerFetch
from penstock.log.log import Log
from penstock.model.errors import ErrorCode
from penstock.protocol.codec import join
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.records.batch import iterate_headers
from penstock.security.acls import PatternType, Permission
from penstock.security.authorizer import Operation, ResourceKind
from penstock.security.principal import Principal
from penstock.simulator.client import Client
from penstock.simulator.stories.cluster_world import DATA, PORT, ClusterWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from properties.test_broker_fast_paths import Stream, frames, set_quota

LEADER, *FOLLOWERS = "broker-1", "broker-2", "broker-3"
TRANSACTIONAL_ID = "mover"
# Times on the network are chance: both ways may have another time, so no answer may depend on it.
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
# Those of the stream that exist here; the others are unknown to the cluster.
TOPICS: dict[str, dict[str, str]] = {
    "plain": ANY_TIME,
    "other": {**ANY_TIME, "min.insync.replicas": "3", "segment.bytes": "1048576"},
    "flushed": {**ANY_TIME, "flush.messages": "1"},
}
# Longer than a play: whether a transaction is aborted before the next burst would be chance.
TRANSACTION_TIMEOUT_MS = 24 * 60 * 60 * 1000
# A crashed follower stays in sync for longer than some producers wait.
PROPERTIES = {
    "replica.lag.time.max.ms": "4000",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
}
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Answers(NamedTuple):
    """What one connection was answered, in the order of its requests."""

    is_ended: bool
    """Whether the broker closed it."""
    all: list[bytes | None]
    """None: the broker closed the connection while the request waited for its answer."""


class Served:
    """What the broker sends on each connection, and what it has not sent when it closes one.

    The network cuts bursts by chance. What precedes the request that ends a connection has been answered before, is
    discarded with the connection, or waits for followers: that is chance, but not which requests there are, and not
    what their answers say. What was sent is taken from the broker: a reset may overtake it on the way to the client.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._sent: dict[Accepted, bytearray] = {}
        self._unsent: dict[Accepted, list[bytes | None]] = {}
        flush, close, abort = Accepted.flush, Accepted.close, Accepted.abort

        def noted_flush(connection: Accepted) -> None:
            if connection not in self._unsent:
                self._sent.setdefault(connection, bytearray()).extend(join(connection._out))
            flush(connection)

        def noted_close(connection: Accepted) -> None:
            connection.flush()
            self._ends(connection)
            close(connection)

        def noted_abort(connection: Accepted) -> None:
            self._ends(connection)
            abort(connection)

        patch.setattr(Accepted, "flush", noted_flush)
        patch.setattr(Accepted, "close", noted_close)
        patch.setattr(Accepted, "abort", noted_abort)

    def _ends(self, connection: Accepted) -> None:
        unsent: list[bytes | None] = [*frames(join(connection._out))]
        for reply in connection._parked:
            unsent += [None] * reply.requests if reply.parts is None else frames(join(reply.parts))
        self._unsent.setdefault(connection, unsent)

    def answers(self, connection: Accepted) -> list[bytes | None]:
        """Of a connection that the broker has closed."""
        return [*frames(bytes(self._sent.get(connection, b""))), *self._unsent[connection]]


class Connection:
    """A client that sends bytes as they are, and keeps what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accepted: Accepted) -> None:
        self.writer = writer
        self.accepted = accepted
        self.received = bytearray()
        self._reader = reader
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 16):
                self.received += data
        except OSError:
            pass

    @property
    def is_ended(self) -> bool:
        return self._reading.done()

    def answers(self, served: Served) -> Answers:
        received = frames(bytes(self.received)) if not self.is_ended else served.answers(self.accepted)
        return Answers(self.is_ended, [*received])

    async def close(self) -> None:
        self.writer.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])


class Play:
    def __init__(self, loop: SimulatedLoop, seed: int, served: Served) -> None:
        self.chance = random.Random(f"{seed}/requests")
        self.served = served
        self.has_quotas, self.has_acls = seed % 3 == 0, seed % 3 == 1
        properties = {**PROPERTIES, **(ACLS if self.has_acls else {})}
        self.world = ClusterWorld(loop, seed, controllers=1, brokers=3, properties=properties)
        self.answers: list[Answers] = []
        self.ids: dict[str, bytes] = {}
        self.sequences: dict[int, int] = {}
        self.producer = (-1, -1)

    async def run(self, bursts: int) -> dict[str, bytes]:
        world, chance = self.world, self.chance
        await world.start_all()
        async with world.client(LEADER) as admin:
            await self.create_topics(admin)
            await self.begin_transactions(admin)
            began_ms = world.machines[LEADER].clock.now_ms() // 100_000 * 100_000
            stream = Stream(chance, self.ids, lambda: began_ms)
            connection = await self.connect()
            for _ in range(bursts):
                if connection.is_ended or chance.random() < 0.1:
                    self.answers.append(connection.answers(self.served))
                    await connection.close()
                    connection = await self.connect()
                crashed = world.machines[chance.choice(FOLLOWERS)] if chance.random() < 0.3 else None
                if crashed is not None:
                    crashed.crash()
                connection.writer.write(self.burst(stream))
                await asyncio.sleep(chance.choice((0.5, 2.0)))
                if crashed is not None:
                    await asyncio.sleep(12)
                    crashed.start()
                    await self.all_in_sync()
                if chance.random() < 0.2:
                    await self.change_something(admin)
            await asyncio.sleep(30)
            self.answers.append(connection.answers(self.served))
            await connection.close()
            await self.all_in_sync()
        for machine in world.machines.values():
            await machine.stop()
        assert not world.failures
        return {key: content for broker in world.brokers for key, content in self.stored(broker.name).items()}

    def burst(self, stream: Stream) -> bytes:
        chance = self.chance
        if chance.random() < 0.3:
            return b"".join(self.transactional(stream) for _ in range(chance.choice((1, 2, 5))))
        make = stream.plain_produce() if chance.random() < 0.6 else stream.odd_produce
        return b"".join(make() for _ in range(chance.choice((1, 2, 5, 30))))

    def transactional(self, stream: Stream) -> bytes:
        """The next batch of the transaction in a partition; the leader adds the partition if it is the first."""
        partition = self.chance.choice((0, 1))
        producer_id, epoch = self.producer
        sequence = self.sequences.get(partition, 0)
        data = w.batch(
            "moved",
            timestamp=stream.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.sequences[partition] = sequence + 1
        request = w.produce_request("plain", data, partition=partition, acks=self.chance.choice((1, -1)))
        request.transactional_id = TRANSACTIONAL_ID
        return stream.frame(request, 12, "client")

    async def create_topics(self, admin: Client) -> None:
        for name, configs in TOPICS.items():
            topic = CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=at, broker_ids=[1, 2, 3]) for at in (0, 1)],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            (result,) = (await admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
            assert result.error_code == ErrorCode.NONE, result
            self.ids[name] = result.topic_id
        await self.all_in_sync()

    async def all_in_sync(self) -> None:
        replicas = self.world.machines[LEADER].replicas

        def are_in_sync() -> bool:
            found = [replicas.get(name, index) for name in TOPICS for index in (0, 1)]
            return all(
                each is not None and each.leader is not None and len(each.leader.isr) == 3
                and each.leader.high_watermark == each.leader.log_end
                for each in found
            )  # fmt: skip

        await self.world.until(are_in_sync, "all replicas are in sync")

    async def begin_transactions(self, admin: Client) -> None:
        while True:
            answer = await admin.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID]))
            (found,) = answer.coordinators
            if found.error_code == ErrorCode.NONE:
                self.coordinator = f"broker-{found.node_id}"
                break
            await asyncio.sleep(0.5)
        await self.initialize()

    async def initialize(self) -> None:
        async with self.world.client(self.coordinator) as client:
            request = InitProducerIdRequest(
                transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
            while (answer := await client.ask(request)).error_code != ErrorCode.NONE:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        self.producer = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def change_something(self, admin: Client) -> None:
        chance = self.chance
        if self.has_quotas and chance.random() < 0.5:
            await set_quota(admin, chance)
        elif self.has_acls and chance.random() < 0.5:
            await self.change_acls(admin)
        elif self.world.machines[self.coordinator].is_ready:
            async with self.world.client(self.coordinator) as client:
                request = EndTxnRequest(
                    transactional_id=TRANSACTIONAL_ID,
                    producer_id=self.producer[0],
                    producer_epoch=self.producer[1],
                    committed=chance.random() < 0.5,
                )
                await client.ask(request)
            await asyncio.sleep(1)
            await self.initialize()

    async def change_acls(self, admin: Client) -> None:
        names = (*TOPICS, TRANSACTIONAL_ID)
        for name in self.chance.sample(names, 2):
            kind = ResourceKind.TRANSACTIONAL_ID if name == TRANSACTIONAL_ID else ResourceKind.TOPIC
            if self.chance.random() < 0.7:
                creation = AclCreation(
                    resource_type=kind,
                    resource_name=name,
                    resource_pattern_type=PatternType.LITERAL,
                    principal="User:alice",
                    host="*",
                    operation=Operation.WRITE,
                    permission_type=Permission.ALLOW,
                )
                await admin.ask(CreateAclsRequest(creations=[creation]))
            else:
                every = DeleteAclsFilter(
                    resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=PatternType.LITERAL,
                    operation=1, permission_type=1,
                )  # fmt: skip
                await admin.ask(DeleteAclsRequest(filters=[every]))
        await asyncio.sleep(1)

    async def connect(self) -> Connection:
        node = self.world.machines[LEADER].node
        assert node is not None
        (listener,) = node.listeners.of_brokers
        reader, writer = await asyncio.open_connection(LEADER, PORT)
        await asyncio.sleep(0.5)
        address = writer.get_extra_info("sockname")
        (accepted,) = (each for each in listener.connections if (each.peer_host, each.peer_port) == address)
        if self.has_acls:
            accepted.authenticated(Principal("User", "alice"))
        return Connection(reader, writer, accepted)

    def stored(self, name: str) -> dict[str, bytes]:
        disk = self.world.machines[name].disk
        found = {}
        for directory in disk.list(DATA):
            if directory.rpartition("-")[0] in TOPICS:
                content = b""
                for segment in sorted(disk.list(f"{DATA}/{directory}")):
                    if segment.endswith(".log"):
                        path = f"{DATA}/{directory}/{segment}"
                        file = disk.open(path, read_only=True)
                        content += without_times(file.pread(disk.size(path), 0))
                        file.close()
                found[f"{name} {directory}"] = content
        return found


def without_times(data: bytes) -> bytes:
    """A log without the times of its transaction markers, and their CRCs: they are chance, as all times are here."""
    content = bytearray(data)
    for position, header in iterate_headers(data):
        if header.is_control:
            content[position + 17 : position + 21] = bytes(4)
            content[position + 27 : position + 43] = bytes(16)
    return bytes(content)


def close_short_cuts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlainProduce, "handle", lambda *_: False)
    patch.setattr(ProduceRun, "handle", lambda self, connection, view, position, received: position)
    patch.setattr(PlainFollowerFetch, "handle", lambda *_: False)
    patch.setattr(FollowerFetch, "_read_plainly", lambda *_: None)
    patch.setattr(replication_frames, "_read_plain", lambda *_: None)
    patch.setattr(Log, "_append_preassigned_run", lambda *_: False)


def play(seed: int, bursts: int) -> tuple[list[Answers], dict[str, bytes]]:
    story: list[Play] = []
    with pytest.MonkeyPatch.context() as patch:
        served = Served(patch)

        async def run(loop: SimulatedLoop) -> dict[str, bytes]:
            story.append(Play(loop, seed, served))
            return await story[0].run(bursts)

        logs = simulate(run, seed)
    return story[0].answers, logs


def compare(seed: int, bursts: int) -> None:
    quietly()
    fast, fast_logs = play(seed, bursts)
    with pytest.MonkeyPatch.context() as patch:
        close_short_cuts(patch)
        general, general_logs = play(seed, bursts)
    assert len(fast) == len(general)
    for number, (one, other) in enumerate(zip(fast, general, strict=True)):
        where = f"connection {number} of seed {seed}"
        assert (one.is_ended, len(one.all)) == (other.is_ended, len(other.all)), where
        for answer, expected in zip(one.all, other.all, strict=True):
            assert answer == expected or answer is None or expected is None, where
    assert fast_logs == general_logs
    for name in TOPICS:
        for index in (0, 1):
            copies = {fast_logs[f"{broker} {name}-{index}"] for broker in (LEADER, *FOLLOWERS)}
            assert len(copies) == 1, f"replicas of {name}-{index} differ, seed {seed}"
    compared = [pair for one, other in zip(fast, general, strict=True) for pair in zip(one.all, other.all, strict=True)]
    assert sum(None not in pair for pair in compared) > 0.9 * len(compared)


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_answer_alike(seed: int) -> None:
    compare(seed, bursts=20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_both_ways_answer_alike_for_long(seed: int) -> None:
    compare(seed, bursts=120)


def test_the_short_cuts_are_taken() -> None:
    """Else there would be nothing to compare."""
    taken: dict[str, int] = {}

    def counting(kind: str, owner: Any, name: str, is_taken: Callable[[Any], bool]) -> None:
        original = getattr(owner, name)
        taken[kind] = 0

        def counted(*arguments: Any) -> Any:
            result = original(*arguments)
            taken[kind] += is_taken(result)
            return result

        patch.setattr(owner, name, counted)

    quietly()
    with pytest.MonkeyPatch.context() as patch:
        counting("plain", PlainProduce, "handle", bool)
        counting("acknowledged later", Acknowledgement, "settled", lambda _: True)
        counting("refused later", Acknowledgement, "_refusal", lambda _: True)
        counting("follower", PlainFollowerFetch, "handle", bool)
        counting("read", FollowerFetch, "_read_plainly", lambda found: found is not None and bool(found.records))
        counting("answer", replication_frames, "_read_plain", lambda found: found is not None)
        counting("append", Log, "_append_preassigned_run", bool)
        play(2, 40)
    assert all(count > 0 for count in taken.values()), taken
