"""Random histories of a streams group with honest members: no task is ever active twice, and all settle in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import streams_requests
from group_world import World
from narrowing import expect
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.streams_group import StreamsGroup
from penstock.groups.streams_heartbeat import StreamsReply
from penstock.groups.streams_tasks import Task
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.protocol.messages.streams_structs import TaskIds
from property_examples import examples

TOPOLOGY = "0:a+c/1:b"
PROCESSES = "PPQQR"
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


class Thread:
    """A member that follows its assignment, at random moments."""

    def __init__(self, name: str, process: str) -> None:
        self.name = name
        self.process = process
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.misses_answer = False
        self.has: dict[str, list[TaskIds]] = {role: [] for role in ROLES}

    def request(self, lists_tasks: bool) -> StreamsGroupHeartbeatRequest:
        """The next heartbeat. After an answer that did not come it has everything."""
        options = {"process": self.process, "topology": TOPOLOGY} if self.epoch == 0 else {}
        request = streams_requests.heartbeat("g", self.name, self.epoch, options)
        if self.epoch and (lists_tasks or self.misses_answer):
            for role in ROLES:
                setattr(request, role, self.has[role])
        return request

    def hear(self, response: Any) -> None:
        if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH and self.misses_answer:
            self.start_over()
            return
        assert not response.error_code, response.error_message
        self.misses_answer = False
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.has = {role: getattr(response, role) for role in ROLES}

    def runs(self) -> set[Task]:
        return {Task(each.subtopology_id, index) for each in self.has["active_tasks"] for index in each.partitions}


class Story:
    def __init__(self, standbys: int) -> None:
        self.world = World(
            settings=replace(
                GroupCoordinatorSettings(),
                streams_initial_rebalance_delay_ms=0,
                streams_assignment_interval_ms=100,
                streams_num_standby_replicas=standbys,
            )
        )
        for name, partitions in (("a", 4), ("b", 3), ("c", 4)):
            self.world.topics.create(name, partitions)
        self.threads: dict[int, Thread] = {}
        self.made = 0

    def beat(self, number: int, lists_tasks: bool = True, loses_answer: bool = False) -> None:
        thread = self.threads.get(number)
        if thread is None:
            self.made += 1
            thread = self.threads[number] = Thread(f"m{self.made}", PROCESSES[number])
        decision = self.world.ask("streams_group_heartbeat", thread.request(lists_tasks), thread.name, 1)
        (reply,) = decision.replies
        if loses_answer:
            thread.misses_answer = True
        else:
            thread.hear(expect(StreamsReply, reply.response).response)
        self.check()

    def leave(self, number: int) -> None:
        thread = self.threads.pop(number, None)
        if thread is not None:
            request = streams_requests.heartbeat("g", thread.name, -1, {})
            self.world.ask("streams_group_heartbeat", request, thread.name, 1)
            self.check()

    @property
    def group(self) -> StreamsGroup:
        return self.world.shard.state.streams["g"]

    def check(self) -> None:
        """The laws: of the coordinator, and of what the members really run."""
        active: dict[Task, str] = {}
        held: dict[tuple[str, Task], str] = {}
        for member in self.group.members.values():
            for owned in (member.assigned, member.revoking):
                for task in owned.active:
                    assert active.setdefault(task, member.member_id) == member.member_id, task
            for owned in (member.assigned, member.revoking):
                for task in (*owned.active, *owned.standby, *owned.warmup):
                    owner = held.setdefault((member.process_id, task), member.member_id)
                    assert owner == member.member_id, f"{task} is with {owner} and {member.member_id}"
        runs: dict[Task, str] = {}
        for thread in self.threads.values():
            for task in thread.runs():
                assert runs.setdefault(task, thread.name) == thread.name, task
        assert self.world.replayed().state.durable() == self.world.shard.state.durable()

    def settle(self, standbys: int) -> None:
        self.beat(0)
        for _ in range(8):
            self.world.now_ms += 200
            for number in list(self.threads):
                self.beat(number)
        assert self.group.state.value == "Stable"
        everything = {Task("0", index) for index in range(4)} | {Task("1", index) for index in range(3)}
        assert set().union(*(thread.runs() for thread in self.threads.values())) == everything
        processes = {thread.process for thread in self.threads.values()}
        copies = [task for member in self.group.members.values() for task in member.assigned.standby]
        assert len(copies) == 4 * min(standbys, len(processes) - 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.integers(0, 4), st.booleans(), st.booleans()),
        st.tuples(st.just("leave"), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.integers(0, 300)),
        st.tuples(st.just("failover")),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 2))
@settings(deadline=None, max_examples=examples(60))
def test_no_task_is_active_twice(steps: list[Any], standbys: int) -> None:
    story = Story(standbys)
    for kind, *details in steps:
        if kind == "beat":
            story.beat(*details)
        elif kind == "leave":
            story.leave(*details)
        elif kind == "wait":
            story.world.now_ms += details[0]
        else:
            story.world.fail_over()
    story.settle(standbys)
