"""A coordinator of groups with a log, a clock and clients, driven by lines of text.

    join g c1 topics=a            the client c1 joins group g
    ----
    + GroupMetadata g generation=0 ...      a record
    > c1 MEMBER_ID_REQUIRED member=c1-#1    an answer

A client remembers what it received (its member id, its generation or epoch) and sends it with its next request, unless
the line says otherwise. Random ids are shown as #1, #2, in the order they were made; topic ids as the topic's name.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import streams_requests
from narrowing import expect
from penstock.coordinator.decision import Caller, Decision, Reply
from penstock.groups.embedded import read_assignment, read_subscription
from penstock.groups.records import value_version
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.shard import GroupShard
from penstock.groups.topics import DeletedTopic
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.protocol.codec import MalformedMessage, decode, encode
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    alter_share_group_offsets,
    consumer_group_heartbeat,
    delete_share_group_offsets,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_heartbeat,
    txn_offset_commit,
)
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

START_MS = 1_000


class Topics:
    """A view of topics that tests change as they like."""

    def __init__(self) -> None:
        self.version = 0
        self._counts: dict[str, int] = {}
        self._ids: dict[str, Uuid] = {}
        self._made = itertools.count(1)

    def create(self, name: str, partitions: int) -> None:
        self.version += 1
        self._counts[name] = partitions
        if name not in self._ids:
            self._ids[name] = b"topic" + next(self._made).to_bytes(11, "big")

    def delete(self, name: str) -> DeletedTopic:
        self.version += 1
        del self._counts[name]
        return DeletedTopic(name, self._ids.pop(name))

    def topic_id(self, name: str) -> Uuid | None:
        return self._ids.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def topic_names(self) -> Iterable[str]:
        return self._counts


def subscription(
    topics: Iterable[str], owned: dict[str, list[int]] | None = None, version: int = 1, generation: int = -1
) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        generation_id=generation,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in (owned or {}).items()
        ],
    )
    return version.to_bytes(2, "big") + encode(message, version)


def assignment(parts: dict[str, list[int]], notes: str | None = None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in parts.items()
        ],
        user_data=None if notes is None else notes.encode(),
    )
    return b"\x00\x01" + encode(message, 1)


def parts(text: str) -> dict[str, list[int]]:
    """`a:0,1/b:2` as {"a": [0, 1], "b": [2]}."""
    found: dict[str, list[int]] = {}
    for part in filter(None, text.split("/")):
        topic, _, indexes = part.partition(":")
        found[topic] = [int(index) for index in filter(None, indexes.split(","))]
    return found


@dataclass
class Client:
    name: str
    member_id: str = ""
    # A classic generation, or a member epoch.
    generation: int = -1
    instance_id: str | None = None
    waits: int = 0


@dataclass
class Logged:
    """A record as it went through its bytes, or the end of a transaction."""

    key: Message | None
    value: Message | None
    producer_id: int = -1
    committed: bool = False


@dataclass
class World:
    settings: GroupCoordinatorSettings = field(default_factory=GroupCoordinatorSettings)
    now_ms: int = START_MS
    topics: Topics = field(default_factory=Topics)
    clients: dict[str, Client] = field(default_factory=dict)
    log: list[Logged] = field(default_factory=list)
    # What groups have of their own: settings by the names that a scenario gives.
    group_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    # The topologies that members of streams groups sent last.
    topologies: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._tokens = itertools.count(1)
        # Tokens that wait, and the client each belongs to; and the version it asked in.
        self.waiting: dict[int, str] = {}
        self._versions: dict[int, int] = {}
        self.shard = self._new_shard()
        self.apply(self.shard.loaded(self.now_ms))

    def _new_shard(self) -> GroupShard:
        def settings_of(group_id: str) -> GroupCoordinatorSettings:
            return replace(self.settings, **self.group_settings.get(group_id, {}))

        return GroupShard(self.settings, settings_of, lambda: next(self._ids).to_bytes(16, "big"), self.topics)

    # -- the runtime ---------------------------------------------------------------------------------------------------

    def replayed(self) -> GroupShard:
        """Another coordinator that has read the log."""
        shard = self._new_shard()
        for entry in self.log:
            if entry.key is None:
                shard.replay_end_transaction(entry.producer_id, 0, entry.committed)
            else:
                shard.replay(entry.key, entry.value, producer_id=entry.producer_id, now_ms=self.now_ms)
        return shard

    def apply(self, decision: Decision, producer_id: int = -1) -> Decision:
        """Append, replay, answer."""
        for key, value in decision.records:
            assert decode(type(key), encode(key, 0), 0) == key
            copy = None
            if value is not None:
                version = value_version(value)
                copy = decode(type(value), encode(value, version), version)
            self.log.append(Logged(key, copy, producer_id))
            self.shard.replay(key, value, producer_id=producer_id, now_ms=self.now_ms)
        for reply in decision.replies:
            self._answered(reply)
        return decision

    def _answered(self, reply: Reply) -> None:
        assert isinstance(reply.token, int)
        client = self.clients[self.waiting.pop(reply.token)]
        client.waits -= 1
        response = expect(Message, _response_of(reply))
        version = self._versions.pop(reply.token)
        assert type(decode(type(response), encode(response, version), version)) is type(response)
        error = getattr(response, "error_code", 0)
        member_id = getattr(response, "member_id", None)
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) and member_id:
            client.member_id = member_id
        if error == ErrorCode.NONE and hasattr(response, "generation_id"):
            client.generation = response.generation_id
        if error == ErrorCode.NONE and hasattr(response, "member_epoch"):
            client.generation = response.member_epoch

    def ask(
        self, handler: str, request: Message, client: str = "admin", version: int = 0, producer_id: int = -1
    ) -> Decision:
        token = next(self._tokens)
        self.waiting[token] = client
        self._versions[token] = version
        self.client(client).waits += 1
        method: Callable[..., Decision] = getattr(self.shard, handler)
        caller = Caller(client_id=client, client_host="/127.0.0.1", api_version=version)
        self._names = dict(self.waiting)
        return self.apply(method(request, token, caller, self.now_ms), producer_id)

    def tick(self) -> list[Decision]:
        """Everything that is due now."""
        decisions = []
        while self.shard.deadline is not None and self.shard.deadline <= self.now_ms:
            self._names = dict(self.waiting)
            decision = self.apply(self.shard.tick(self.now_ms))
            if decision.records or decision.replies:
                decisions.append(decision)
        return decisions

    def advance(self, elapsed_ms: int) -> list[Decision]:
        """Time passes, and every deadline on the way is met when it is due."""
        end_ms = self.now_ms + elapsed_ms
        decisions = []
        while self.shard.deadline is not None and self.shard.deadline <= end_ms:
            self.now_ms = max(self.now_ms, self.shard.deadline)
            decisions += self.tick()
        self.now_ms = end_ms
        return decisions

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.log.append(Logged(None, None, producer_id, committed))
        self.shard.replay_end_transaction(producer_id, 0, committed)

    def fail_over(self) -> list[Decision]:
        self._names = dict(self.waiting)
        sent_away = self.apply(Decision([], self.shard.resigned()))
        self.shard = self.replayed()
        return [sent_away, self.apply(self.shard.loaded(self.now_ms))]

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # -- lines ---------------------------------------------------------------------------------------------------------

    def run(self, line: str) -> str:
        """What a command line led to, as text."""
        words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        result = getattr(self, "do_" + plain[0].replace("-", "_"))(*plain[1:], **options)
        decisions: list[Decision] = result if isinstance(result, list) else [] if result is None else [result]
        lines = [text for decision in decisions for text in self._show(decision)]
        assert self.replayed().state.durable() == self.shard.state.durable()
        return "\n".join(self._readable(text) for text in lines) or "nothing"

    def _show(self, decision: Decision) -> Iterable[str]:
        for key, value in decision.records:
            name = type(key).__name__.removesuffix("Key").removeprefix("ConsumerGroup") or "Metadata"
            if type(key).__name__ == "GroupMetadataKey":
                name = "ClassicGroup"
            what = " ".join(str(getattr(key, part)) for part in key.__schema__.names)
            yield f"+ {name} {what} " + ("deleted" if value is None else show(value))
        for reply in decision.replies:
            yield f"> {self._names[expect(int, reply.token)]} {show(_response_of(reply))}".rstrip()
            yield from _show_questions(reply.response)

    def _readable(self, text: str) -> str:
        text = re.sub(r"00000000-0000-0000-0000-([0-9a-f]{12})", lambda match: f"#{int(match[1], 16)}", text)
        for name in self.topics.topic_names():
            text = text.replace(repr(self.topics.topic_id(name)), name)
        return re.sub(r" +$", "", text, flags=re.MULTILINE)

    # -- commands ------------------------------------------------------------------------------------------------------

    def do_settings(self, **settings: str) -> None:
        """Others than Kafka's; another coordinator takes over."""

        values: dict[str, Any] = {}
        for name, text in settings.items():
            default = getattr(GroupCoordinatorSettings(), name)
            values[name] = tuple(text.split(",")) if isinstance(default, tuple) else type(default)(text)
        self.settings = replace(self.settings, **values)
        self.shard = self.replayed()
        self.apply(self.shard.loaded(self.now_ms))

    def do_group_settings(self, group: str, **settings: str) -> None:
        """All that the group has of its own."""
        self.group_settings[group] = {name: int(text) for name, text in settings.items()}

    def do_topic(self, name: str, partitions: str = "1") -> None:
        self.topics.create(name, int(partitions))

    def do_delete_topic(self, name: str) -> Decision:
        return self.apply(self.shard.topics_deleted([self.topics.delete(name)], self.now_ms))

    def do_lose_topic(self, name: str) -> None:
        """It is deleted without a notification."""
        self.topics.delete(name)

    def do_advance(self, elapsed_ms: str) -> list[Decision]:
        return self.advance(int(elapsed_ms))

    def do_failover(self) -> list[Decision]:
        return self.fail_over()

    def do_join(  # noqa: PLR0917
        self,
        group: str,
        client: str,
        topics: str = "a",
        v: str = "9",
        protocols: str = "range",
        session: str = "10000",
        rebalance: str = "30000",
        member: str | None = None,
        instance: str | None = None,
        type: str = "consumer",  # noqa: A002
        owned: str = "",
        subscribed: str = "1",
        generation: str = "-1",
    ) -> Decision:
        """`subscribed`: the version of the subscription; from 2 on it tells the generation."""
        known = self.client(client)
        known.instance_id = instance or known.instance_id
        metadata = subscription(filter(None, topics.split(",")), parts(owned), int(subscribed), int(generation))
        request = JoinGroupRequest(
            group_id=group,
            member_id=known.member_id if member is None else member,
            group_instance_id=known.instance_id,
            session_timeout_ms=int(session),
            rebalance_timeout_ms=int(rebalance),
            protocol_type=type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in filter(None, protocols.split(","))
            ],
        )
        return self.ask("join_group", request, client, int(v))

    def do_sync(
        self,
        group: str,
        client: str,
        v: str = "5",
        member: str | None = None,
        generation: str | None = None,
        protocol: str | None = None,
        notes: str | None = None,
        **assigned: str,
    ) -> Decision:
        known = self.client(client)
        request = SyncGroupRequest(
            group_id=group,
            member_id=known.member_id if member is None else member,
            generation_id=known.generation if generation is None else int(generation),
            group_instance_id=known.instance_id,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self.client(name).member_id, assignment=assignment(parts(text), notes)
                )
                for name, text in assigned.items()
            ],
        )
        return self.ask("sync_group", request, client, int(v))

    def do_heartbeat(
        self, group: str, client: str, member: str | None = None, generation: str | None = None
    ) -> Decision:
        known = self.client(client)
        request = HeartbeatRequest(
            group_id=group,
            member_id=known.member_id if member is None else member,
            generation_id=known.generation if generation is None else int(generation),
            group_instance_id=known.instance_id,
        )
        return self.ask("heartbeat", request, client, 4)

    def do_leave(self, group: str, *clients: str, v: str = "5", instance: str = "") -> Decision:
        members = [
            MemberIdentity(member_id=self.client(name).member_id, group_instance_id=self.client(name).instance_id)
            for name in clients
        ]
        members += [MemberIdentity(member_id="", group_instance_id=name) for name in filter(None, instance.split(","))]
        request = LeaveGroupRequest(group_id=group, members=members)
        if int(v) < 3:
            request = LeaveGroupRequest(group_id=group, member_id=members[0].member_id)
        return self.ask("leave_group", request, clients[0] if clients else "admin", int(v))

    def do_beat(  # noqa: PLR0917
        self,
        group: str,
        client: str,
        topics: str | None = None,
        regex: str | None = None,
        epoch: str | None = None,
        member: str | None = None,
        instance: str | None = None,
        owned: str | None = None,
        assignor: str | None = None,
        rebalance: str | None = None,
        v: str = "1",
    ) -> Decision:
        """ConsumerGroupHeartbeat. The first one of a client joins, with an id of its own choice."""
        known = self.client(client)
        known.instance_id = instance or known.instance_id
        joins = known.generation <= 0 if epoch is None else epoch == "0"
        if joins and not known.member_id:
            known.member_id = member or client
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=known.member_id if member is None else member,
            member_epoch=int(epoch) if epoch is not None else max(known.generation, 0),
            instance_id=known.instance_id,
            rebalance_timeout_ms=int(rebalance) if rebalance else 20_000 if joins else -1,
            subscribed_topic_names=None if topics is None else list(filter(None, topics.split(","))),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=[] if joins and owned is None else self._owned(owned),
        )
        return self.ask("consumer_group_heartbeat", request, client, int(v))

    # -- streams groups ------------------------------------------------------------------------------------------------

    def do_streams_beat(
        self, group: str, client: str, epoch: str | None = None, v: str = "1", **options: str
    ) -> Decision:
        """StreamsGroupHeartbeat. The first one of a client joins, with an id of its own choice."""
        known = self.client(client)
        member = known.member_id = options.pop("member", known.member_id or client)
        told = int(epoch) if epoch is not None else max(known.generation, 0)
        if told == 0 and "topology" not in options:
            options["topology"] = self.topologies[group]
        if told == 0:
            self.topologies[group] = options["topology"]
        request = streams_requests.heartbeat(group, member, told, options)
        return self.ask("streams_group_heartbeat", request, client, int(v))

    def do_describe_streams(self, *groups: str) -> Decision:
        return self.ask("streams_group_describe", StreamsGroupDescribeRequest(group_ids=list(groups)), version=1)

    # -- share groups --------------------------------------------------------------------------------------------------

    def do_share_beat(
        self,
        group: str,
        client: str,
        topics: str | None = None,
        epoch: str | None = None,
        member: str | None = None,
        rack: str | None = None,
    ) -> Decision:
        """ShareGroupHeartbeat. The first one of a client joins, with an id of its own choice."""
        known = self.client(client)
        known.member_id = known.member_id or client
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=known.member_id if member is None else member,
            member_epoch=int(epoch) if epoch is not None else max(known.generation, 0),
            rack_id=rack,
            subscribed_topic_names=None if topics is None else list(filter(None, topics.split(","))),
        )
        return self.ask("share_group_heartbeat", request, client, 1)

    def do_initialized(self, group: str, partitions: str) -> Decision:
        """The share coordinators have initialized these partitions."""
        return self.apply(self.shard.share_initialized(group, self._places(partitions), True))

    def do_not_initialized(self, group: str, partitions: str) -> Decision:
        return self.apply(self.shard.share_initialized(group, self._places(partitions), False))

    def _places(self, text: str) -> dict[Uuid, frozenset[int]]:
        found = {self.topics.topic_id(topic): frozenset(indexes) for topic, indexes in parts(text).items()}
        return {topic_id: indexes for topic_id, indexes in found.items() if topic_id is not None}

    def do_describe_share(self, *groups: str) -> Decision:
        return self.ask("share_group_describe", ShareGroupDescribeRequest(group_ids=list(groups)), version=1)

    def do_alter_share(self, group: str, *offsets: str) -> Decision:
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                alter_share_group_offsets.Topic(
                    topic_name=topic,
                    partitions=[alter_share_group_offsets.Partition(partition_index=index, start_offset=offset)],
                )
                for topic, index, offset in map(_offset, offsets)
            ],
        )
        return self._ask_share_offsets(lambda shard, token: shard.share_offsets.alter(request, token))

    def do_begin_delete_share_offsets(self, group: str, *topics: str) -> Decision:
        request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[delete_share_group_offsets.Topic(topic_name=topic) for topic in topics]
        )
        return self._ask_share_offsets(lambda shard, token: shard.share_offsets.begin_delete_offsets(request, token))

    def do_finish_delete_share_offsets(self, group: str, *topics: str) -> Decision:
        ids = [expect(bytes, self.topics.topic_id(topic)) for topic in topics]
        return self.apply(Decision(self.shard.share_offsets.finish_delete_offsets(group, ids), []))

    def do_begin_delete_share(self, group: str) -> Decision:
        return self._ask_share_offsets(lambda shard, token: shard.share_offsets.begin_delete_group(group, token))

    def _ask_share_offsets(self, operation: Callable[[GroupShard, int], Decision]) -> Decision:
        token = next(self._tokens)
        self.waiting[token] = "admin"
        self._versions[token] = 0
        self.client("admin").waits += 1
        self._names = dict(self.waiting)
        return self.apply(operation(self.shard, token))

    def _owned(self, owned: str | None) -> list[consumer_group_heartbeat.TopicPartitions] | None:
        if owned is None:
            return None
        return [
            consumer_group_heartbeat.TopicPartitions(
                topic_id=self.topics.topic_id(topic) or ZERO_UUID, partitions=indexes
            )
            for topic, indexes in parts(owned).items()
        ]

    def do_commit(
        self,
        group: str,
        client: str,
        *offsets: str,
        v: str = "9",
        member: str | None = None,
        generation: str | None = None,
        metadata: str | None = None,
        retention: str = "-1",
    ) -> Decision:
        known = self.client(client)
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            member_id=known.member_id if member is None else member,
            generation_id_or_member_epoch=known.generation if generation is None else int(generation),
            group_instance_id=known.instance_id,
            retention_time_ms=int(retention),
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topics.topic_id(topic) or ZERO_UUID,
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for topic, partition, offset in map(_offset, offsets)
            ],
        )
        return self.ask("offset_commit", request, client, int(v))

    def do_txn_commit(
        self,
        group: str,
        client: str,
        *offsets: str,
        producer: str = "1",
        v: str = "5",
        member: str | None = None,
        generation: str | None = None,
    ) -> Decision:
        known = self.client(client)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=int(producer),
            member_id=known.member_id if member is None else member,
            generation_id_or_member_epoch=known.generation if generation is None else int(generation),
            group_instance_id=known.instance_id,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topics.topic_id(topic) or ZERO_UUID,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=None
                        )
                    ],
                )
                for topic, partition, offset in map(_offset, offsets)
            ],
        )
        return self.ask("txn_offset_commit", request, client, int(v), int(producer))

    def do_end_txn(self, producer: str, outcome: str) -> None:
        self.end_transaction(int(producer), outcome == "commit")

    def do_fetch(
        self,
        group: str,
        *topics: str,
        v: str = "9",
        stable: str = "no",
        member: str | None = None,
        epoch: str = "-1",
    ) -> Decision:
        wanted = [part for text in topics for part in parts(text).items()]
        if int(v) < 8:
            request = offset_fetch.OffsetFetchRequest(
                group_id=group,
                topics=[
                    offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                    for name, indexes in wanted
                ]
                or None,
                require_stable=stable == "yes",
            )
        else:
            group_request = offset_fetch.OffsetFetchRequestGroup(
                group_id=group,
                member_id=member,
                member_epoch=int(epoch),
                topics=[
                    offset_fetch.OffsetFetchRequestTopics(
                        name=name, topic_id=self.topics.topic_id(name) or ZERO_UUID, partition_indexes=indexes
                    )
                    for name, indexes in wanted
                ]
                or None,
            )
            request = offset_fetch.OffsetFetchRequest(groups=[group_request], require_stable=stable == "yes")
        return self.ask("offset_fetch", request, "admin", int(v))

    def do_delete_offsets(self, group: str, *topics: str) -> Decision:
        request = offset_delete.OffsetDeleteRequest(
            group_id=group,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                )
                for text in topics
                for name, indexes in parts(text).items()
            ],
        )
        return self.ask("offset_delete", request)

    def do_list(self, states: str = "", types: str = "") -> Decision:
        request = list_groups.ListGroupsRequest(
            states_filter=list(filter(None, states.split(","))), types_filter=list(filter(None, types.split(",")))
        )
        return self.ask("list_groups", request, version=5)

    def do_describe(self, *groups: str, v: str = "6") -> Decision:
        return self.ask("describe_groups", DescribeGroupsRequest(groups=list(groups)), version=int(v))

    def do_describe_consumer(self, *groups: str) -> Decision:
        return self.ask("consumer_group_describe", ConsumerGroupDescribeRequest(group_ids=list(groups)), version=1)

    def do_delete(self, *groups: str) -> Decision:
        return self.ask("delete_groups", DeleteGroupsRequest(groups_names=list(groups)), version=3)


