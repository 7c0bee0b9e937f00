"""Elections: computes the new state of a partition when something about it, or about its brokers, changes.

One pure function, `change_of`, decides leader, in-sync replicas, eligible leader replicas and the end of a reassignment
together, because none of these can be decided alone. Its input is the *wanted* change (a broker out of the in-sync
replicas, another set of replicas); its result is the record with the actual change, or None if nothing changes.

**Who may lead.** In this order:
1. the current leader, if it is in sync and usable: leadership never moves without need, unless the preferred replica is
   requested;
2. the first usable in-sync replica, in the order of the replicas;
3. if no replica is in sync, the first usable eligible leader replica (KIP-966): it left the in-sync replicas when they
   were fewer than `min.insync.replicas`. The high watermark has not moved since, so it has everything that was ever
   acknowledged;
4. if there is none of these either, the last leader, once it is back with its own directory. It was in sync to the end,
   but it crashed, so a power loss may have cost it records: an unclean election, and the partition recovers. If its
   disk was replaced, the last eligible leader replica that crashed takes its place;
5. if unclean elections are allowed, any usable replica; a replica that a reassignment adds only if there is no other.

**Eligible leader replicas** exist while fewer than `min.insync.replicas` replicas are in sync. They are the replicas
that left since, except those that may have lost records (they crashed, or returned with another directory). With this
feature the ISR may be empty. Without the feature the last in-sync replica stays in the ISR, dead or not, unless it has
lost everything: in sync with an empty log, it would be elected cleanly, and the others would truncate their logs to
nothing. So it leaves, the ISR is empty, and only an unclean election finds a leader.

**Epochs.** Every change increments the partition epoch. The leader epoch increments when the record names a leader:
when the leader changes, and also when a replica is removed, so that old fetches of a removed replica are fenced. A
change of the in-sync replicas alone does not change the leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from penstock.metadata.partition import NO_LEADER, UNASSIGNED_DIRECTORY, Partition
from penstock.model.ids import Uuid
from penstock.protocol.messages.metadata_records import PartitionChangeRecord

RECOVERED: Final = 0
RECOVERING: Final = 1

Replicas = tuple[int, ...]
# Whether a broker may lead a replica in a directory: the broker is active and has that directory online.
Usable = Callable[[int, Uuid], bool]


class Election(Enum):
    """The kind of election. The numbers are those of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1
    # Neither: a clean leader, and only if one is needed.
    ONLINE = -1


