"""Timers against the plain way to keep deadlines: a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.timers import TimerKey, Timers

operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 40)),
        st.tuples(st.just("set unless running"), st.integers(0, 5), st.integers(0, 40)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 10)),
    ),
    max_size=40,
)


@given(operations)
def test_keys_come_up_when_they_are_due(steps: list[tuple[str, int, int]]) -> None:
    timers, due, now_ms = Timers(), dict[TimerKey, int](), 0
    for name, number, amount in steps:
        key = TimerKey("session", "g", str(number))
        if name == "set":
            timers.set(key, now_ms + amount)
            due[key] = now_ms + amount
        elif name == "set unless running":
            timers.set_unless_running(key, now_ms + amount)
            due.setdefault(key, now_ms + amount)
        elif name == "cancel":
            timers.cancel(key)
            due.pop(key, None)
        else:
            now_ms += amount
            came_up = set()
            while (popped := timers.pop(now_ms)) is not None:
                came_up.add(popped)
            expected = {known for known, at_ms in due.items() if at_ms <= now_ms}
            assert came_up == expected
            due = {known: at_ms for known, at_ms in due.items() if known not in expected}
        assert len(timers) == len(due)
        assert (timers.deadline_ms is None) == (not due)
        if due:
            # Never late; early at times.
            assert timers.deadline_ms is not None
            assert timers.deadline_ms <= min(due.values())


def test_moving_a_deadline_later_costs_no_entry() -> None:
    timers = Timers()
    keys = [TimerKey("session", "g", str(number)) for number in range(100)]
    for now_ms in range(1000):
        for key in keys:
            timers.set(key, now_ms + 10_000)
    assert timers.pop(9_999) is None
    assert len(timers._heap) == len(keys)
