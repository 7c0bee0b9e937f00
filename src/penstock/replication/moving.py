"""Moving a replica to another log directory of its broker (KIP-113): what the copy lacks, and how far the move is.

While a replica moves it has two logs: the *current* one, which serves clients and followers, and the *future* one in
the other directory, a copy that follows it. Once the copy has caught up it takes the place of the current log.

Laws of the copy (`next_step`):

- What the future log holds is what the current log held at those offsets when it was copied. Where the current log was
  cut meanwhile and went on differently, leader epochs tell, as between a leader and its follower (KIP-101).
- Steps come to an end: applied to a current log that does not change, they lead to a future log that is the same.

Laws of the move (`Move`):

- A log is promoted only after the controller has acknowledged the new directory (KIP-858): the directory the metadata
  names may be ahead of the replica for a moment, and the failure of the old one is then told by `cancel`.
- A move that ends without a promotion after the controller was told of the new directory tells it of the old one again.

Pure: positions and events come in, steps and actions come out.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from penstock.replication.epochs import UNDEFINED_OFFSET, LeaderEpochs


class Extent(NamedTuple):
    """What of a log matters to whoever compares two."""

    start: int
    end: int
    epochs: LeaderEpochs


class StartOver(NamedTuple):
    """Nothing of the future log is of use: it begins anew, empty, at `offset`."""

    offset: int


class Cut(NamedTuple):
    """The current log has no such records from `offset` on."""

    offset: int


class AdvanceStart(NamedTuple):
    """Records below `offset` were deleted from the current log."""

    offset: int


class Copy(NamedTuple):
    """What comes next begins at `offset`."""

    offset: int


class CaughtUp(NamedTuple):
    """Both logs are the same."""


Step = StartOver | Cut | AdvanceStart | Copy | CaughtUp


def next_step(current: Extent, future: Extent) -> Step:
    """What the future log needs first, to become what the current one is."""
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
    """Up to where the future log can be the same as the current one, by the epochs that both know."""
    latest = future.epochs.latest
    if future.end == future.start or latest < 0:
        return future.end
    epoch, end = current.epochs.end_offset_for(latest, current.end)
    if end == UNDEFINED_OFFSET:
        # The current log knows no epoch as late: what was written under it is gone from there.
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
    """The future log is empty; nothing is copied before compaction leaves the current log alone."""
    COPYING = "copying"
    ASSIGNING = "assigning"
    """The copy has caught up, and the controller is being told of its directory. Copying goes on."""
    ASSIGNED = "assigned"
    """The controller knows. The future log is promoted as soon as it has caught up again."""
    SWAPPED = "swapped"
    """The future log is the current one. That the old one is out of the way is not durable yet."""
    GONE = "gone"
    CANCELLED = "cancelled"
    """Somebody wants it otherwise, the replica is deleted, or a disk failed. The current log stays."""


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
    # The controller's answer may come when nobody waits for it any more.
    (Phase.CANCELLED, Event.ACKNOWLEDGED): (Phase.CANCELLED, ()),
}


class Move:
    """How far one move is."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.ASKED

    @property
    def can_be_cancelled(self) -> bool:
        return (self.phase, Event.CANCELLED) in TRANSITIONS

    def on(self, event: Event) -> tuple[Action, ...]:
        """What is to be done now. KeyError for what cannot happen in this phase."""
        self.phase, actions = TRANSITIONS[self.phase, event]
        return actions
