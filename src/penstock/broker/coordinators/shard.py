"""The interface that the runtime expects of a pure coordinator shard, and the token that it passes in.

See `coordinator/decision.py` for the laws of the values that pass between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from penstock.coordinator.decision import Decision, Reply
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message

NO_PRODUCER: Final = -1


class Shard(Protocol):
    """The durable and the soft state of one partition of an internal topic."""

    @property
    def deadline(self) -> int | None:
        """When `tick` is due next, in milliseconds since the epoch; None: never."""
        ...

    def tick(self, now_ms: int) -> Decision: ...

    def loaded(self, now_ms: int) -> Decision: ...

    def resigned(self) -> Sequence[Reply]: ...


ShardT = TypeVar("ShardT", bound=Shard)


@dataclass(slots=True, eq=False)
class Waiting:
    """A token: a request that waits for its answer. It is answered once; `refusal` makes an error response."""

    answer: Callable[[Any], None]
    refusal: Callable[[ErrorCode], Any]

    def refuse(self, code: ErrorCode) -> None:
        self.answer(self.refusal(code))


# Replays a record into a shard: key, value, the id of the producer whose transaction it is part of, the timestamp, the
# offset in the log.
Replay = Callable[[ShardT, Message, Message | None, int, int, int], None]
# The shard, the producer's id and epoch, and whether its transaction was committed.
EndTransaction = Callable[[ShardT, int, int, bool], None]

# Replays a record from the bytes of its key and value; returns False for a kind of record that it does not handle.
BytesReplay = Callable[[bytes | None, bytes | None], bool]

# An operation on behalf of a token: the shard, the token, the time.
Operation = Callable[[ShardT, Waiting, int], Decision]
