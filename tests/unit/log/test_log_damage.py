"""Damage that is found in a segment, and what becomes of the segment before it is made good."""

from __future__ import annotations

import pytest

from log_harness import DIRECTORY, append, content, headers, open_log, topic
from penstock.log.log import Log
from penstock.simulator.twins.disk import SimulatedDisk

LOG = "00000000000000000000.log"


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk, topic(segment_bytes=1 << 20))


def test_damage_is_made_good(log: Log, disk: SimulatedDisk) -> None:
    for _ in range(3):
        append(log)
    good = content(disk, LOG)
    disk.corrupt(f"{DIRECTORY}/{LOG}", len(good) // 2)
    segment = log.active_segment
    damage = log.find_damage(segment)()
    assert damage is not None and (damage.first_offset, damage.next_offset) == (1, 2)
    append(log)  # what comes behind it changes nothing
    assert log.restore(segment, damage, good[damage.position : damage.end])
    assert log.find_damage(segment)() is None


def test_batches_that_have_come_since_are_not_overwritten(log: Log, disk: SimulatedDisk) -> None:
    """A follower looks for damage, then cuts its tail and copies its leader's, in which the same offsets, of the same
    size, lie elsewhere. Only the leader's batch 2 is what was asked for."""
    append(log)
    append(log, size=20)
    append(log, size=50)
    segment = log.active_segment
    disk.corrupt(f"{DIRECTORY}/{LOG}", segment.size - 1)
    damage = log.find_damage(segment)()
    assert damage is not None and damage.first_offset == 2
    log.truncate_to(1)
    append(log, size=40, epoch=1)
    append(log, size=50, epoch=1)
    before = content(disk, LOG)
    of_leader = before[-damage.size :]
    assert not log.restore(segment, damage, of_leader)
    assert content(disk, LOG) == before
    assert log.find_damage(segment)() is None
    assert [header.base_offset for header in headers(log)] == [0, 1, 2]
