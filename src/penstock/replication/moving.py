"""Moves a replica to another log directory of its broker (KIP-113): the steps of the copy, and the phases of the move.

A replica that moves has two logs: the *current* log, which serves clients and followers, and the *future* log in the
other directory, a copy that follows it. Once the copy has caught up it replaces the current log.

Laws of the copy (`next_step`):

- The future log holds what the current log held at those offsets when it was copied. If the current log was cut
  meanwhile and continued differently, leader epochs show it, as between a leader and its follower (KIP-101).
- The steps terminate: applied to a current log that does not change, they lead to an identical future log.

Laws of the move (`Move`):

- A log is promoted only after the controller has acknowledged the new directory (KIP-858). So the directory in the
  metadata may be ahead of the replica for a moment; `cancel` then reports a failure of the old directory.
- A move that ends without a promotion, after the new directory was reported, reports the old one again.

Pure: positions and events come in, steps and actions come out.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from penstock.replication.epochs import UNDEFINED_OFFSET, LeaderEpochs


class Extent(NamedTuple):
    """The properties of a log that matter in a comparison."""

    start: int
    end: int
    epochs: LeaderEpochs


class StartOver(NamedTuple):
    """Nothing of the future log is usable: it restarts, empty, at `offset`."""

    offset: int


class Cut(NamedTuple):
    """The current log does not have these records from `offset` on."""

    offset: int


class AdvanceStart(NamedTuple):
    """Records below `offset` were deleted from the current log."""

    offset: int


class Copy(NamedTuple):
    """The next data to copy begins at `offset`."""

    offset: int


class CaughtUp(NamedTuple):
    """Both logs are the same."""


Step = StartOver | Cut | AdvanceStart | Copy | CaughtUp


def next_step(current: Extent, future: Extent) -> Step:
    """The first step that brings the future log closer to the current one."""
    if future.end < current.start or future.start > current.start:
        return StartOver(current.start)
    cut = max(min(_common_end(current, future), current.end), current.start)
    if cut < future.end:
        return Cut(cut)
    if future.start < current.start:
        return AdvanceStart(current.start)
    if future.end < current.end:
        return Copy(future.end)
    return CaughtUp()


def _common_end(current: Extent, future: Extent) -> int:
    """The offset up to which the future log can equal the current one, by the epochs that both know."""
    latest = future.epochs.latest
    if future.end == future.start or latest < 0:
        return future.end
    epoch, end = current.epochs.end_offset_for(latest, current.end)
    if end == UNDEFINED_OFFSET:
        # The current log has no epoch that late: the records of that epoch are gone from it.
        if not current.epochs.entries:
            return future.start
        _, end = future.epochs.end_offset_for(current.epochs.latest, future.end)
        return end
    own_epoch, own_end = future.epochs.end_offset_for(epoch, future.end)
    if own_end == UNDEFINED_OFFSET:
        return end
    return own_end if own_epoch != epoch else min(own_end, end)


class Phase(Enum):
    ASKED = "asked"
    """The future log is empty; copying starts once compaction leaves the current log alone."""
    COPYING = "copying"
    ASSIGNING = "assigning"
    """The copy has caught up, and its directory is being reported to the controller. Copying continues."""
    ASSIGNED = "assigned"
    """The controller has acknowledged. The future log is promoted as soon as it has caught up again."""
    SWAPPED = "swapped"
    """The future log is the current one. The removal of the old one is not durable yet."""
    GONE = "gone"
    CANCELLED = "cancelled"
    """The move was cancelled or redirected, the replica is deleted, or a disk failed. The current log stays."""


class Event(Enum):
    STARTED = "started"
    CAUGHT_UP = "caught up"
    ACKNOWLEDGED = "acknowledged"
    PROMOTED = "promoted"
    CLEARED = "cleared"
    CANCELLED = "cancelled"


class Action(Enum):
    ASSIGN_TARGET = "tell the controller of the future log's directory"
    ASSIGN_SOURCE = "tell the controller of the current log's directory"
    PROMOTE = "put the future log in the place of the current one"
    CLEAR = "make the removal of the old log durable"
    DISCARD = "delete the future log"


TRANSITIONS: Final[dict[tuple[Phase, Event], tuple[Phase, tuple[Action, ...]]]] = {
    (Phase.ASKED, Event.STARTED): (Phase.COPYING, ()),
    (Phase.COPYING, Event.CAUGHT_UP): (Phase.ASSIGNING, (Action.ASSIGN_TARGET,)),
    (Phase.ASSIGNING, Event.CAUGHT_UP): (Phase.ASSIGNING, ()),
    (Phase.ASSIGNING, Event.ACKNOWLEDGED): (Phase.ASSIGNED, ()),
    (Phase.ASSIGNED, Event.CAUGHT_UP): (Phase.ASSIGNED, (Action.PROMOTE,)),
    (Phase.ASSIGNED, Event.PROMOTED): (Phase.SWAPPED, (Action.CLEAR,)),
    (Phase.SWAPPED, Event.CLEARED): (Phase.GONE, ()),
    (Phase.ASKED, Event.CANCELLED): (Phase.CANCELLED, (Action.DISCARD,)),
    (Phase.COPYING, Event.CANCELLED): (Phase.CANCELLED, (Action.DISCARD,)),
    (Phase.ASSIGNING, Event.CANCELLED): (Phase.CANCELLED, (Action.DISCARD, Action.ASSIGN_SOURCE)),
    (Phase.ASSIGNED, Event.CANCELLED): (Phase.CANCELLED, (Action.DISCARD, Action.ASSIGN_SOURCE)),
    # The controller's answer may arrive after the cancellation.
    (Phase.CANCELLED, Event.ACKNOWLEDGED): (Phase.CANCELLED, ()),
}


class Move:
    """The phase of one move."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.ASKED

    @property
    def can_be_cancelled(self) -> bool:
        return (self.phase, Event.CANCELLED) in TRANSITIONS

    def on(self, event: Event) -> tuple[Action, ...]:
        """Process an event; returns the actions to carry out. KeyError if the event cannot occur in this phase."""
        self.phase, actions = TRANSITIONS[self.phase, event]
        return actions