def _response_of(reply: Reply) -> object:
    """The response, without what the runtime does beside."""
    return getattr(reply.response, "response", reply.response)


def _show_questions(reply: object) -> Iterable[str]:
    """What the share coordinators are asked, and the topics that the controller is."""
    asked = getattr(reply, "initialization", None)
    if asked is not None:
        for topic_id, offsets in asked.start_offsets.items():
            where = ", ".join(f"{index}@{offset}" for index, offset in offsets.items())
            yield f"? initialize {topic_id!r} {where} epoch={asked.state_epoch}"
    for topic in getattr(reply, "missing", ()):
        yield f"? create {topic.name} partitions={topic.num_partitions} replicas={topic.replication_factor}"
    for topic_id, indexes in getattr(reply, "partitions", {}).items():
        yield f"? delete {topic_id!r} {sorted(indexes)}"


def _offset(text: str) -> tuple[str, int, int]:
    """`a:0@12` as ("a", 0, 12)."""
    where, _, offset = text.partition("@")
    topic, _, partition = where.partition(":")
    return topic, int(partition), int(offset)


def show(value: Any, name: str = "") -> str:
    """A message without what is at its default; errors by name; bytes as what they say."""
    if isinstance(value, Message):
        shown: list[str] = []
        for field_ in value.__schema__.fields:
            content = getattr(value, field_.name)
            if field_.name == "error_code":
                if content:
                    shown.insert(0, ErrorCode(content).name)
            elif isinstance(content, Message) or content not in (field_.default, [], None):
                shown.append(f"{field_.name}={show(content, field_.name)}")
        text = " ".join(shown)
        return f"({text})" if name else text
    if isinstance(value, list):
        return "[" + ", ".join(show(entry, "entry") for entry in value) + "]"
    if isinstance(value, bytes):
        return _bytes(value, name)
    return str(value)


def _bytes(value: bytes, name: str) -> str:
    try:
        if name in ("subscription", "metadata", "member_metadata"):
            read = read_subscription(value)
            owned = "".join(f"+{part.topic}:{part.partitions}" for part in read.owned_partitions)
            return ",".join(read.topics) + owned
        if name in ("assignment", "member_assignment"):
            return "/".join(f"{part.topic}:{part.partitions}" for part in read_assignment(value).assigned_partitions)
    except MalformedMessage:
        pass
    return repr(value)
