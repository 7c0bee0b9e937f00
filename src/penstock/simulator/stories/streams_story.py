"""Story: members of a Kafka Streams application come, go and are late, while their coordinator is replaced.

Only pure code plays: the group's coordinator, and members that do what they are told. A coordinator that crashes loses
what it has not committed, with the answers to it; the next one reads the log.

Laws:

- `OneActiveOwner`: a task is active in one member: in what the coordinator knows, and in what the members run that
  belong to the group.
- `EpochsNeverFall`: the epochs of the group and of its assignment never fall, and no member hears a lower one than
  before.
- `StateEqualsLog`: a coordinator that loads the log knows what the running one knows.
- `EveryTaskAssigned`: when nothing fails any more, the group becomes stable, and its members run every task.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from penstock.coordinator.decision import Caller, CoordinatorRecord, Decision
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.shard import GroupShard
from penstock.groups.streams_group import StreamsGroup, StreamsState
from penstock.groups.streams_heartbeat import StreamsReply
from penstock.groups.streams_tasks import Task
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from penstock.protocol.messages.streams_structs import Subtopology, TaskIds, TopicInfo
from penstock.simulator.story import StoryResult, Violation

GROUP: Final = "application"
PROCESSES: Final = "PPQQRR"  # of the members
ROLES: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
SECONDS: Final = 60
HEALED_S: Final = 60
STEP_MS: Final = 100
BEAT_MS: Final = 500
SESSION_MS: Final = 3000
REBALANCE_MS: Final = 2000
EVENTS = (
    "joined",
    "left",
    "members that died",
    "members that were late",
    "members that were fenced",
    "lost requests",
    "lost answers",
    "coordinator crashes",
    "uncommitted decisions",
    "topics extended",
    "tasks moved",
)


class Topics:
    """The topics of the application; source topics grow."""

    def __init__(self) -> None:
        self.version = 1
        self._counts = {"orders": 4, "payments": 3, "changelog": 4}

    def extend(self, name: str) -> None:
        self.version += 1
        self._counts[name] += 1

    def topic_id(self, name: str) -> Uuid | None:
        return name.ljust(16).encode() if name in self._counts else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        name = topic_id.decode().strip()
        return name if name in self._counts else None

    def partition_count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def topic_names(self) -> Iterable[str]:
        return self._counts


class Thread:
    """A member. It runs what it heard last, and says so with each heartbeat."""

    def __init__(self, name: str, process: str) -> None:
        self.name = name
        self.process = process
        self.beats_at_ms = 0
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.has: dict[str, list[TaskIds]] = {role: [] for role in ROLES}

    def request(self) -> StreamsGroupHeartbeatRequest:
        joins = self.epoch == 0
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            process_id=self.process if joins else None,
            topology=_topology() if joins else None,
            active_tasks=self.has["active_tasks"],
            standby_tasks=self.has["standby_tasks"],
            warmup_tasks=self.has["warmup_tasks"],
        )

    def runs(self) -> set[Task]:
        return {Task(each.subtopology_id, index) for each in self.has["active_tasks"] for index in each.partitions}


def _topology() -> Topology:
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=["orders"],
                state_changelog_topics=[TopicInfo(name="changelog")],
            ),
            Subtopology(subtopology_id="1", source_topics=["payments"]),
        ],
    )


class StreamsStory:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/streams")
        self.events: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=60)
        self.trace = hashlib.sha256()
        self.now_ms = 1000
        self.topics = Topics()
        self.settings = replace(
            GroupCoordinatorSettings(),
            streams_session_timeout_ms=SESSION_MS,
            streams_heartbeat_interval_ms=BEAT_MS,
            streams_initial_rebalance_delay_ms=self.chance.choice((0, 1000)),
            streams_assignment_interval_ms=self.chance.choice((0, 300)),
            streams_num_standby_replicas=self.chance.choice((0, 1, 2)),
        )
        self.log: list[CoordinatorRecord] = []
        self.shard = self._loaded()
        self.threads: dict[int, Thread] = {}
        self.made = 0
        self.is_faulty = True
        self.epochs = (0, 0)  # of the group and its assignment, as committed
        self.heard: dict[str, int] = {}  # the last epoch of each member since it joined
        self.ran: dict[Task, str] = {}

    def note(self, text: str) -> None:
        line = f"{self.now_ms} {text}"
        self.recent.append(line)
        self.trace.update(line.encode())

    # -- the play -----------------------------------------------------------------------------------------------------

    def tell(self) -> StoryResult:
        violation = None
        try:
            for _ in range(SECONDS * 1000 // STEP_MS):
                self.misfortune()
                self.step()
            self.note("healed")
            self.is_faulty = False
            for number in (0, 2):  # two processes at least
                self.threads.setdefault(number, self.new_thread(number))
            for _ in range(HEALED_S * 1000 // STEP_MS):
                self.step()
                if self.is_settled():
                    break
            else:
                raise Violation("EveryTaskAssigned", self.what_is_missing())
        except Violation as broken:
            violation = str(broken)
        return StoryResult(violation, self.events, self.trace.hexdigest(), tuple(self.recent))

    def step(self) -> None:
        self.now_ms += STEP_MS
        while self.shard.deadline is not None and self.shard.deadline <= self.now_ms:
            self.commit(self.shard.tick(self.now_ms))
        for number in list(self.threads):
            thread = self.threads[number]
            if thread.beats_at_ms <= self.now_ms:
                thread.beats_at_ms = self.now_ms + BEAT_MS
                self.beat(thread)
        self.check()

    def misfortune(self) -> None:
        chance = self.chance.random
        for number in range(len(PROCESSES)):
            thread = self.threads.get(number)
            if thread is None:
                if chance() < 0.02:
                    self.threads[number] = self.new_thread(number)
            elif chance() < 0.003:
                self.leave(number)
            elif chance() < 0.003:
                del self.threads[number]
                self.events["members that died"] += 1
                self.note(f"{thread.name} dies")
            elif chance() < 0.006:
                thread.beats_at_ms = self.now_ms + self.chance.choice((REBALANCE_MS, SESSION_MS, 2 * SESSION_MS))
                self.events["members that were late"] += 1
        if chance() < 0.01:
            self.crash()
        if chance() < 0.003 and self.topics.partition_count("payments") < 8:
            self.topics.extend("payments")
            self.events["topics extended"] += 1

    def new_thread(self, number: int) -> Thread:
        self.made += 1
        return Thread(f"m{self.made}", PROCESSES[number])

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def _loaded(self) -> GroupShard:
        ids = random.Random(len(self.log))
        shard = GroupShard(self.settings, lambda group_id: self.settings, lambda: ids.randbytes(16), self.topics)
        for record in self.log:
            shard.replay(record.key, record.value, producer_id=-1, now_ms=self.now_ms)
        return shard

    def crash(self) -> None:
        self.events["coordinator crashes"] += 1
        self.note("another coordinator")
        self.shard = self._loaded()
        self.commit(self.shard.loaded(self.now_ms))

    def commit(self, decision: Decision) -> None:
        for record in decision.records:
            self.log.append(record)
            self.shard.replay(record.key, record.value, producer_id=-1, now_ms=self.now_ms)

    def ask(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
        """None if the answer, or already the request, is lost."""
        chance = self.chance.random
        if self.is_faulty and chance() < 0.03:
            self.events["lost requests"] += 1
            return None
        caller = Caller(client_id="c", client_host="/10.0.0.1", api_version=1)
        decision = self.shard.streams_group_heartbeat(request, 1, caller, self.now_ms)
        if self.is_faulty and decision.records and chance() < 0.02:
            self.events["uncommitted decisions"] += 1
            self.crash()
            return None
        self.commit(decision)
        if self.is_faulty and chance() < 0.03:
            self.events["lost answers"] += 1
            return None
        reply: Any = decision.replies[0].response
        assert isinstance(reply, StreamsReply)
        return reply.response

    # -- members ------------------------------------------------------------------------------------------------------

    def beat(self, thread: Thread) -> None:
        joins = thread.epoch == 0
        response = self.ask(thread.request())
        if response is None:
            return
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
            self.note(f"{thread.name} begins anew: {code.name}")
            self.events["members that were fenced"] += 1
            thread.start_over()
            self.heard.pop(thread.name, None)
            thread.beats_at_ms = self.now_ms
            return
        assert code is ErrorCode.NONE, response.error_message
        self.events["joined"] += joins
        if response.member_epoch < self.heard.get(thread.name, 0):
            raise Violation(
                "EpochsNeverFall", f"{thread.name} hears {response.member_epoch} after {self.heard[thread.name]}"
            )
        self.heard[thread.name] = thread.epoch = response.member_epoch
        if response.active_tasks is not None:
            thread.has = {role: getattr(response, role) for role in ROLES}
            self.note(f"{thread.name} of epoch {thread.epoch} runs {sorted(thread.runs())}")
            for task in thread.runs():
                before = self.ran.get(task)
                self.events["tasks moved"] += before is not None and before != thread.name
                self.ran[task] = thread.name

    def leave(self, number: int) -> None:
        thread = self.threads.pop(number)
        self.note(f"{thread.name} leaves")
        self.events["left"] += 1
        self.ask(StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=thread.name, member_epoch=-1))

    # -- laws ---------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> StreamsGroup | None:
        return self.shard.state.streams.get(GROUP)

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        active: dict[Task, str] = {}
        for member in group.members.values():
            for task in {*member.assigned.active, *member.revoking.active}:
                owner = active.setdefault(task, member.member_id)
                if owner != member.member_id:
                    raise Violation("OneActiveOwner", f"{task} is active in {owner} and {member.member_id}")
        runs: dict[Task, str] = {}
        for thread in self.threads.values():
            if thread.name in group.members:
                for task in thread.runs():
                    owner = runs.setdefault(task, thread.name)
                    if owner != thread.name:
                        raise Violation("OneActiveOwner", f"{task} is run by {owner} and {thread.name}")
        epochs = (group.epoch, group.assignment_epoch)
        if any(now < before for now, before in zip(epochs, self.epochs, strict=True)):
            raise Violation("EpochsNeverFall", f"group and assignment have {epochs} after {self.epochs}")
        self.epochs = epochs
        if self.chance.random() < 0.05 and self._loaded().state.durable() != self.shard.state.durable():
            raise Violation("StateEqualsLog", "a coordinator that loads the log knows something else")

    def tasks(self) -> set[Task]:
        sources = (("0", "orders"), ("1", "payments"))
        return {Task(part, index) for part, topic in sources for index in range(self.topics.partition_count(topic))}

    def is_settled(self) -> bool:
        group = self.group
        if group is None or group.state is not StreamsState.STABLE:
            return False
        ran = [task for thread in self.threads.values() for task in thread.runs()]
        return sorted(ran) == sorted(self.tasks())

    def what_is_missing(self) -> str:
        ran = {task for thread in self.threads.values() for task in thread.runs()}
        state = "gone" if self.group is None else self.group.state.value
        return f"the group is {state}; nobody runs {sorted(self.tasks() - ran)}"


def play(seed: int) -> StoryResult:
    return StreamsStory(seed).tell()
