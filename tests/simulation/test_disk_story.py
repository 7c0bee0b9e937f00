"""The story of brokers with several disks, where it has to help itself: what an operator would do there."""

from __future__ import annotations

import pytest

from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.cluster_disks import DiskStory
from penstock.simulator.stories.cluster_world import Machine


class FencedOneByOne(DiskStory):
    """No broker dies. All but one lose touch, so that it is alone in sync; then a directory of it is replaced."""

    async def replace_last_in_sync(self, machine: Machine) -> None:
        await self.everybody_back()
        promises = self.promises[0]
        alone, *others = [self.world.machines[f"broker-{each}"] for each in self.partition(promises).replicas]
        disk = self.disk_of(alone, promises)
        for other in others:
            self.faults.isolate(other)
        await self.world.until(
            lambda: self.partition(promises).isr == (alone.node_id,), "the first replica is alone in sync"
        )
        self.watch.doubt(alone)
        self.faults.crash(alone)
        self.replace(alone, disk)
        self.events["replaced last in sync"] += 1
        await self.everybody_back()


@pytest.mark.parametrize("seed", range(4))
def test_an_operator_elects_a_survivor_where_no_replica_may_lead(seed: int) -> None:
    misfortunes = ("replace_last_in_sync",)
    result = play_on_loop(seed, lambda loop: FencedOneByOne(loop, seed, rounds=2, misfortunes=misfortunes))
    assert result.violation is None, result.violation
    assert result.events["replaced last in sync"]
