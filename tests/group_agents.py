"""Clients of both group protocols that behave as real ones do, and a story that lets them live and die.

An agent knows what responses said, no more. It sends heartbeats, joins again when asked to, gives up partitions before
it says so, commits what it reads. The story makes answers get lost, repeats requests long after they were sent, stops
and restarts agents, hands the partition to another coordinator, lets topics grow. `check` states what must be true at
any moment; `settle` ends all troubles and waits for what must be true then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from group_world import World, assignment, subscription
from narrowing import expect
from penstock.coordinator.decision import Reply
from penstock.groups.classic_group import ClassicState
from penstock.groups.consumer_group import ConsumerGroup, ConsumerState
from penstock.groups.embedded import read_assignment, read_subscription
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

Partition = tuple[str, int]

SETTINGS = GroupCoordinatorSettings(
    initial_rebalance_delay_ms=500, consumer_session_timeout_ms=10_000, assignment_interval_ms=300
)
SESSION_MS = 10_000
REBALANCE_MS = 8_000


class Agent:
    """What both kinds have in common."""

    def __init__(self, story: Story, name: str, group: str, topics: list[str], instance: str | None) -> None:
        self.story = story
        self.name = name
        self.group = group
        self.topics = topics
        self.instance = instance
        self.is_alive = True
        self.owned: set[Partition] = set()
        self.member_id = ""
        self.waits = False

    def step(self) -> None:
        raise NotImplementedError

    def hear(self, response: Message) -> None:
        raise NotImplementedError

    def generation_now(self) -> int:
        raise NotImplementedError

    def ask(self, handler: str, request: Message, version: int) -> None:
        self.waits = True
        self.story.sent.append((handler, request, self.name, version, self.generation_now()))
        self.story.ask(handler, request, self.name, version)


class ClassicAgent(Agent):
    def __init__(self, *args: Any, cooperative: bool) -> None:
        super().__init__(*args)
        self.cooperative = cooperative
        self.generation = -1
        self.phase = "join"
        # What it will say next, of what it has joined.
        self.next_sync: SyncGroupRequest | None = None
        # A leader knows the topics it has assigned.
        self.assigned_version: int | None = None

    def generation_now(self) -> int:
        return self.generation

    def step(self) -> None:
        if self.next_sync is not None:
            return
        if self.waits:
            # A real client gives up at some time, and asks again.
            if self.story.random.random() >= self.story.impatience:
                return
            self.phase = "join"
        if self.assigned_version not in (None, self.story.topics.version):
            self.phase = "join"
        if self.phase == "join":
            self.assigned_version = self.next_sync = None
            if not self.cooperative:
                self.owned = set()
            owned: dict[str, list[int]] = {}
            for topic, partition in sorted(self.owned):
                owned.setdefault(topic, []).append(partition)
            # As librdkafka: only who keeps something over a rebalance tells of which generation that is.
            metadata = subscription(self.topics, owned, 3, self.generation if self.cooperative else -1)
            join = JoinGroupRequest(
                group_id=self.group,
                member_id=self.member_id,
                group_instance_id=self.instance,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name in sorted(("cooperative-sticky", "range"), reverse=not self.cooperative)
                ],
            )
            self.ask("join_group", join, 9)
        else:
            heartbeat = HeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                generation_id=self.generation,
                group_instance_id=self.instance,
            )
            self.ask("heartbeat", heartbeat, 4)

    def hear(self, response: Message) -> None:
        if isinstance(response, JoinGroupResponse):
            self._joined(response)
        elif isinstance(response, SyncGroupResponse):
            self._synced(response)
        elif isinstance(response, HeartbeatResponse) and response.error_code:
            self._failed(response.error_code)

    def _failed(self, error: int) -> None:
        self.phase = "join"
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.owned = set()
            self.generation = -1
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error == ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive = False

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            self._failed(response.error_code)
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        assignments = []
        if response.leader == response.member_id and not response.skip_assignment:
            assignments = self._assign(response)
            self.assigned_version = self.story.topics.version
        elif response.skip_assignment:
            # It cannot know whether its former self had assigned everything: it will ask for a rebalance.
            self.assigned_version = -1
        request = SyncGroupRequest(
            group_id=self.group,
            member_id=self.member_id,
            generation_id=self.generation,
            group_instance_id=self.instance,
            assignments=assignments,
        )
        self.next_sync = request

    def _assign(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Each partition to the first of its readers, turn by turn; what another still owns, to no member."""
        readers = {entry.member_id: read_subscription(entry.metadata) for entry in response.members}
        owners = {
            (part.topic, partition): member_id
            for member_id, read in readers.items()
            for part in read.owned_partitions
            for partition in part.partitions
        }
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in readers}
        for topic in sorted({topic for read in readers.values() for topic in read.topics}):
            able = sorted(member_id for member_id, read in readers.items() if topic in read.topics)
            for partition in range(self.story.topics.partition_count(topic)):
                reader = able[partition % len(able)]
                if owners.get((topic, partition), reader) == reader:
                    shares[reader].setdefault(topic, []).append(partition)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(share))
            for member_id, share in shares.items()
        ]

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code:
            self._failed(response.error_code)
            return
        read = read_assignment(response.assignment).assigned_partitions if response.assignment else []
        before = self.owned
        self.owned = {(part.topic, partition) for part in read for partition in part.partitions}
        # A cooperative client that had to give something up joins again, so that others can have it.
        self.phase = "join" if self.cooperative and before - self.owned else "heartbeat"


