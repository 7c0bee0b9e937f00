"""Story: brokers that live, and a network that suggests otherwise; that must not cause an election.

Round trips take 100 ms. Connections are reset, between two hosts or all of one. A host refuses connections for up to
two seconds, alone or together with all others, as when firewalls are reloaded. Sometimes the active controller is
killed, so that another one must judge brokers it has never heard from. No broker dies. So every partition keeps its
leader and its leader epoch, on all nodes, at all times: `NoElectionWithoutADeath`.

In the end a broker does die, and then another one must lead: `DeathsAreNoticed`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from penstock.metadata.partition import Partition
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import StoryResult, Violation
from penstock.simulator.twins.loop import SimulatedLoop

TOPIC = "t"
PARTITIONS = 3
ONE_WAY_S = 0.05
REFUSED_S = 2.0
SECONDS = 60.0
EVENTS = (
    "resets",
    "refusals",
    "refusals everywhere",
    "controllers lost",
    "deaths noticed",
    "unclean allowed",
)

PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "controller.quorum.retry.backoff.ms": "200",
}


class AlarmStory:
    def __init__(self, loop: SimulatedLoop, seed: int, seconds: float, properties: dict[str, str]) -> None:
        self.chance = random.Random(f"{seed}/alarms")
        self.events: Counter[str] = Counter()
        self.seconds = seconds
        self.one_machine = self.chance.random() < 0.3
        self.unclean = self.chance.random() < 0.5
        self.world = ClusterWorld(
            loop, seed, brokers=3, properties={**PROPERTIES, **properties}, one_machine=self.one_machine
        )
        self.moments = self.world.moments
        ordinary = loop.network.latency
        loop.network.latency = lambda source, target: (
            ordinary(source, target) + (0.0 if source == target else ONE_WAY_S)
        )
        self._expected: dict[int, tuple[int, int]] = {}

    async def run(self) -> None:
        await self.world.start_all()
        await self.create()
        self.expect()
        loop = self.world.loop
        loop.watcher = self.look
        until = loop.time() + self.seconds
        while loop.time() < until:
            alarm = self.chance.choice(
                (self.reset, self.reset_all_of_one, self.refuse, self.refuse, self.refuse_all, self.lose_controller)
            )
            await alarm()
            await asyncio.sleep(self.chance.choice((0.1, 1.0, 10.0)) * self.chance.random())
        await self.world.until(self.is_quiet, "all brokers are in use")
        loop.watcher = None
        await self.notice_death()

    async def create(self) -> None:
        configs = {"unclean.leader.election.enable": str(self.unclean).lower()}
        await self.world.create_topics([TOPIC], PARTITIONS, 2, configs)
        self.events["unclean allowed"] += self.unclean
        await self.world.until(self.is_known, "all brokers know the topic")

    def partitions(self, machine: Machine) -> list[Partition]:
        found = [machine.image.topics.partition(TOPIC, index) for index in range(PARTITIONS)]
        return [each for each in found if each is not None]

    def is_known(self) -> bool:
        return all(len(self.partitions(machine)) == PARTITIONS for machine in self.world.machines.values())

    # -- false alarms -----------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        one, other = self.chance.sample(list(self.world.machines), 2)
        self.events["resets"] += 1
        self.world.loop.network.reset(one, other)

    async def reset_all_of_one(self) -> None:
        one = self.chance.choice(list(self.world.machines))
        self.events["resets"] += 1
        for other in self.world.machines:
            if other != one:
                self.world.loop.network.reset(one, other)

    async def refuse(self) -> None:
        await self._refuse([self.chance.choice(list(self.world.machines))])
        self.events["refusals"] += 1

    async def refuse_all(self) -> None:
        await self._refuse(list(self.world.machines))
        self.events["refusals everywhere"] += 1

    async def _refuse(self, hosts: list[str]) -> None:
        network = self.world.loop.network
        for host in hosts:
            network.refuse(host)
        await asyncio.sleep(self.chance.choice((0.3, 1.0, 1.0)) * REFUSED_S)
        for host in hosts:
            network.accept(host)

    async def lose_controller(self) -> None:
        active = self.world.active_controller()
        if active is None or not all(machine.is_ready for machine in self.world.controllers):
            return
        self.events["controllers lost"] += 1
        active.crash()
        await asyncio.sleep(3 * self.chance.random())
        active.start()
        await self.world.until(lambda: active.is_ready, f"{active.name} is back")

    # -- laws -------------------------------------------------------------------------------------------------------

    def expect(self) -> None:
        partitions = self.partitions(self.world.brokers[0])
        self._expected = {index: (each.leader, each.leader_epoch) for index, each in enumerate(partitions)}

    def look(self) -> None:
        for machine in self.world.touched():
            if not machine.is_ready:
                continue
            for index, partition in enumerate(self.partitions(machine)):
                if (partition.leader, partition.leader_epoch) != self._expected[index]:
                    raise Violation(
                        "NoElectionWithoutADeath",
                        f"{machine.name}: partition {index} is led by {partition.leader} in epoch "
                        f"{partition.leader_epoch}, and was by {self._expected[index]}; all brokers live",
                    )

    def is_quiet(self) -> bool:
        return all(machine.is_ready for machine in self.world.machines.values()) and all(
            not broker.fenced for machine in self.world.machines.values() for broker in machine.image.brokers.values()
        )

    async def notice_death(self) -> None:
        index = self.chance.randrange(PARTITIONS)
        victim = self._expected[index][0]
        self.world.machines[f"broker-{victim}"].crash()
        others = [machine for machine in self.world.brokers if machine.runs]
        try:
            await self.world.until(
                lambda: all(self.partitions(machine)[index].leader not in (-1, victim) for machine in others),
                f"another broker leads instead of {victim}",
                patience_s=2.0 if self.one_machine else 6.0,  # it takes several round trips of 100 ms
            )
        except Violation as late:
            raise Violation("DeathsAreNoticed", str(late)) from None
        self.events["deaths noticed"] += 1


def play(seed: int, seconds: float = SECONDS, properties: dict[str, str] | None = None) -> StoryResult:
    return play_on_loop(seed, lambda loop: AlarmStory(loop, seed, seconds, properties or {}))
