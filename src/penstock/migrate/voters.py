"""Plans the change of the metadata quorum: voters leave and arrive one at a time.

A new voter is added before an old one is removed, so the quorum is never smaller than it was, and it is odd again after
every pair of changes, if it was. The leader is removed last. A voter that is to be added must have caught up: a quorum
that waits for an empty voter cannot commit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from penstock.migrate.plan import CannotMove
from penstock.migrate.state import Quorum, Voter

# The log grows while it is looked at: a follower that is so close reaches its end at once.
LAG_MAX: Final = 100


class Change(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class VoterStep:
    change: Change
    voter: Voter


def next_step(quorum: Quorum, leaving: Collection[int], arriving: Collection[int]) -> VoterStep | None:
    """The next change, or None if the voters are as wanted."""
    voters = {voter.node_id: voter for voter in quorum.voters}
    observers = {observer.node_id: observer for observer in quorum.observers}
    wanted = [each for each in sorted(set(arriving)) if each not in voters]
    to_leave = sorted(set(leaving) & set(voters), key=lambda each: (each == quorum.leader_id, each))
    unknown = [each for each in wanted if each not in observers]
    if unknown:
        raise CannotMove(f"controller {unknown[0]} does not follow the quorum: start it first")
    if to_leave and len(to_leave) == len(voters) and not wanted:
        raise CannotMove("all voters would leave: name the controllers that stay")
    has_arrived = bool(set(voters) & set(arriving))
    if wanted and (not to_leave or not has_arrived or len(voters) % 2):
        voter = observers[wanted[0]]
        is_behind = quorum.high_watermark - voter.log_end_offset > LAG_MAX
        return VoterStep(Change.WAIT if is_behind else Change.ADD, voter)
    if to_leave:
        return VoterStep(Change.REMOVE, voters[to_leave[0]])
    return None


def after(quorum: Quorum, step: VoterStep) -> Quorum:
    """The quorum as it is when the step is done."""
    voter = step.voter
    others = tuple(each for each in quorum.voters if each.node_id != voter.node_id)
    if step.change is Change.REMOVE:
        return replace(quorum, voters=others, observers=(*quorum.observers, voter))
    observers = tuple(each for each in quorum.observers if each.node_id != voter.node_id)
    return replace(quorum, voters=(*others, voter), observers=observers)
