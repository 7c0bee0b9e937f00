"""A group of programs that read a topic of a cluster under load: what faults need to know of it, whatever its kind."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from chaos.programs import Program
from chaos.secured import Logins, without_login
from chaos.workload import Writer
from penstock.broker.coordinators.hashing import partition_for
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.testing.clusters import RunningCluster
from penstock.testing.nodes import RunningNode

INTERNAL_PARTITIONS = 4
METADATA_MS = 1000


@dataclass
class MemberScene(ABC):
    cluster: RunningCluster
    writer: Writer
    topic: str
    group: str
    rng: random.Random
    logins: Logins = field(default=without_login, kw_only=True)
    members: list[Program] = field(default_factory=list, kw_only=True)

    @abstractmethod
    def join(self, count: int = 1) -> None: ...

    @abstractmethod
    def working_member(self) -> Program:
        """One that has something to do, after waiting for it."""

    @abstractmethod
    def catch_up(self) -> None:
        """Everything that was acknowledged to the writer is read."""

    def coordinator(self) -> RunningNode:
        return self.cluster.leader_of(CONSUMER_OFFSETS, partition_for(self.group, INTERNAL_PARTITIONS))

    def leader(self) -> RunningNode:
        return self.cluster.leader_of(self.topic, self.rng.randrange(self.writer.partitions))

    def ends(self) -> dict[int, int]:
        """How far each partition goes, by what was acknowledged to the writer."""
        ends: dict[int, int] = {}
        for partition, offset in reversed(list(self.writer.acknowledged.values())):
            if offset is not None:
                ends.setdefault(partition, offset + 1)
            if len(ends) == self.writer.partitions:
                break
        return ends

    def progress(self) -> None:
        """What is sent from now on is read, of all partitions."""
        self.writer.wait_for_all_after(self.writer.sent)
        self.catch_up()

    def check_members(self) -> None:
        crashed = [each.process.returncode for each in self.members if not each.is_running]
        assert not crashed, f"members ended with {crashed}"

    def whole(self) -> None:
        """And known to be: aiokafka asks only the brokers of its last metadata, and none if these are away."""
        for topic in (self.topic, CONSUMER_OFFSETS):
            self.cluster.wait_for_isr(topic)
        time.sleep(2 * METADATA_MS / 1000)

    def end(self) -> None:
        for member in self.members:
            member.kill()
