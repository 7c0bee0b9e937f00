"""Injects faults into a simulated cluster of real brokers.

Messages are not lost, duplicated or reordered here: TCP is between the brokers and hides that. Visible are delays,
broken connections, and links that are cut, in both directions or in one. The pure stories have the rest.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.stories.replica_content import Place

OFFSET_AT = range(8)
LEADER_EPOCH_AT = range(12, 16)
SUSPENDED_MS = (60_000, 3_600_000, 8 * 3_600_000)
CLOCK_JUMPS_MS = (-600_000, -5_000, -500, 500, 5_000, 600_000)


class Faults:
    def __init__(self, world: ClusterWorld, chance: random.Random, events: Counter[str]) -> None:
        self._world = world
        self._chance = chance
        self._events = events
        self._network = world.loop.network
        self._ordinary_latency = world.loop.network.latency
        self._ordinary_executor_delay = world.loop.executor_delay
        self._slow_hosts: dict[str, float] = {}
        self._slow_disks: dict[str, float] = {}
        self._noise = random.Random(f"{world.seed}/noise")
        world.loop.network.latency = self._latency
        world.loop.executor_delay = self._executor_delay

    # -- processes and machines -------------------------------------------------------------------------------------

    def crash(self, machine: Machine) -> None:
        self._events["process crashes"] += 1
        self._world.moments.strike("kill", machine)
        machine.crash()

    def lose_power(self, machine: Machine) -> None:
        self._events["power losses"] += 1
        self._world.moments.strike("power loss", machine)
        machine.power_loss()

    def doom(self, machine: Machine, *, power: bool) -> None:
        """It ends between two changes of its disk, in the middle of its work."""
        end = self.lose_power if power else self.crash

        def ends() -> None:
            self._events["ends within a step"] += 1
            end(machine)

        machine.doom(self._chance.choice((0, self._chance.randrange(10), self._chance.randrange(100))), ends)

    def lose_disk(self, machine: Machine) -> None:
        self._events["disks lost"] += 1
        self._world.moments.strike("lost disk", machine)
        machine.crash()
        machine.lose_disk()

    async def stop(self, machine: Machine) -> None:
        if machine.is_ready:
            self._events["clean stops"] += 1
            self._world.moments.strike("stop", machine)
            broker = machine.broker
            await machine.stop()
            self._events["handovers"] += broker is not None and broker.handover.passed_on > 0

    # -- the network ------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Some hosts from all others."""
        hosts = list(self._world.machines)
        self._chance.shuffle(hosts)
        size = self._chance.randint(1, len(hosts) // 2)
        self._events["symmetric partitions"] += 1
        self._strike_cut(hosts)
        self._network.partition(hosts[:size], [*hosts[size:], "localhost"])

    def cut_one_way(self) -> None:
        """What a host sends does not reach some hosts, or what they send does not reach it."""
        hosts = list(self._world.machines)
        one = self._chance.choice(hosts)
        others = [host for host in hosts if host != one and self._chance.random() < 0.7]
        self._events["one-way partitions"] += bool(others)
        deaf = self._chance.random() < 0.5
        self._strike_cut([one])
        for other in others:
            self._network.cut(*((other, one) if deaf else (one, other)))

    def separate(self, one: Machine, other: Machine) -> None:
        self._events["symmetric partitions"] += 1
        self._strike_cut([one.name, other.name])
        self._network.partition([one.name], [other.name])

    def isolate(self, machine: Machine) -> None:
        """From all other nodes, but not from clients."""
        self._events["symmetric partitions"] += 1
        self._strike_cut([machine.name])
        self._network.partition([machine.name], [host for host in self._world.machines if host != machine.name])

    def _strike_cut(self, hosts: Iterable[str]) -> None:
        self._world.moments.strike("cut", *(self._world.machines[host] for host in hosts))

    def delay(self, *hosts: str) -> None:
        """Everything from and to a host: of some hosts, or of one with a larger delay."""
        self._events["delays"] += 1
        for host in hosts:
            self._slow_hosts[host] = 0.2
        if not hosts:
            self._slow_hosts[self._chance.choice(list(self._world.machines))] = self._chance.choice((0.02, 0.2, 0.8))

    def reset(self) -> None:
        one, other = self._chance.sample(list(self._world.machines), 2)
        self._events["connections broken"] += 1
        self._world.moments.strike("reset", self._world.machines[one], self._world.machines[other])
        self._network.reset(one, other)

    def _latency(self, source: str, target: str) -> float:
        latency = self._ordinary_latency(source, target)
        for host in (source, target):
            if host in self._slow_hosts:
                latency += self._slow_hosts[host] * self._noise.random()
                self._events["messages delayed"] += 1
        return latency

    # -- clocks and disks -------------------------------------------------------------------------------------------

    def jump(self) -> None:
        machine = self._chance.choice(list(self._world.machines.values()))
        self._events["clock jumps"] += 1
        machine.clock.jump(self._chance.choice(CLOCK_JUMPS_MS))

    def suspend(self) -> None:
        """All nodes are on one machine, which sleeps for hours."""
        self._events["suspends"] += 1
        milliseconds = self._chance.choice(SUSPENDED_MS)
        for machine in self._world.machines.values():
            machine.clock.suspend(milliseconds)

    def slow_disk(self) -> None:
        """Slows everything that threads do: above all syncs."""
        self._events["slow disks"] += 1
        self._slow_disks[self._chance.choice(list(self._world.machines))] = self._chance.choice((0.05, 0.3, 1.0))

    def _executor_delay(self) -> float:
        slowness = self._slow_disks.get(self._world.loop.host)
        return self._ordinary_executor_delay() + (0.0 if slowness is None else slowness * self._noise.random())

    def flip(self, machine: Machine, places: list[Place]) -> None:
        """A bit of a batch, in its records or its header. Not in the leader epoch, which no checksum covers, and not in
        the offset of the last batch, which no later batch contradicts."""
        place = self._chance.choice(places)
        spared = {*LEADER_EPOCH_AT, *(OFFSET_AT if place is places[-1] else ())}
        position = self._chance.choice([at for at in range(place.end - place.begin) if at not in spared])
        self._events["bits flipped"] += 1
        machine.disk.corrupt(place.path, place.begin + position, 1 << self._chance.randrange(8))

    def heal(self) -> None:
        """Links and disks work again, and no node is doomed; clocks stay as they are."""
        for machine in self._world.machines.values():
            machine.spare()
        self._slow_hosts.clear()
        self._slow_disks.clear()
        self._network.heal()