class ConsumerAgent(Agent):
    def __init__(self, *args: Any, regex: str | None = None) -> None:
        super().__init__(*args)
        self.member_id = self.name
        self.regex = regex
        self.epoch = 0
        self.target: set[Partition] = set()
        self.sends_all = True

    def generation_now(self) -> int:
        return self.epoch

    def step(self) -> None:
        if self.waits and self.story.random.random() < 0.7:
            return
        if self.waits:
            # Nothing was heard: it says everything again.
            self.sends_all = True
        if self.owned != self.target and self.story.random.random() < 0.7:
            # It has taken its time to let go.
            self.owned = set(self.target)
        joins = self.epoch == 0
        full = joins or self.sends_all
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=list(self.topics) if full and self.regex is None else None,
            subscribed_topic_regex=self.regex if full else None,
            topic_partitions=[] if joins else self._owned(),
        )
        self.ask("consumer_group_heartbeat", request, 1)

    def _owned(self) -> list[TopicPartitions]:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            owned.setdefault(topic, []).append(partition)
        return [
            TopicPartitions(topic_id=self.story.topics.topic_id(topic) or b"", partitions=indexes)
            for topic, indexes in owned.items()
        ]

    def hear(self, response: Message) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            self.owned, self.target = set(), set()
            self.epoch = 0
            if response.error_code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
                self.is_alive = response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
            return
        self.sends_all = False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.target = {
                (self.story.topics.topic_name(part.topic_id) or "", partition)
                for part in response.assignment.topic_partitions
                for partition in part.partitions
            }
            # What is new it takes at once; what it must give up it still has for a while.
            self.owned |= self.target

    def leave(self) -> None:
        epoch = -1 if self.instance is None else -2
        self.owned, self.target, self.is_alive = set(), set(), False
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance
        )
        self.ask("consumer_group_heartbeat", request, 1)


