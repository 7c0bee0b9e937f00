"""What can happen to a share group and its cluster under load, each with its repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from chaos import group_faults
from chaos.faults import PROPERTIES as CLUSTER_PROPERTIES
from chaos.member_scene import INTERNAL_PARTITIONS, MemberScene
from chaos.outages import killed, paused, stopped
from chaos.programs import Program
from chaos.share_ledger import ShareLedger
from narrowing import present
from penstock.broker.coordinators.hashing import partition_for
from penstock.client.wire.admin import ResourceType
from penstock.model.ids import uuid_from_text
from penstock.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from penstock.share_state.key import SharePartitionKey
from penstock.testing.nodes import RunningNode
from waiting import wait_until

DELIVERY_LIMIT = 5
SHORT_LOCK_MS = 3000
LONG_LOCK_MS = 60_000
REQUEST_S = 4.0
PROGRESS_S = 120.0

PROPERTIES = {
    **CLUSTER_PROPERTIES,
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "4000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
}


@dataclass
class ShareScene(MemberScene):
    workers: int
    """Of each member: they share a process."""
    ledger: ShareLedger = field(default_factory=ShareLedger)

    def begin(self) -> None:
        with self.cluster.admin() as admin:
            admin.share_groups.reset(self.group, "earliest", topics=[self.topic])
        self._epochs = self._leader_epochs()

    def join(self, count: int = 1) -> None:
        for _ in range(count):
            settings = {
                "bootstrap": self.cluster.bootstrap,
                "group": self.group,
                "topic": self.topic,
                "workers": self.workers,
                "timeout_s": REQUEST_S,
                "login": self.logins("worker"),
            }
            self.members.append(Program("chaos.share_worker", settings, self.ledger.heard))

    def leave(self) -> None:
        for member in self.members:
            assert member.leave() == 0
        self.members.clear()

    def working_member(self) -> Program:
        self.ledger.working.clear()
        return wait_until(
            lambda: next((each for each in self.members if each in self.ledger.working), None), "a working member"
        )

    def share_coordinator(self) -> RunningNode:
        """The one that has the state of some partition."""
        topic_id = uuid_from_text(present(self.cluster.describe(self.topic).topic_id))
        key = str(SharePartitionKey(self.group, topic_id, self.rng.randrange(self.writer.partitions)))
        return self.cluster.leader_of(SHARE_GROUP_STATE, partition_for(key, INTERNAL_PARTITIONS))

    def lock_for(self, milliseconds: int) -> None:
        with self.cluster.admin() as admin:
            settings = {"share.record.lock.duration.ms": str(milliseconds)}
            admin.configs.alter(ResourceType.GROUP, self.group, settings)

    def catch_up(self) -> None:
        ends = self.ends()
        wait_until(
            lambda: self.ledger.has_handled(ends),
            lambda: f"{ends} handled: {self.ledger.progress()}; {dict(self.ledger.reasons)}",
            PROGRESS_S,
            between=self.check_members,
        )

    def finish(self) -> None:
        """Nothing is left: every record is accepted or given up."""
        self.catch_up()
        wait_until(lambda: self._lag() == 0, lambda: f"a lag of {self._lag()}", PROGRESS_S, between=self.check_members)

    def _lag(self) -> int:
        with self.cluster.admin() as admin:
            lags = [each.lag for each in admin.share_groups.offsets(self.group)]
        return sum(1 if lag is None else lag for lag in lags)

    def quiet(self) -> int:
        """What is sent and handled while nothing is hurt, and locks are long, is handled once. How much it was."""
        self.lock_for(LONG_LOCK_MS)
        self.progress()
        starts = self.ends()
        self.writer.wait_for(len(self.writer.acknowledged) + 100)
        self.progress()
        handled = self.ledger.check_once(
            starts, {each: min(starts[each] + 30, end) for each, end in self.ends().items()}
        )
        self.lock_for(SHORT_LOCK_MS)
        return handled

    def _leader_epochs(self) -> dict[int, int]:
        return {each.partition: each.leader_epoch for each in self.cluster.describe(self.topic).partitions}

    def check(self) -> None:
        changes = {each: epoch - self._epochs[each] for each, epoch in self._leader_epochs().items()}
        self.ledger.check({partition: DELIVERY_LIMIT + changed for partition, changed in changes.items()})

    def whole(self) -> None:
        for topic in (self.topic, CONSUMER_OFFSETS, SHARE_GROUP_STATE):
            self.cluster.wait_for_isr(topic)


def kill_share_coordinator(scene: MemberScene) -> None:
    assert isinstance(scene, ShareScene)
    with killed(scene.share_coordinator()):
        scene.progress()


def pause_share_coordinator(scene: MemberScene) -> None:
    assert isinstance(scene, ShareScene)
    with paused(scene.share_coordinator()):
        scene.progress()


def stop_leader(scene: MemberScene) -> None:
    with stopped(scene.leader()):
        scene.progress()


def pause_leader(scene: MemberScene) -> None:
    """Its workers wait for it until their requests time out; when it wakes up, another one leads."""
    with paused(scene.leader()):
        scene.progress()
    scene.progress()


def kill_leader_and_member(scene: MemberScene) -> None:
    leader, member = scene.leader(), scene.working_member()
    with killed(leader):
        member.kill()
        scene.members.remove(member)
        scene.join()
        scene.progress()


_OF_ALL_GROUPS = ("kill_member", "kill_half", "pause_member", "kill_coordinator", "kill_leader", "kill_controller")
_OF_SHARE_GROUPS = (
    kill_share_coordinator,
    pause_share_coordinator,
    stop_leader,
    pause_leader,
    kill_leader_and_member,
)
FAULTS: dict[str, Callable[[MemberScene], None]] = {
    **{name: group_faults.FAULTS[name] for name in _OF_ALL_GROUPS},
    **{fault.__name__: fault for fault in _OF_SHARE_GROUPS},
}
