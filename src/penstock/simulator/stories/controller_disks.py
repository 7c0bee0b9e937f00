"""Models the disks of one broker in the controller story, and how a broker treats them.

The model knows what the controller only learns from reports: on which disk each replica really is, and how often it was
created again because that disk was replaced. A broker opens a replica where it finds it. If it finds it nowhere, it
creates a new one, unless one of its disks has failed, which may be the one that has it. It reports where its replicas
are when it starts, before it asks to be unfenced, and otherwise sooner or later. A replica that it cannot open, and has
never reported, is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from penstock.metadata.index import PartitionKey
from penstock.metadata.partition import LOST_DIRECTORY, Partition, is_reserved_directory
from penstock.model.ids import Uuid
from penstock.simulator.stories.controller_world import directory


class Disks:
    def __init__(self, broker_id: int, count: int) -> None:
        self._broker_id = broker_id
        self._made = count
        self.slots = [directory(broker_id, number) for number in range(count)]
        self.failed: set[Uuid] = set()
        # The disk of each replica.
        self.homes: dict[PartitionKey, Uuid] = {}
        # How often each replica lost all its data.
        self.emptied: Counter[PartitionKey] = Counter()
        # Whether the controller may consider replicas empty: a disk failed or was replaced, or the broker was
        # unregistered.
        self.doubtful = False

    @property
    def online(self) -> list[Uuid]:
        return [each for each in self.slots if each not in self.failed]

    def replace(self, random: Random) -> None:
        """One disk, a failed one if there is any, is replaced by an empty one."""
        old = random.choice([each for each in self.slots if each in self.failed] or self.slots)
        self.slots[self.slots.index(old)] = directory(self._broker_id, self._made)
        self.failed.discard(old)
        self._made += 1
        self.doubtful = True

    def fail(self, random: Random) -> Uuid | None:
        """Not the last one: a broker without any disk stops."""
        if len(self.online) < 2:
            return None
        failing = random.choice(self.online)
        self.failed.add(failing)
        self.doubtful = True
        return failing

    def load(self, held: Mapping[PartitionKey, Partition]) -> None:
        """The broker has started, and should hold these replicas."""
        for key in [key for key in self.homes if key not in held]:
            del self.homes[key]  # set aside as a stray
        for key, partition in held.items():
            home = self.homes.get(key)
            if home in self.slots or (home is None and self.failed):
                continue
            if home is not None:
                if self.failed:
                    continue  # as far as the broker knows, the failed disk may have it
                self.emptied[key] += 1
            self.homes[key] = self._place(partition)

    def follow(self, held: Mapping[PartitionKey, Partition]) -> None:
        """The metadata has changed while the broker runs."""
        for key in [key for key in self.homes if key not in held]:
            del self.homes[key]
        for key, partition in held.items():
            if key not in self.homes:
                self.homes[key] = self._place(partition)

    def _place(self, partition: Partition) -> Uuid:
        wanted = partition.directory_of(self._broker_id)
        return wanted if wanted in self.online else self.online[len(self.homes) % len(self.online)]

    def holds(self, key: PartitionKey) -> bool:
        return self.homes.get(key) in self.online

    def unreported(self, held: Mapping[PartitionKey, Partition]) -> Iterable[tuple[PartitionKey, Uuid]]:
        """Where replicas are if the metadata says otherwise; a replica that may be on any of the failed disks is
        lost."""
        for key, partition in held.items():
            known, home = partition.directory_of(self._broker_id), self.homes.get(key)
            if home in self.slots:
                if home != known:
                    yield key, home
            elif self.failed and is_reserved_directory(known) and known != LOST_DIRECTORY:
                yield key, LOST_DIRECTORY