class Rules(NamedTuple):
    """The settings that apply to every partition of a topic."""

    # At most the number of replicas.
    min_insync_replicas: int
    # unclean.leader.election.enable
    unclean: bool
    # Whether the cluster maintains eligible leader replicas.
    elr: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted change. None leaves a field unchanged."""

    election: Election = Election.ONLINE
    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    leader_recovery_state: int | None = None
    # Changed directories of single replicas, or the directories of future replicas.
    directories: Mapping[int, Uuid] | None = None
    # Replicas that may have lost records at the end of their logs: they are not eligible leaders.
    crashed: Collection[int] = ()
    # Replicas that lost everything: they cannot be elected as the last leader, either.
    emptied: Collection[int] = ()


class Completed(NamedTuple):
    replicas: Replicas
    isr: Replicas


def change_of(  # noqa: C901
    topic_id: Uuid, partition_id: int, partition: Partition, wanted: Wanted, usable: Usable, rules: Rules
) -> PartitionChangeRecord | None:
    isr = partition.isr if wanted.isr is None else wanted.isr
    replicas = partition.replicas if wanted.replicas is None else wanted.replicas
    adding = partition.adding_replicas if wanted.adding is None else wanted.adding
    removing = partition.removing_replicas if wanted.removing is None else wanted.removing
    if adding or removing:
        completed = completed_reassignment(replicas, isr, adding, removing)
        if completed is not None:
            (replicas, isr), adding, removing = completed, (), ()
    elr = _eligible(partition, replicas, isr, wanted, rules)
    leader, unclean = _elect(partition, replicas, isr, elr, wanted, usable, rules)

    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
    changed = False
    recovery_state = partition.leader_recovery_state
    if wanted.leader_recovery_state is not None:
        recovery_state = wanted.leader_recovery_state
    if leader != partition.leader:
        record.leader = leader
        changed = True
        if unclean:
            isr, elr, recovery_state = (leader,), (), RECOVERING
        elif leader in elr:
            isr, elr = (leader,), _without(elr, leader)
    elif not set(replicas) >= set(partition.replicas):
        record.leader = leader
        changed = True
    if isr != partition.isr and (isr or rules.elr or wanted.emptied):
        record.isr = list(isr)
        changed = True
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
        changed = True
    last_known = _last_known(partition, record.leader, replicas, wanted, rules)
    if rules.elr and leader == NO_LEADER and not (isr or elr or last_known):
        last_known = _crashed_last(partition, replicas, wanted)
    if last_known != partition.last_known_elr:
        record.last_known_elr = list(last_known)
        changed = True
    if recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = recovery_state
        changed = True
    if replicas is not partition.replicas or wanted.directories:
        directories = _directories(partition, replicas, wanted.directories or {})
        if directories != partition.directories:
            record.directories = list(directories)
            changed = True
        if replicas != partition.replicas:
            record.replicas = list(replicas)
            changed = True
    if removing != partition.removing_replicas:
        record.removing_replicas = list(removing)
        changed = True
    if adding != partition.adding_replicas:
        record.adding_replicas = list(adding)
        changed = True
    return record if changed else None


def completed_reassignment(replicas: Replicas, isr: Replicas, adding: Replicas, removing: Replicas) -> Completed | None:
    """The result of a reassignment, if it can complete with these in-sync replicas.

    All added replicas must be in sync, and at least one of those that stay. If fewer are added than removed, all that
    stay must be in sync: otherwise completing would leave the partition with fewer in-sync replicas than it has now.
    """
    staying = _without_all(replicas, removing)
    in_sync = _without_all(isr, removing)
    if not staying or not in_sync or not set(in_sync) >= set(adding):
        return None
    if len(adding) < len(removing) and not set(in_sync) >= set(staying):
        return None
    return Completed(staying, in_sync)


def _eligible(partition: Partition, replicas: Replicas, isr: Replicas, wanted: Wanted, rules: Rules) -> Replicas:
    if not rules.elr or len(isr) >= rules.min_insync_replicas:
        return ()
    if isr == partition.isr and replicas is partition.replicas and not wanted.crashed and not wanted.emptied:
        return partition.elr
    return tuple(
        replica
        for replica in dict.fromkeys(partition.elr + partition.isr)
        if replica not in isr
        and replica in replicas
        and replica not in wanted.crashed
        and replica not in wanted.emptied
    )


def _elect(
    partition: Partition,
    replicas: Replicas,
    isr: Replicas,
    elr: Replicas,
    wanted: Wanted,
    usable: Usable,
    rules: Rules,
) -> tuple[int, bool]:
    """The leader, and whether it was elected uncleanly."""
    clean = isr or elr

    def can_lead(replica: int) -> bool:
        return usable(replica, _directory(partition, replica, wanted))

    preferred = replicas[0]
    if wanted.election is Election.PREFERRED and preferred in clean and can_lead(preferred):
        return preferred, False
    if partition.leader in clean and can_lead(partition.leader):
        return partition.leader, False
    for replica in replicas:
        if replica in clean and can_lead(replica):
            return replica, False
    last_known = partition.last_known_elr
    if (
        rules.elr
        and not clean
        and len(last_known) == 1
        and last_known[0] in replicas
        and last_known[0] not in wanted.emptied
        and can_lead(last_known[0])
    ):
        return last_known[0], True
    if wanted.election is Election.UNCLEAN:
        new = partition.adding_replicas if wanted.adding is None else wanted.adding
        for replica in sorted(replicas, key=lambda replica: replica in new):
            if can_lead(replica):
                return replica, True
    return NO_LEADER, False


def _last_known(partition: Partition, leader: int, replicas: Replicas, wanted: Wanted, rules: Rules) -> Replicas:
    """The last leader of a partition that lost its leader; empty while it has one. `leader` is that of the record."""
    if not rules.elr:
        return partition.last_known_elr
    last_known = partition.last_known_elr
    if leader >= 0:
        last_known = ()
    elif leader == NO_LEADER and not last_known and partition.leader >= 0:
        last_known = (partition.leader,)
    return tuple(replica for replica in last_known if replica in replicas and replica not in wanted.emptied)


def _crashed_last(partition: Partition, replicas: Replicas, wanted: Wanted) -> Replicas:
    """The replica whose crash leaves no other candidate: equivalent to the last leader."""
    crashed = [replica for replica in partition.isr + partition.elr if replica in wanted.crashed]
    return tuple(replica for replica in crashed if replica in replicas and replica not in wanted.emptied)


def _directory(partition: Partition, replica: int, wanted: Wanted) -> Uuid:
    if wanted.directories is not None and replica in wanted.directories:
        return wanted.directories[replica]
    return partition.directory_of(replica)


def _directories(partition: Partition, replicas: Replicas, different: Mapping[int, Uuid]) -> tuple[Uuid, ...]:
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    known.update(different)
    return tuple(known.get(replica, UNASSIGNED_DIRECTORY) for replica in replicas)


def _without(replicas: Replicas, gone: int) -> Replicas:
    return tuple(replica for replica in replicas if replica != gone)


def _without_all(replicas: Replicas, gone: Iterable[int]) -> Replicas:
    return tuple(replica for replica in replicas if replica not in gone)
