"""What can happen to a cluster under load, each with its repair.

A fault hurts one node, waits until the writer gets on without it, and makes the cluster whole again: with three
replicas of which two must be in sync, the next fault may then be any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from chaos.outages import kill_and_restart, killed, paused, stopped
from chaos.workload import Writer
from penstock.testing.clusters import RunningCluster
from penstock.testing.nodes import RunningNode

PROGRESS = 500
# Sooner than the defaults, so that tests need not wait for them: a silent broker is noticed after 3 s.
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "log.segment.bytes": "2000000",
}


@dataclass
class Scene:
    cluster: RunningCluster
    writer: Writer
    topic: str
    rng: random.Random

    def leader(self) -> RunningNode:
        return self.cluster.leader_of(self.topic, self.rng.randrange(self.writer.partitions))

    def progress(self) -> None:
        """Records sent from now on are acknowledged, on every partition."""
        self.writer.wait_for_all_after(self.writer.sent + PROGRESS)

    def whole(self) -> None:
        self.cluster.wait_for_isr(self.topic)


def kill_leader(scene: Scene) -> None:
    with killed(scene.leader()):
        scene.progress()
    scene.whole()


def kill_controller(scene: Scene) -> None:
    with killed(scene.cluster.active_controller()):
        scene.progress()
    scene.whole()


def kill_leader_and_controller(scene: Scene) -> None:
    leader, controller = scene.leader(), scene.cluster.active_controller()
    with killed(controller, leader):
        scene.progress()
    scene.whole()


def stop_leader(scene: Scene) -> None:
    with stopped(scene.leader()):
        scene.progress()
    scene.whole()


def pause_leader(scene: Scene) -> None:
    """Silent for so long that others lead in its place; then it wakes up, thinking that it leads."""
    with paused(scene.leader()):
        scene.progress()
    scene.whole()


def pause_controller(scene: Scene) -> None:
    controller = scene.cluster.active_controller()
    with paused(controller):
        scene.cluster.wait_until(
            lambda: scene.cluster.active_controller().node_id != controller.node_id, "another active controller"
        )
        scene.progress()
    scene.whole()


def empty_disk(scene: Scene) -> None:
    """A broker comes back with nothing of what it had."""
    leader = scene.leader()
    leader.kill()
    leader.wipe()
    leader.start()
    scene.progress()
    scene.whole()


def cut_leader_off(scene: Scene) -> None:
    """No other node reaches it, clients do."""
    leader = scene.leader()
    scene.cluster.isolate(leader)
    try:
        scene.progress()
    finally:
        scene.cluster.rejoin(leader)
    scene.whole()


def cut_controller_off(scene: Scene) -> None:
    controller = scene.cluster.active_controller()
    scene.cluster.isolate(controller)
    try:
        scene.cluster.wait_until(
            lambda: scene.cluster.active_controller().node_id != controller.node_id, "another active controller"
        )
        scene.progress()
    finally:
        scene.cluster.rejoin(controller)
    scene.whole()


def kill_all_brokers(scene: Scene) -> None:
    kill_and_restart(scene.cluster.brokers)
    scene.progress()
    scene.whole()


FAULTS: dict[str, Callable[[Scene], None]] = {
    fault.__name__: fault
    for fault in (
        kill_leader,
        kill_controller,
        kill_leader_and_controller,
        stop_leader,
        pause_leader,
        pause_controller,
        empty_disk,
        cut_leader_off,
        cut_controller_off,
        kill_all_brokers,
    )
}
