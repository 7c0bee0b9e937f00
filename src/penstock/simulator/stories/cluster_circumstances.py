"""The features of a simulated cluster, chosen by its seed; no world has all of them, which would be slow.

Every world has brokers that fail and return, producers and consumers. Some have more, with laws of their own:

- `elr`: whether eligible leader replicas are kept. Without them the last in-sync replica stays one, dead or not.
- `unclean`: which replicas may lead although they may lack records: any, by the topic's setting, or on an operator's
  command.
- `racks`: brokers have racks, and consumers read from the replica that is closest to them (KIP-392).
- `deletes`, `retains`: the beginning of the log is deleted, by DeleteRecords or by its size.
- `stamps`: records have the time at which the broker appended them (LogAppendTime).
- `plain_acks`: some producers have no idempotence, write to several partitions with one request, and wait for all
  in-sync replicas (-1) or only for the leader (1). 0 if there are none of them.
- `grows`: partitions are added meanwhile.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from penstock.simulator.stories.cluster_world import ClusterWorld

RETAINED_BYTES: Final = 6000
EXTRAS: Final = ("unclean", "racks", "deletes", "retains", "stamps", "plain_acks", "grows")
ORDINARY: Final = 0.3  # of all worlds have none of them


class Circumstances(NamedTuple):
    flushes: bool = False
    elr: bool = True
    unclean: str = ""
    racks: bool = False
    deletes: bool = False
    retains: bool = False
    stamps: bool = False
    plain_acks: int = 0
    grows: bool = False

    @property
    def loses_beginning(self) -> bool:
        return self.deletes or self.retains

    def topic_configs(self) -> dict[str, str]:
        return {
            **({"flush.messages": "1"} if self.flushes else {}),
            **({"unclean.leader.election.enable": "true"} if self.unclean == "setting" else {}),
            **({"retention.bytes": str(RETAINED_BYTES), "file.delete.delay.ms": "1000"} if self.retains else {}),
            **({"message.timestamp.type": "LogAppendTime"} if self.stamps else {}),
        }

    def prepare(self, world: ClusterWorld) -> None:
        """Called before the nodes start."""
        for number, machine in enumerate(world.brokers):
            if self.racks:
                machine.properties["broker.rack"] = rack_of(number)
                machine.properties["replica.selector.class"] = "RackAwareReplicaSelector"
            if self.retains:
                machine.properties["log.retention.check.interval.ms"] = "1000"
        if self.unclean:
            for machine in world.controllers:
                machine.properties["unclean.leader.election.interval.ms"] = "1000"


def rack_of(number: int) -> str:
    return f"rack-{number % 2}"


def choose(seed: int) -> Circumstances:
    chance = random.Random(f"{seed}/circumstances")
    elr = chance.random() < 0.75
    flushes = chance.random() < 0.4
    if chance.random() < ORDINARY:
        return Circumstances(flushes, elr)
    extras = {chance.choice(EXTRAS), chance.choice(EXTRAS)}
    if "unclean" in extras:  # records lost at the end of a log must not be confused with those deleted at its beginning
        return Circumstances(
            flushes,
            elr,
            unclean=chance.choice(("setting", "command")),
            stamps="stamps" in extras,
            grows="grows" in extras,
        )
    return Circumstances(
        flushes,
        elr,
        racks="racks" in extras,
        deletes="deletes" in extras,
        retains="retains" in extras,
        stamps="stamps" in extras,
        plain_acks=chance.choice((-1, 1)) if "plain_acks" in extras else 0,
        grows="grows" in extras,
    )
