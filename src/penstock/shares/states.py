"""The states of a record in a share group, and what is persisted of them.

            acquire                       accept
    AVAILABLE -----> ACQUIRED ---------------------------------> ACKNOWLEDGED
        ^               |
        |               |  reject, gap; or at the delivery limit
        +---------------+---------------------------------------> ARCHIVED
          release,      |                                            ^
          lock ended,   |  reject, or at the delivery limit,         | written to the
          session ended |  if the group has a dead letter queue      | dead letter queue
                        +-----------------------------------> ARCHIVING

ACQUIRED is never persisted: after a change of leader the record is available again, with the delivery count that was
persisted last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole batches are acquired, even if that is more than the client asked for."""
    RECORD_LIMIT = 1


class Reason(Enum):
    """Why a record goes to the dead letter queue."""

    REJECTED = "rejected"
    DELIVERY_COUNT = "delivery count"


class Outcome(Enum):
    """How a delivery ended."""

    ACCEPTED = "accepted"
    RELEASED = "released"
    """By its member, or with the member's session."""
    REJECTED = "rejected"
    TIMED_OUT = "lock_timeout"
    EXHAUSTED = "delivery_limit"
    """It was released, or its lock ended, and it was the last attempt: the record is not delivered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """The settings of a group."""

    record_lock_duration_ms: int
    delivery_count_limit: int
    max_record_locks: int
    renew_enabled: bool = True
    has_dead_letter_queue: bool = False


class Span(NamedTuple):
    """Offsets, including the last."""

    first: int
    last: int


class AcquiredRange(NamedTuple):
    first: int
    last: int
    delivery_count: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class StateBatch(NamedTuple):
    """The state of a range of records, as the share coordinator keeps it."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class Acknowledgement(NamedTuple):
    """What a member says about a range: one type for all offsets, or one for each."""

    first: int
    last: int
    types: tuple[AcknowledgeType, ...]


class Tally(NamedTuple):
    """Records that are not final, for metrics."""

    acquired: int
    last_attempts: int
    """Records whose delivery, under way or next, is the last that the limit allows."""


class DeadLetter(NamedTuple):
    """Records to copy to the dead letter queue; `SharePartition.dead_lettered` is called when that is done."""

    first: int
    last: int
    delivery_count: int
    reason: Reason


@dataclass(slots=True, eq=False)
class Transition:
    """Changes of state that are being persisted."""

    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """What the share coordinator must persist. Writes of one share partition are persisted in their order."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    transition: Transition
    is_firm: bool = False
    """The states have changed, whether the write succeeds or not: it is repeated until it does."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """To be copied once the write is done."""
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    """How many deliveries it ends, for metrics."""
