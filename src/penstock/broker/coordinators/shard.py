"""What the runtime wants of a pure coordinator shard, and what it hands it as a token.

See `coordinator/decision.py` for the laws of what passes between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from penstock.coordinator.decision import Decision, Reply
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message

NO_PRODUCER: Final = -1


class Shard(Protocol):
    """The durable and the soft state of one partition of an internal topic."""

    @property
    def deadline(self) -> int | None:
        """When `tick` is due next, in milliseconds of the day; None: never."""
        ...

    def tick(self, now_ms: int) -> Decision: ...

    def loaded(self, now_ms: int) -> Decision: ...

    def resigned(self) -> Sequence[Reply]: ...


ShardT = TypeVar("ShardT", bound=Shard)


class Waiting:
    """A token: somebody who waits for an answer. It is answered once; `refusal` makes the answer that says why not."""

    __slots__ = ("answer", "refusal")

    def __init__(self, answer: Callable[[Any], None], refusal: Callable[[ErrorCode], Any]) -> None:
        self.answer = answer
        self.refusal = refusal

    def refuse(self, code: ErrorCode) -> None:
        self.answer(self.refusal(code))


# How records change a shard: key and value, the id of the producer whose transaction it is part of, the record's time.
Replay = Callable[[ShardT, Message, Message | None, int, int], None]
# The shard, the producer's id and epoch, and whether its transaction was committed.
EndTransaction = Callable[[ShardT, int, int, bool], None]

# A record's key and value as they lie in the log, replayed; false if it is not of a kind that this can.
BytesReplay = Callable[[bytes | None, bytes | None], bool]

# What is done in the name of somebody: the shard, the token, the time.
Operation = Callable[[ShardT, Waiting, int], Decision]
