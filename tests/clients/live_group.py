"""A group of real clients and the topic they read, for tests to make them come and go."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer

from clients.drivers import DEADLINE_S
from clients.group_members import Confluent, Member, NewMember, Read
from penstock.client.wire.admin import Admin
from waiting import wait_until

PARTITIONS = 6

# As fast as can be, so that tests need not wait for what people have to.
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


class Group:
    """A topic, the group that reads it, and what everybody in it has read."""

    def __init__(self, bootstrap: str, kind: NewMember, replicas: int = 1) -> None:
        self.name = unique("group")
        self.topic = unique("topic")
        self.members: list[Member] = []
        self.read: list[Read] = []
        self._bootstrap = bootstrap
        self._kind = kind
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._sent = 0
        with Admin(bootstrap, timeout=DEADLINE_S) as admin:
            admin.topics.create(self.topic, partitions=PARTITIONS, replication_factor=replicas)

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, str(self._sent).encode(), partition=self._sent % PARTITIONS)
            self._sent += 1
        assert self._producer.flush(DEADLINE_S) == 0

    def join(self, count: int = 1) -> None:
        for _ in range(count):
            self.members.append(self._kind(self._bootstrap, self.name, self.topic))

    def join_as(self, kind: NewMember) -> None:
        """A member of another kind than the rest."""
        self.members.append(kind(self._bootstrap, self.name, self.topic))

    def leave(self, count: int = 1) -> None:
        for _ in range(count):
            self.members.pop().leave()

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        def poll() -> None:
            for member in self.members:
                self.read += member.poll()

        wait_until(condition, lambda: f"{what}: {[member.assignment() for member in self.members]}", between=poll)

    def settle(self, working: int | None = None) -> None:
        """Until every partition has exactly one owner, and so many members have some."""
        wanted = len(self.members) if working is None else working

        def settled() -> bool:
            assigned = [member.assignment() for member in self.members]
            everything = sorted(itertools.chain(*assigned))
            return everything == list(range(PARTITIONS)) and len(list(filter(None, assigned))) == wanted

        self.poll_until(settled, "the partitions are not divided")

    def read_all(self) -> None:
        self.poll_until(lambda: len(self.values) == self._sent, "not everything was read")

    @property
    def values(self) -> set[int]:
        return {int(each.value) for each in self.read}

    def commit(self) -> None:
        for member in self.members:
            member.commit()

    def end(self) -> None:
        """librdkafka's members leave at once: none has a rebalance pending because another one has left."""
        at_once = [each for each in self.members if isinstance(each, Confluent)]
        with ThreadPoolExecutor(max_workers=len(at_once) + 1) as threads:
            list(threads.map(Confluent.leave, at_once))
        for member in self.members:
            if not isinstance(member, Confluent):
                member.leave()
        self.members.clear()

    def come_and_go(self) -> None:
        """Members join and leave; those that follow read on where the others have committed."""
        self.send(60)
        self.join()
        self.read_all()
        assert len(self.read) == 60
        self.commit()
        self.join(2)
        self.settle()
        self.send(60)
        self.read_all()
        self.commit()
        self.leave(3)
        self.join(2)
        self.settle()
        before = len(self.read)
        self.send(30)
        self.read_all()
        assert {int(each.value) for each in self.read[before:]} == set(range(120, 150))  # what was committed is done
        self.end()
