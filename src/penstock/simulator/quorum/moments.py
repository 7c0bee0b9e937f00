"""The critical moments of a node of a simulated quorum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.raft.roles import Candidate, Follower, Leader, Prospective
from penstock.simulator.quorum.node import SimulatedNode


def stands_for_election(node: SimulatedNode) -> bool:
    return node.raft is not None and isinstance(node.raft.role, Candidate | Prospective)


def leads(node: SimulatedNode) -> bool:
    return node.raft is not None and isinstance(node.raft.role, Leader)


def has_uncommitted(node: SimulatedNode) -> bool:
    return node.raft is not None and leads(node) and node.log.end_offset > node.raft.high_watermark


def has_unsynced(node: SimulatedNode) -> bool:
    return node.raft is not None and node.log.end_offset > node.disk.synced.end.offset


def downloads_snapshot(node: SimulatedNode) -> bool:
    return node.raft is not None and isinstance(node.raft.role, Follower) and node.raft.role.download is not None


def changes_voters(node: SimulatedNode) -> bool:
    return node.raft is not None and isinstance(node.raft.role, Leader) and node.raft.role.change is not None


MOMENTS: Final[dict[str, Callable[[SimulatedNode], bool]]] = {
    "while it stands for election": stands_for_election,
    "between append and commit": has_uncommitted,
    "between append and sync": has_unsynced,
    "while it downloads a snapshot": downloads_snapshot,
    "while voters change": changes_voters,
}
