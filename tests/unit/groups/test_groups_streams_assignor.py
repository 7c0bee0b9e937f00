"""The assignor of streams groups: laws for any application, and a few examples."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.streams_assignor import StreamsSubscriber, assign_sticky
from penstock.groups.streams_tasks import Task, TaskSets
from penstock.groups.streams_topology import ConfiguredSubtopology

Members = dict[str, str]
"""The processes of members."""


def topology(tasks: dict[str, int], stateful: str = "") -> dict[str, ConfiguredSubtopology]:
    return {name: ConfiguredSubtopology(count, (f"in-{name}",), name in stateful) for name, count in tasks.items()}


def assign(
    members: Members, current: dict[str, TaskSets], tasks: dict[str, int], stateful: str, standbys: int
) -> dict[str, TaskSets]:
    subscribers = [StreamsSubscriber(name, process, current.get(name, TaskSets())) for name, process in members.items()]
    return assign_sticky(subscribers, topology(tasks, stateful), standbys)


def check(found: dict[str, TaskSets], members: Members, tasks: dict[str, int], stateful: str, standbys: int) -> None:
    """Each task is active once; shares differ by one; standbys are on other processes, as many as there can be."""
    assert found.keys() == members.keys()
    active = Counter(task for each in found.values() for task in each.active)
    assert active == Counter(Task(name, index) for name, count in tasks.items() for index in range(count))
    counts = [len(each.active) for each in found.values()]
    assert max(counts) - min(counts) <= 1
    processes: dict[Task, list[str]] = {}
    for name, each in found.items():
        assert not each.warmup
        for task in (*each.active, *each.standby):
            processes.setdefault(task, []).append(members[name])
    copies = min(standbys, len(set(members.values())) - 1)
    for task, where in processes.items():
        assert len(set(where)) == len(where), task
        assert len(where) == 1 + (copies if task.subtopology in stateful else 0)


TASKS = st.dictionaries(st.sampled_from("xyz"), st.integers(1, 7), min_size=1)
MEMBERS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("PQRS"), min_size=1)


@given(st.lists(MEMBERS, min_size=2, max_size=5), TASKS, st.sampled_from(["", "x", "xyz"]), st.integers(0, 2))
@settings(deadline=None)
def test_laws_as_members_come_and_go(
    rounds: list[Members], tasks: dict[str, int], stateful: str, standbys: int
) -> None:
    current: dict[str, TaskSets] = {}
    before: Members = {}
    for members in rounds:
        found = assign(members, current, tasks, stateful, standbys)
        check(found, members, tasks, stateful, standbys)
        again = assign(members, found, tasks, stateful, standbys)
        assert {name: each.active for name, each in again.items()} == {n: e.active for n, e in found.items()}
        if members.keys() <= before.keys():
            # Who stays keeps all that it had.
            assert all(found[name].active >= current[name].active for name in members)
        elif members.keys() >= before.keys() and before:
            # Who was there gets nothing that others had.
            assert all(found[name].active <= current[name].active for name in before)
        current, before = found, members


def test_a_lost_task_goes_to_its_standby() -> None:
    members = {"a": "P", "b": "Q", "c": "R"}
    first = assign(members, {}, {"x": 3}, "x", 1)
    (lost,) = first["a"].active
    left = {name: process for name, process in members.items() if name != "a"}
    (heir,) = [name for name in left if lost in first[name].standby]
    assert lost in assign(left, first, {"x": 3}, "x", 1)[heir].active


def test_a_member_that_reports_state_gets_its_tasks_back() -> None:
    has = {Task("x", 2): 90, Task("x", 3): 40}
    subscribers = [StreamsSubscriber("new", "P", TaskSets(), has), StreamsSubscriber("other", "Q", TaskSets(), {})]
    assert assign_sticky(subscribers, topology({"x": 4}, "x"), 0)["new"].active == has.keys()


def test_the_member_that_read_furthest_comes_first() -> None:
    near, far = {Task("x", 0): 10}, {Task("x", 0): 99}
    subscribers = [StreamsSubscriber("a", "P", TaskSets(), near), StreamsSubscriber("b", "Q", TaskSets(), far)]
    assert Task("x", 0) in assign_sticky(subscribers, topology({"x": 1}, "x"), 0)["b"].active


def test_nobody_is_there() -> None:
    assert assign_sticky([], topology({"x": 2}), 1) == {}
