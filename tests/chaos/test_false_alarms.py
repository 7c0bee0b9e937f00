"""Networks that break, refuse and delay connections of live brokers: that causes no election.

Round trips take 100 ms. Again and again connections to brokers and controllers are reset, or reset and refused for two
seconds, as by a firewall that is loaded anew, at one node or at all of them. All brokers live, so that every partition
keeps its leader and its leader epoch. In the end a broker is killed, to see that a death is noticed all the same.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode

TOPIC = "t"
PARTITIONS = 6
ONE_WAY_S = 0.05
REFUSED_S = 2.0
SOAK_S = 600.0


def leaders(cluster: RunningCluster) -> dict[int, tuple[int | None, int]]:
    return {each.partition: (each.leader, each.leader_epoch) for each in cluster.describe(TOPIC).partitions}


class FalseAlarms:
    def __init__(self, cluster: RunningCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.events: Counter[str] = Counter()

    def reset(self) -> None:
        for node in self.victims():
            self.cluster.wires.reset(node)
        self.events["resets"] += 1

    def refuse(self) -> None:
        victims = self.victims()
        for node in victims:
            self.cluster.wires.refuse(node)
        time.sleep(REFUSED_S)  # the fault itself, not a wait for its consequences
        for node in victims:
            self.cluster.wires.accept(node)
        self.events["refusals"] += 1

    def victims(self) -> list[RunningNode]:
        nodes = [*self.cluster.brokers, *self.cluster.controllers]
        if self.chance.random() < 0.3:
            return nodes
        return [self.chance.choice(nodes)]

    def heard(self) -> bool:
        """Whether the cluster works: the controller decides, and all brokers know of it."""
        with self.cluster.admin(timeout=30.0) as admin:
            brokers = admin.cluster.describe().brokers
        return len(brokers) == len(self.cluster.brokers)


@pytest.mark.parametrize("is_local", [pytest.param(True, id="one-machine"), pytest.param(False, id="machines")])
def test_a_few_false_alarms(tmp_path: Path, is_local: bool) -> None:
    play(tmp_path, is_local, rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_local", [pytest.param(True, id="one-machine"), pytest.param(False, id="machines")])
def test_false_alarms_for_ten_minutes(tmp_path: Path, is_local: bool) -> None:
    play(tmp_path, is_local, seconds=SOAK_S)


def play(directory: Path, is_local: bool, *, rounds: int = 0, seconds: float = 0.0) -> None:
    properties = {"penstock.local.death.detection": str(is_local).lower(), "auto.leader.rebalance.enable": "false"}
    with start_cluster(directory, properties=properties, proxied=True) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3)
        before = leaders(cluster)
        cluster.wires.delay(ONE_WAY_S)
        alarms = FalseAlarms(cluster, seed=1)
        begun = time.monotonic()
        while rounds > 0 or time.monotonic() < begun + seconds:
            rounds -= 1
            alarms.reset()
            alarms.refuse()
            cluster.wait_until(alarms.heard, "the cluster answers")
            assert leaders(cluster) == before, f"after {alarms.events}"
        cluster.wait_for_isr(TOPIC)
        assert leaders(cluster) == before, f"after {alarms.events}"
        print(f"{time.monotonic() - begun:.0f} s: {dict(alarms.events)}")

        victim = cluster.leader_of(TOPIC, 0)
        victim.kill()
        cluster.wait_until(lambda: leaders(cluster)[0][0] not in (None, victim.node_id), "another leader")