class Story(World):
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.agents: dict[str, Agent] = {}
        # Requests that were sent, to be repeated by accident.
        self.sent: list[tuple[str, Message, str, int, int]] = []
        self.loss = 0.0
        self.impatience = 0.1
        # What was committed last, by group and partition, and when.
        self.committed: dict[tuple[str, Partition], tuple[int, int]] = {}
        # What transactions of a producer will have committed.
        self.pending: dict[int, dict[tuple[str, Partition], tuple[int, int]]] = {}
        self._commits = 0
        # What was handed out in each classic generation.
        self.handed_out: dict[tuple[str, int], dict[str, set[Partition]]] = {}
        self._is_duplicate = False
        self._numbers = iter(range(1, 1_000_000))
        super().__init__(settings=SETTINGS)

    # -- what happens --------------------------------------------------------------------------------------------------

    def _answered(self, reply: Reply) -> None:
        assert isinstance(reply.token, int)
        name = self.waiting[reply.token]
        super()._answered(reply)
        agent = self.agents.get(name)
        if agent is None or self._is_duplicate:
            return
        if isinstance(reply.response, SyncGroupResponse) and not reply.response.error_code:
            self._note(agent, reply.response)
        if not agent.is_alive or self.random.random() < self.loss:
            return
        agent.waits = False
        agent.hear(expect(Message, reply.response))

    def _note(self, agent: Agent, response: SyncGroupResponse) -> None:
        if isinstance(self.shard.state.group(agent.group), ConsumerGroup):
            return
        read = read_assignment(response.assignment).assigned_partitions if response.assignment else []
        share = {(part.topic, partition) for part in read for partition in part.partitions}
        shares = self.handed_out.setdefault((agent.group, agent.generation_now()), {})
        # A static member is the same under another id.
        who = agent.instance or agent.member_id
        assert shares.setdefault(who, share) == share
        for other, taken in shares.items():
            assert other == who or not taken & share

    def new_agent(self, group: str, kind: str, topics: list[str], instance: str | None = None) -> Agent:
        name = f"{kind[0]}{next(self._numbers)}"
        agent: Agent
        if kind == "consumer":
            regex = "t[0-9]" if instance is None and self.random.random() < 0.2 else None
            agent = ConsumerAgent(self, name, group, topics, instance, regex=regex)
        else:
            agent = ClassicAgent(self, name, group, topics, instance, cooperative=kind == "cooperative")
        self.agents[name] = agent
        return agent

    def alive(self, group: str | None = None) -> Iterator[Agent]:
        return (a for a in list(self.agents.values()) if a.is_alive and group in (None, a.group))

    def send_later(self) -> None:
        for agent in self.alive():
            if isinstance(agent, ClassicAgent) and agent.next_sync is not None:
                request, agent.next_sync = agent.next_sync, None
                agent.ask("sync_group", request, 5)

    def repeat_old_request(self) -> None:
        """A request arrives a second time, from a connection that is long gone.

        Requests of one epoch, or of none, cannot be distinguished in this protocol: of those, the last one may be
        repeated.
        """
        handler, request, name, version, generation = self.random.choice(self.sent[-60:])
        agent = self.agents[name]
        group = self.shard.state.consumer.get(agent.group)
        member = None if group is None else group.members.get(agent.member_id)
        tells_none = handler == "join_group" and isinstance(agent, ClassicAgent) and not agent.cooperative
        if member is not None and (generation == member.epoch or tells_none):
            handler, request, name, version, _ = next(entry for entry in reversed(self.sent) if entry[2] == name)
        self._is_duplicate = True
        try:
            self.ask(handler, request, name, version)
        finally:
            self._is_duplicate = False

    def commit(self, agent: Agent) -> None:
        if not agent.owned or not agent.member_id:
            return
        topic, partition = self.random.choice(sorted(agent.owned))
        offset = self.random.randrange(1, 1000)
        decision = self.do_commit(
            agent.group,
            "committer",
            f"{topic}:{partition}@{offset}",
            member=agent.member_id,
            generation=str(agent.generation_now()),
        )
        if decision.records:
            self._commits += 1
            self.committed[agent.group, (topic, partition)] = (self._commits, offset)

    def commit_in_transaction(self, group: str, topic: str) -> None:
        """A transaction ends, and another one of the same producer begins."""
        producer = self.random.randrange(1, 4)
        offset = self.random.randrange(1, 1000)
        committed = self.random.random() < 0.5
        self.end_transaction(producer, committed)
        for where, (number, pending) in self.pending.pop(producer, {}).items():
            if committed and self.committed.get(where, (0, 0))[0] < number:
                self.committed[where] = (number, pending)
        self.do_txn_commit(group, "txn", f"{topic}:0@{offset}", producer=str(producer), member="", generation="-1")
        self._commits += 1
        self.pending[producer] = {(group, (topic, 0)): (self._commits, offset)}

    # -- what must be true ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        state = self.shard.state
        for group_id, group in state.consumer.items():
            claims: dict[tuple[bytes, int], str] = {}
            for member in group.members.values():
                for owned in (member.assigned, member.revoking):
                    for topic_id, partitions in owned.items():
                        for partition in partitions:
                            # Nothing is both assigned and being given up, or with two members.
                            assert (topic_id, partition) not in claims, (group_id, member.member_id, claims)
                            claims[topic_id, partition] = member.member_id
                            assert group.owner_of(topic_id, partition) == member.member_id
            self._check_beliefs(group_id)
        for group_id, live in state.classic.items():
            written = state.written.get(group_id)
            if live.state is ClassicState.STABLE:
                assert written == live.value()
        for (group_id, (topic, partition)), (_, offset) in self.committed.items():
            stored = state.offsets.get(group_id, topic, partition)
            assert stored is not None
            assert stored.offset == offset

    def _check_beliefs(self, group_id: str) -> None:
        """By the responses they got, no two members own a partition. Those that were fenced may not know it yet."""
        members = self.shard.state.consumer[group_id].members
        holders: dict[Partition, str] = {}
        for agent in self.alive(group_id):
            member, generation = members.get(agent.member_id), agent.generation_now()
            if member is not None and generation > 0 and generation in (member.epoch, member.previous_epoch):
                for partition in agent.owned:
                    assert partition not in holders, (group_id, partition, holders[partition], agent.name)
                    holders[partition] = agent.name

    def check_replay(self) -> None:
        assert self.replayed().state.durable() == self.shard.state.durable()

    # -- the end -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Without troubles, all groups become stable, and each partition has one reader that knows it."""
        self.loss = 0.0
        for round_ in range(400):
            # Answers that were lost are given up on; after that, who waits has reason to.
            self.impatience = 1.0 if round_ == 0 else 0.0
            for agent in self.alive():
                if agent.waits and isinstance(agent, ConsumerAgent):
                    agent.sends_all = True
                agent.step()
            self.send_later()
            self.advance(500)
            self.check()
            if all(self._is_settled(group_id) for group_id in {agent.group for agent in self.alive()}):
                return
        agents = [
            (agent.name, agent.group, agent.member_id, agent.generation_now(), agent.owned) for agent in self.alive()
        ]
        raise AssertionError(f"not settled: {self.run('list')} {agents}")

    def _is_settled(self, group_id: str) -> bool:
        group = self.shard.state.group(group_id)
        if group is None or group.state not in (ClassicState.STABLE, ConsumerState.STABLE):
            return False
        members = {agent.member_id for agent in self.alive(group_id)}
        if members != set(group.members):
            return False
        wanted = {
            (topic, partition)
            for topic in {topic for agent in self.alive(group_id) for topic in self._topics_of(agent)}
            for partition in range(self.topics.partition_count(topic))
        }
        held = sorted(partition for agent in self.alive(group_id) for partition in agent.owned)
        return held == sorted(wanted)

    def _topics_of(self, agent: Agent) -> list[str]:
        if isinstance(agent, ConsumerAgent) and agent.regex is not None:
            return [name for name in self.topics.topic_names() if name.startswith("t")]
        return agent.topics
