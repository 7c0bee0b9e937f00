"""A storm: a cluster on hosts of its own, under load, hurt in every way there is until its time is up.

    ip netns exec NETWORK-1 python -m chaos.storm NETWORK DIRECTORY SECONDS SEED [FAULT ...]

Three hosts have a broker and a controller each. A fault hurts one of them, or all, and is healed; then the cluster must
become whole again, and the clients must get on. In the end everything is stopped, and the logs are read (`real_logs`).
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from chaos.hosts import CLIENTS, Host, build_library
from chaos.outages import paused
from chaos.real_logs import (
    committed_values,
    durability_and_order,
    log_matching,
    log_of,
    replicas_are_equal,
    transactions_are_whole,
)
from chaos.storm_work import Reading, Transacting, Work, Writing
from chaos.transaction_faults import is_all_decided
from penstock.local.cluster import FIRST_CONTROLLER_ID
from penstock.local.node import CONTROLLER_LISTENER, LocalNode
from penstock.model.ids import uuid_text
from penstock.simulator.stories.cluster_checkers import Promises
from penstock.testing.clusters import RunningCluster
from penstock.testing.nodes import RunningNode

HOSTS = 3
EVENTS, LEDGER = "events", "ledger"
PARTITIONS = 2
DISK_BYTES = 512 * 1024 * 1024
READY_S = 120.0
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "log.segment.bytes": "2000000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}


class Machine:
    """A host with its broker and its controller."""

    def __init__(self, host: Host, broker: LocalNode, controller: LocalNode) -> None:
        self.host = host
        self.broker = RunningNode(broker, READY_S)
        self.controller = RunningNode(controller, READY_S)

    @property
    def nodes(self) -> tuple[RunningNode, RunningNode]:
        return self.controller, self.broker

    def revive(self) -> None:
        """Whatever has ended, by itself or not, runs again."""
        for node in self.nodes:
            if not node.running:
                node.begin_start()

    def wait_ready(self) -> None:
        for node in self.nodes:
            node.wait_ready()


class Storm:
    def __init__(self, network: str, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        library = build_library(directory)
        cluster_id = uuid_text(os.urandom(16))
        hosts = [
            Host(network, CLIENTS + number, directory / f"host-{number}", library, DISK_BYTES)
            for number in range(1, HOSTS + 1)
        ]
        voters = ",".join(
            f"{FIRST_CONTROLLER_ID + index}@{host.address}:{CONTROLLER_PORT}" for index, host in enumerate(hosts)
        )
        shared = {
            **PROPERTIES,
            "controller.listener.names": CONTROLLER_LISTENER,
            "controller.quorum.voters": voters,
            "penstock.cluster.id": cluster_id,
        }
        self.machines = []
        for index, host in enumerate(hosts):
            nodes = [
                LocalNode(
                    node_id,
                    str(host.directory / role),
                    host=host.address,
                    port=port,
                    roles=role,
                    properties={**shared, "log.dirs": str(host.disk / role)},
                    wrapper=host.wrapper,
                    environment=host.environment,
                )
                for role, node_id, port in (
                    ("broker", index + 1, BROKER_PORT),
                    ("controller", FIRST_CONTROLLER_ID + index, CONTROLLER_PORT),
                )
            ]
            self.machines.append(Machine(host, *nodes))
        self.cluster = RunningCluster(
            [machine.broker for machine in self.machines], [machine.controller for machine in self.machines], None
        )
        self.promises = [Promises(index) for index in range(PARTITIONS)]
        bootstrap = self.cluster.bootstrap
        self.writing = Writing(bootstrap, EVENTS, self.promises, records_a_second=300)
        self.reading = Reading(bootstrap, EVENTS, self.promises)
        self.transacting = [Transacting(bootstrap, LEDGER, PARTITIONS, f"t{number}", number) for number in range(2)]
        self.work: list[Work] = [self.writing, self.reading, *self.transacting]

    # -- the play ---------------------------------------------------------------------------------------------------

    def play(self, seconds: float, faults: list[str]) -> Counter[str]:
        """How often each fault struck."""
        struck: Counter[str] = Counter()
        try:
            self.revive_all()
            for topic in (EVENTS, LEDGER):
                self.cluster.create_topic(topic, PARTITIONS, HOSTS)
            for work in self.work:
                work.start()
            deadline = time.monotonic() + seconds
            names = self._names(faults)
            while not struck or time.monotonic() < deadline or len(struck) < len(faults):
                name = next(names)
                began = time.monotonic()
                FAULTS[name](self)
                self.whole()
                struck[name] += 1
                print(
                    f"{name}: {time.monotonic() - began:.1f} s; {self.writing.acknowledged} acknowledged, "
                    f"{self.reading.read} read, {sum(len(each.committed) for each in self.transacting)} committed, "
                    f"{sum(machine.host.failed for machine in self.machines)} disk operations failed",
                    flush=True,
                )
            for work in self.work:
                work.stop()
            topics = {LEDGER: PARTITIONS}
            self.cluster.wait_until(
                lambda: is_all_decided(self.cluster.bootstrap, topics), "the end of all transactions", READY_S
            )
            self.whole()
            self.judge()
        finally:
            for machine in self.machines:
                for node in machine.nodes:
                    node.kill()
        return struck

    def _names(self, faults: list[str]) -> Iterator[str]:
        while True:
            yield from faults or self.chance.sample(sorted(FAULTS), len(FAULTS))

    def revive_all(self) -> None:
        for machine in self.machines:
            machine.revive()
        for machine in self.machines:
            machine.wait_ready()

    def whole(self) -> None:
        """Everybody runs and is in sync, and clients get on."""
        self.revive_all()
        for topic in (EVENTS, LEDGER):
            self.cluster.wait_for_isr(topic, READY_S)
        for work in self.work:
            work.check()
        before = self.writing.acknowledged
        if not self.writing.stopping.is_set():
            self.cluster.wait_until(lambda: self.writing.acknowledged > before, "an acknowledgement", READY_S)

    def suffer(self, *seconds: float) -> None:
        """For a moment, or so long that sessions end."""
        time.sleep(self.chance.choice(seconds or (0.5, 5.0)))

    def anybody(self) -> Machine:
        return self.chance.choice(self.machines)

    def leader(self) -> Machine:
        node = self.cluster.leader_of(self.chance.choice((EVENTS, LEDGER)), self.chance.randrange(PARTITIONS))
        return next(machine for machine in self.machines if machine.broker is node)

    # -- the end ----------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        for machine in self.machines:
            machine.broker.stop()
        by_partition = []
        for index, promises in enumerate(self.promises):
            events = self._content(EVENTS, index)
            durability_and_order(promises, events)
            if len(promises.told) < self.writing.acknowledged // (2 * PARTITIONS):
                raise AssertionError("most acknowledgements had no offset: nothing was checked")
            by_partition.append(committed_values(self._content(LEDGER, index), f"{LEDGER}-{index}"))
        transactions_are_whole(by_partition, self.transacting)

    def _content(self, topic: str, index: int) -> bytes:
        what = f"{topic}-{index}"
        replicas = {
            f"broker {machine.broker.node_id}": log_of(machine.host.disk / "broker" / what) for machine in self.machines
        }
        data = replicas_are_equal(replicas, what)
        log_matching(data, what)
        return data


# -- faults ----------------------------------------------------------------------------------------------------------


def kill_broker(storm: Storm) -> None:
    storm.leader().broker.kill()
    storm.suffer(0.0, 3.0)


def kill_controller(storm: Storm) -> None:
    storm.cluster.active_controller().kill()
    storm.suffer(0.0, 3.0)


def kill_host(storm: Storm) -> None:
    for node in storm.leader().nodes:
        node.kill()
    storm.suffer()


def kill_everything(storm: Storm) -> None:
    for machine in storm.machines:
        for node in machine.nodes:
            node.kill()


def stop_broker(storm: Storm) -> None:
    storm.leader().broker.stop()


def pause(storm: Storm, which: str) -> None:
    node = storm.leader().broker if which == "broker" else storm.cluster.active_controller()
    with paused(node):
        storm.suffer(0.5, 5.0, 8.0)


def unplug_host(storm: Storm) -> None:
    host = storm.leader().host
    host.unplug()
    try:
        storm.suffer(0.5, 5.0, 8.0)
    finally:
        host.plug_in()


def deafen_host(storm: Storm, *, both_ways: bool) -> None:
    """Two brokers do not hear each other, or one of them does not hear the other; clients hear both."""
    one, other = storm.chance.sample([machine.host for machine in storm.machines], 2)
    pairs = [(one, other), (other, one)] if both_ways else [(one, other)]
    for sender, receiver in pairs:
        sender.deafen(receiver)
    try:
        storm.suffer(0.5, 5.0, 8.0)
    finally:
        for sender, receiver in pairs:
            sender.hear(receiver)


def full_disk(storm: Storm) -> None:
    """To the last block: what is appended within it still fits, new files do not."""
    machine = storm.anybody()
    machine.host.fill_disk(leave=storm.chance.choice((0, 0, 1, 5)))
    try:
        storm.suffer(1.0, 5.0)
    finally:
        machine.host.empty_disk()
    restart(machine)


def failing_writes(storm: Storm) -> None:
    machine = storm.leader()
    machine.host.fail(writes=storm.chance.choice((1, 3, 100)))
    storm.suffer(1.0, 5.0)
    machine.host.fail()
    restart(machine)


def failing_syncs(storm: Storm) -> None:
    machine = storm.anybody()
    machine.host.fail(syncs=storm.chance.choice((1, 3)))
    storm.suffer(1.0, 6.0)
    machine.host.fail()
    restart(machine)


def restart(machine: Machine) -> None:
    """What an operator does after a disk was mended: replicas may have gone offline."""
    for node in machine.nodes:
        node.kill()


def new_disk(storm: Storm) -> None:
    """A broker comes back with nothing of what it had."""
    machine = storm.leader()
    machine.broker.kill()
    shutil.rmtree(machine.host.disk / "broker")


FAULTS: dict[str, Callable[[Storm], None]] = {
    "kill_broker": kill_broker,
    "kill_controller": kill_controller,
    "kill_host": kill_host,
    "kill_everything": kill_everything,
    "stop_broker": stop_broker,
    "pause_broker": partial(pause, which="broker"),
    "pause_controller": partial(pause, which="controller"),
    "unplug_host": unplug_host,
    "cut_two_hosts": partial(deafen_host, both_ways=True),
    "cut_one_way": partial(deafen_host, both_ways=False),
    "full_disk": full_disk,
    "failing_writes": failing_writes,
    "failing_syncs": failing_syncs,
    "new_disk": new_disk,
}


def main() -> None:
    network, directory, seconds, seed, *faults = sys.argv[1:]
    storm = Storm(network, Path(directory), int(seed))
    struck = storm.play(float(seconds), faults)
    told = sum(len(promises.told) for promises in storm.promises)
    print(f"faults: {dict(sorted(struck.items()))}")
    print(
        f"nothing lost, doubled, reordered, or aborted and seen: {told} promises, "
        f"{sum(len(each.committed) for each in storm.transacting)} committed, "
        f"{sum(len(each.aborted) for each in storm.transacting)} aborted and "
        f"{sum(len(each.unknown) for each in storm.transacting)} unanswered transactions; "
        f"errors of producers: {dict(sum((each.errors for each in storm.transacting), Counter()))}"
    )


if __name__ == "__main__":
    main()
