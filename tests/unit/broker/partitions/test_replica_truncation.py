"""Where a follower's log ends, and begins, after its leader has named the divergence."""

from __future__ import annotations

import pytest

from coordinator_harness import World
from log_harness import append
from penstock.simulator.twins.loop import SimulatedLoop, simulate


@pytest.mark.parametrize(
    ("leader_start", "left"),
    [(0, (0, 6)), (3, (0, 6)), (6, (6, 6)), (8, (8, 8))],
    ids=["leader has all", "leader has less", "nothing in common is left", "leader begins later"],
)
def test_records_below_the_leaders_log_start_do_not_stay_alone(leader_start: int, left: tuple[int, int]) -> None:
    """The leader's epoch 2 began at 5, and it has deleted everything below 6: it names 6 as the end of epoch 1."""

    async def story(loop: SimulatedLoop) -> None:
        replica = World(loop).replica
        append(replica.log, 3, epoch=1)
        append(replica.log, 3, epoch=1)
        append(replica.log, 4, epoch=1)
        replica.truncate_to_epoch(1, 6, leader_start)
        assert (replica.log.log_start_offset, replica.log.log_end_offset) == left

    simulate(story)


@pytest.mark.parametrize(("end", "told"), [(6, 1), (7, 0), (9, 0)], ids=["below", "at", "above"])
def test_connections_hear_of_a_cut_below_the_high_watermark(end: int, told: int) -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = World(loop)
        replica = world.replica
        append(replica.log, 10, epoch=1)
        replica.learned(7, 0)
        replica.truncate_to_epoch(1, end, 0)
        assert world.rewritten == told

    simulate(story)
