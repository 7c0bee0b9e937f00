"""When a group of the new protocols gets a new assignment."""

from __future__ import annotations

from penstock.groups.consumer_group import ConsumerGroup

INTERVAL_MS = 1_000
HOUR_MS = 3_600_000


def test_members_that_join_together_are_assigned_together() -> None:
    group = ConsumerGroup("g")
    assert group.may_assign(INTERVAL_MS, 10)
    group.assignment_timestamp = 10
    assert not group.may_assign(INTERVAL_MS, 10)
    assert not group.may_assign(INTERVAL_MS, 10 + INTERVAL_MS - 1)
    assert group.may_assign(INTERVAL_MS, 10 + INTERVAL_MS)


def test_a_timestamp_of_a_clock_that_was_ahead_delays_nothing() -> None:
    """The last assignment was made by another coordinator, whose clock was hours ahead."""
    group = ConsumerGroup("g")
    group.assignment_timestamp = 20 * HOUR_MS
    assert group.may_assign(INTERVAL_MS, HOUR_MS)
