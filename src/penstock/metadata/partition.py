"""A partition in the metadata: its replicas, its leader and its in-sync replicas."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.ids import Uuid
from penstock.protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1

# Directory ids that do not identify a directory.
MIGRATING_DIRECTORY: Final[Uuid] = bytes(16)
UNASSIGNED_DIRECTORY: Final[Uuid] = bytes(15) + b"\x01"
LOST_DIRECTORY: Final[Uuid] = bytes(15) + b"\x02"
_RESERVED_DIRECTORIES: Final = 100


def is_reserved_directory(directory: Uuid) -> bool:
    return int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES


class Partition(NamedTuple):
    replicas: tuple[int, ...]
    # The log directory of each replica, in the order of `replicas`.
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    # 1 while an uncleanly elected leader has not recovered yet.
    leader_recovery_state: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def from_record(cls, record: PartitionRecord) -> Partition:
        replicas = tuple(record.replicas)
        return cls(
            replicas=replicas,
            directories=_directories(tuple(record.directories), len(replicas)),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def to_record(self, topic_id: Uuid, partition_id: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )

    def merge(self, change: PartitionChangeRecord) -> Partition:
        """This partition after a change. Every change increments the partition epoch, every new leader the leader
        epoch."""
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        directories = self.directories if change.directories is None else tuple(change.directories)
        led_as_before = change.leader == NO_LEADER_CHANGE
        return Partition(
            replicas=replicas,
            directories=_directories(directories, len(replicas)),
            isr=self.isr if change.isr is None else tuple(change.isr),
            leader=self.leader if led_as_before else change.leader,
            leader_epoch=self.leader_epoch if led_as_before else self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=(
                self.leader_recovery_state
                if change.leader_recovery_state == NO_RECOVERY_CHANGE
                else change.leader_recovery_state
            ),
            removing_replicas=(
                self.removing_replicas if change.removing_replicas is None else tuple(change.removing_replicas)
            ),
            adding_replicas=self.adding_replicas if change.adding_replicas is None else tuple(change.adding_replicas),
            elr=self.elr if change.eligible_leader_replicas is None else tuple(change.eligible_leader_replicas),
            last_known_elr=self.last_known_elr if change.last_known_elr is None else tuple(change.last_known_elr),
        )

    def directory_of(self, broker_id: int) -> Uuid:
        """The directory of a replica; UNASSIGNED_DIRECTORY until it is reported."""
        try:
            return self.directories[self.replicas.index(broker_id)]
        except (ValueError, IndexError):
            return UNASSIGNED_DIRECTORY

    @property
    def reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


def _directories(directories: tuple[Uuid, ...], replica_count: int) -> tuple[Uuid, ...]:
    """The directories of the replicas. Records from before directories existed have none."""
    if not directories or all(directory == MIGRATING_DIRECTORY for directory in directories):
        return (MIGRATING_DIRECTORY,) * replica_count
    if len(directories) != replica_count:
        raise ValueError(f"{len(directories)} directories for {replica_count} replicas")
    return directories
