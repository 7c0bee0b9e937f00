"""The critical moments of a node in a simulated cluster, from its memory, its disk and the work of its threads.

All predicates are cheap: they are evaluated for a node when a fault strikes it, and after each of its steps while a
fault waits for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.coordinators.partition import CoordinatorPartition
from penstock.broker.metadata.raft_driver import RaftDriver
from penstock.broker.partitions.replica import Replica
from penstock.groups.classic_group import ClassicState
from penstock.groups.shard import GroupShard
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Role
from penstock.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from penstock.simulator.stories.cluster_world import Machine

_REBALANCING: Final = (ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE)


# -- parts of a node, which may not exist yet -----------------------------------------------------------------------


def _replicas(machine: Machine) -> Iterator[Replica]:
    return iter(machine.replicas)


def _driver(machine: Machine) -> RaftDriver | None:
    """None while a node starts."""
    driver: RaftDriver | None = getattr(getattr(machine.node, "quorum", None), "driver", None)
    return driver


def _role(machine: Machine) -> Role | None:
    driver = _driver(machine)
    return None if driver is None else driver.raft.role


def _coordinated(machine: Machine) -> list[CoordinatorPartition[Any]]:
    if machine.broker is None:
        return []
    coordinators = machine.broker.coordinators
    return [*coordinators.groups.partitions.values(), *coordinators.transactions.partitions.values()]


# -- replication ----------------------------------------------------------------------------------------------------


def is_starting(machine: Machine) -> bool:
    """It loads and recovers logs, and catches up with the metadata."""
    return machine.runs and not machine.is_ready


def has_unreplicated(machine: Machine) -> bool:
    return any(
        replica.leader is not None and replica.log.log_end_offset > replica.high_watermark
        for replica in _replicas(machine)
    )


def has_unsynced(machine: Machine) -> bool:
    """Of the data that must be synced before it counts."""
    return any(
        replica.log.settings.flush_messages == 1 and replica.log.recovery_point < replica.log.log_end_offset
        for replica in _replicas(machine)
    )


def has_truncated(machine: Machine) -> bool:
    return bool(machine.disk_events.truncated)


def catches_up(machine: Machine) -> bool:
    return any(
        replica.leader is None and replica.partition is not None and machine.node_id not in replica.partition.isr
        for replica in _replicas(machine)
    )


def proposes_isr(machine: Machine) -> bool:
    return any(replica.leader is not None and replica.leader.pending is not None for replica in _replicas(machine))


def is_reassigned(machine: Machine) -> bool:
    return any(replica.partition is not None and replica.partition.reassigning for replica in _replicas(machine))


# -- metadata -------------------------------------------------------------------------------------------------------


def has_no_controller(machine: Machine) -> bool:
    return machine.world.active_controller() is None


def stands_for_election(machine: Machine) -> bool:
    return isinstance(_role(machine), Candidate | Prospective)


def has_uncommitted_metadata(machine: Machine) -> bool:
    driver = _driver(machine)
    if machine.node is None or driver is None or not isinstance(driver.raft.role, Leader):
        return False
    return machine.node.quorum.log_end_offset > driver.raft.high_watermark


def downloads_snapshot(machine: Machine) -> bool:
    role = _role(machine)
    return isinstance(role, Follower) and role.download is not None


def writes_snapshot(machine: Machine) -> bool:
    return machine.node is not None and _driver(machine) is not None and bool(machine.node.quorum.snapshots.under_way)


def changes_voters(machine: Machine) -> bool:
    role = _role(machine)
    return isinstance(role, Leader) and role.change is not None


# -- coordinators ---------------------------------------------------------------------------------------------------


def loads_coordinator(machine: Machine) -> bool:
    return any(partition.load is not None for partition in _coordinated(machine))


def owes_answers(machine: Machine) -> bool:
    return any(partition.owed for partition in _coordinated(machine))


def owes_markers(machine: Machine) -> bool:
    """Transactions are decided, and some partitions do not have their marker."""
    return any(
        isinstance(partition.shard, TransactionShard) and len(partition.shard.outbox) > 0
        for partition in _coordinated(machine)
    )


def has_open_transaction(machine: Machine) -> bool:
    return any(
        replica.leader is not None and replica.log.producers.first_undecided_offset is not None
        for replica in _replicas(machine)
    )


def has_prepared_transaction(machine: Machine) -> bool:
    """A transaction of a two-phase commit: it is open, and no time-out ends it."""
    return any(
        isinstance(partition.shard, TransactionShard)
        and any(each.two_phase and each.partitions and not each.prepared for each in partition.shard.transactions)
        for partition in _coordinated(machine)
    )


def rebalances(machine: Machine) -> bool:
    return any(
        isinstance(partition.shard, GroupShard)
        and any(group.state in _REBALANCING for group in partition.shard.state.classic.values())
        for partition in _coordinated(machine)
    )


# -- compaction -----------------------------------------------------------------------------------------------------


def compacts(machine: Machine) -> bool:
    return any("SimulatedProcesses" in work for work in machine.world.loop.at_work(machine.name))


def swaps(machine: Machine) -> bool:
    return bool(machine.disk_events.swaps)


Moment = Callable[["Machine"], bool]
STARTS: Final = "while it starts"
NO_CONTROLLER: Final = "while no controller is active"
STANDS: Final = "while it stands for election"
TRUNCATED: Final = "between a truncation and the next append"
CATCHES_UP: Final = "while a replica catches up"
ISR_CHANGES: Final = "while the ISR changes"
REASSIGNED: Final = "while a partition is reassigned"
VOTERS_CHANGE: Final = "while voters change"
LOADS: Final = "while a coordinator loads"

METADATA: Final[dict[str, Moment]] = {
    STARTS: is_starting,
    NO_CONTROLLER: has_no_controller,
    STANDS: stands_for_election,
    "between a metadata record's append and its commit": has_uncommitted_metadata,
    "while it downloads a metadata snapshot": downloads_snapshot,
    "while it writes a metadata snapshot": writes_snapshot,
}
VOTERS: Final[dict[str, Moment]] = {VOTERS_CHANGE: changes_voters}
REPLICATION: Final[dict[str, Moment]] = {
    "between append and replication": has_unreplicated,
    "between append and sync": has_unsynced,
    TRUNCATED: has_truncated,
    CATCHES_UP: catches_up,
    ISR_CHANGES: proposes_isr,
}
TOPIC: Final[dict[str, Moment]] = {REASSIGNED: is_reassigned}
COORDINATORS: Final[dict[str, Moment]] = {
    LOADS: loads_coordinator,
    "between a coordinator's append and its answer": owes_answers,
    "between a transaction's decision and its last marker": owes_markers,
    "while a transaction is open": has_open_transaction,
    "while a two-phase transaction is open": has_prepared_transaction,
    "while a group rebalances": rebalances,
    "while a log is compacted": compacts,
    "while compacted segments are swapped in": swaps,
}
