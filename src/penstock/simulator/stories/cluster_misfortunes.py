"""Faults as the steps of a story: each strikes a machine, and some wait for a critical moment to do so."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.simulator.moments import Moments
from penstock.simulator.stories.cluster_checkers import ClusterWatch
from penstock.simulator.stories.cluster_faults import Faults
from penstock.simulator.stories.cluster_moments import Moment
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine

Misfortune = Callable[[Machine], Awaitable[None]]


class Misfortunes:
    """The part of a story that hurts its cluster. Stories choose a misfortune by the name of its method."""

    critical_moments: Mapping[str, Moment]
    # What brings about a moment that does not come by itself.
    provocations: Mapping[str, str]
    # How long an aimed fault waits for its moment.
    aim_s: float

    world: ClusterWorld
    watch: ClusterWatch
    flushes: bool
    """Whether promises survive the power loss of any machine."""

    def __init__(self, world: ClusterWorld, chance: random.Random, events: Counter[str]) -> None:
        self.world = world
        self.chance = chance
        self.events = events
        self.moments = world.moments = Moments(self.critical_moments)
        self.faults = Faults(world, chance, events)

    def look(self) -> None:
        self.watch.look()
        self.moments.look(self.world.touched())

    async def suffer(self) -> None:
        """The time that passes after a fault."""

    async def kill(self, machine: Machine) -> None:
        self.faults.crash(machine)

    async def lose_power(self, machine: Machine) -> None:
        self.faults.lose_power(machine)

    async def isolate(self, machine: Machine) -> None:
        self.faults.isolate(machine)

    async def doom(self, machine: Machine) -> None:
        """It ends in the middle of its work, or of its start."""
        if self.chance.random() < 0.5:
            await self.restart(machine)
        self.faults.doom(machine, power=self.flushes and self.chance.random() < 0.5)
        await self.suffer()

    def aimed(self) -> Sequence[Misfortune]:
        """The faults that may strike at a critical moment; each story has its own."""
        raise NotImplementedError

    async def aim(self, machine: Machine) -> None:
        """A fault waits for a critical moment of any machine, and strikes the first that has it."""
        moment = self.chance.choice(list(self.critical_moments))
        aimed = asyncio.create_task(self.strike_at(moment, self.chance.choice(self.aimed())))
        if moment in self.provocations:
            await getattr(self, self.provocations[moment])(machine)
        await aimed

    async def strike_at(self, moment: str, fault: Misfortune) -> None:
        victim = await self.moments.come(moment, self.aim_s)
        if victim is not None and victim.runs:
            self.events["aimed faults"] += 1
            await fault(victim)

    async def restart(self, machine: Machine) -> None:
        self.faults.crash(machine)
        machine.start()

    async def stop(self, machine: Machine) -> None:
        await self.faults.stop(machine)

    async def cut(self, _: Machine) -> None:
        self.faults.cut()
        await self.suffer()

    async def cut_one_way(self, _: Machine) -> None:
        self.faults.cut_one_way()
        await self.suffer()

    async def slow_network(self, _: Machine) -> None:
        self.faults.delay()
        await self.suffer()

    async def reset(self, _: Machine) -> None:
        self.faults.reset()

    async def jump(self, _: Machine) -> None:
        self.faults.jump()

    async def slow_disk(self, _: Machine) -> None:
        self.faults.slow_disk()

    def heal(self) -> None:
        self.faults.heal()
        for machine in self.world.machines.values():
            if not machine.runs:
                machine.start()
