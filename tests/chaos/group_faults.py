"""What can happen to a consumer group and its cluster under load, each with its repair."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chaos.faults import PROPERTIES as CLUSTER_PROPERTIES
from chaos.group_ledger import Ledger
from chaos.member_scene import INTERNAL_PARTITIONS, METADATA_MS, MemberScene
from chaos.outages import kill_and_restart, killed, paused, stopped
from chaos.programs import KILLED, Program
from waiting import wait_until

SESSION_MS = 4000
TIMING = {"session_ms": SESSION_MS, "heartbeat_ms": 300, "request_ms": 6000, "metadata_ms": METADATA_MS}
PROGRESS_S = 120.0
MOVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._AUTHENTICATION,  # of a broker that was paused during the login; `check_refusals` finds refused ones
)

# Members that die are missed after four seconds; no rebalance waits for others to join.
PROPERTIES = {
    **CLUSTER_PROPERTIES,
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}

# librdkafka gives up a heartbeat of the consumer protocol, and its connection, after the group's interval (2.16). On a
# machine with much to do, a login may take longer than the interval above, and such a member would never be let in.
WITH_LOGINS = {**PROPERTIES, "group.consumer.heartbeat.interval.ms": "2000"}


@dataclass
class GroupScene(MemberScene):
    kinds: list[str]
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._next_kind = itertools.cycle(self.kinds)
        self._asking = asking(self.cluster.bootstrap, self.group, self.logins("auditor"))

    def join(self, count: int = 1) -> None:
        for _ in range(count):
            settings = {
                "kind": next(self._next_kind),
                "bootstrap": self.cluster.bootstrap,
                "group": self.group,
                "topic": self.topic,
                "timing": TIMING,
                "login": self.logins("member"),
            }
            self.members.append(Program("chaos.group_member", settings, self.ledger.heard))

    def resize(self, count: int) -> None:
        """Members come, or go in good order."""
        self.join(max(0, count - len(self.members)))
        going, self.members = self.members[count:], self.members[:count]
        for member in going:
            status = member.leave()
            assert status in (0, KILLED), f"a member ended with {status}"
            self.ledger.counts["hung"] += status == KILLED

    def working_member(self) -> Program:
        """One that has partitions, after waiting for it."""
        self.cluster.wait_until(lambda: any(self.ledger.owned.get(each) for each in self.members), "a working member")
        return self.rng.choice([each for each in self.members if self.ledger.owned.get(each)])

    def catch_up(self) -> None:
        """Everything that was acknowledged to the writer is read and committed."""
        ends = self.ends()
        wait_until(
            lambda: self.ledger.has_committed(ends),
            lambda: f"{ends} reached: {self.ledger.progress()}",
            PROGRESS_S,
            between=self.check_members,
        )

    def check_commits(self) -> None:
        """What was acknowledged is there."""
        acknowledged = dict(self.ledger.acknowledged)
        asked = [TopicPartition(self.topic, partition) for partition in acknowledged]
        lost = [
            f"partition {each.partition}: {acknowledged[each.partition]} was committed, {each.offset} is"
            for each in committed(self._asking, asked)
            if each.error is not None or each.offset < acknowledged[each.partition]
        ]
        assert not lost, lost
        self.ledger.check()

    def end(self) -> None:
        super().end()
        self._asking.close()


def asking(bootstrap: str, group: str, login: Mapping[str, str]) -> Consumer:
    """One that asks what a group has committed, and is no member."""
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "socket.timeout.ms": 5000, "log_level": 0, **login}
    )


def committed(consumer: Consumer, asked: list[TopicPartition], timeout: float = 60) -> list[TopicPartition]:
    """What librdkafka does not do by itself: ask the new coordinator, if it was another one."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return list(consumer.committed(asked, 10))
        except KafkaException as error:
            if error.args[0].code() not in MOVED or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def kill_member(scene: MemberScene) -> None:
    member = scene.working_member()
    member.kill()
    scene.members.remove(member)
    scene.join()
    scene.progress()


def kill_half(scene: MemberScene) -> None:
    killed = scene.members[: (len(scene.members) + 1) // 2]
    for member in killed:
        member.kill()
        scene.members.remove(member)
    scene.join(len(killed))
    scene.progress()


def pause_member(scene: MemberScene) -> None:
    """Silent for so long that others read in its place; then it wakes up, thinking that it owns what it did."""
    if len(scene.members) < 2:
        scene.join()
        scene.progress()
    with paused(scene.working_member()):
        scene.progress()
    scene.progress()


def kill_coordinator(scene: MemberScene) -> None:
    with killed(scene.coordinator()):
        scene.progress()


def stop_coordinator(scene: MemberScene) -> None:
    with stopped(scene.coordinator()):
        scene.progress()


def pause_coordinator(scene: MemberScene) -> None:
    with paused(scene.coordinator()):
        scene.progress()


def wake_replaced_coordinator(scene: MemberScene) -> None:
    """Silent until another coordinates; then it wakes up, thinking that it still does."""
    coordinator = scene.coordinator()
    with paused(coordinator):
        scene.cluster.wait_until(lambda: scene.coordinator().node_id != coordinator.node_id, "another coordinator")
    scene.progress()


def kill_coordinator_and_member(scene: MemberScene) -> None:
    """Its death is to be noticed by a coordinator that has never heard of it, but in the log."""
    coordinator, member = scene.coordinator(), scene.working_member()
    with killed(coordinator):
        member.kill()
        scene.members.remove(member)
        scene.join()
        scene.progress()


def kill_leader(scene: MemberScene) -> None:
    with killed(scene.leader()):
        scene.progress()


def kill_controller(scene: MemberScene) -> None:
    with killed(scene.cluster.active_controller()):
        scene.progress()


def restart_all_brokers(scene: MemberScene) -> None:
    for broker in scene.cluster.brokers:
        assert broker.stop() == 0
        broker.start()
        scene.whole()
    scene.progress()


def kill_all_brokers(scene: MemberScene) -> None:
    kill_and_restart(scene.cluster.brokers)
    scene.progress()


FAULTS: dict[str, Callable[[MemberScene], None]] = {
    fault.__name__: fault
    for fault in (
        kill_member,
        kill_half,
        pause_member,
        kill_coordinator,
        stop_coordinator,
        pause_coordinator,
        wake_replaced_coordinator,
        kill_coordinator_and_member,
        kill_leader,
        kill_controller,
        restart_all_brokers,
        kill_all_brokers,
    )
}
