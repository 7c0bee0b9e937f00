"""The result of a handler: the records that would make its answer true, and the answer.

The records of one handler are appended as one batch: all of them take effect, or none. A handler never changes durable
state; replaying its records does. The answer is sent only when the records are committed.

A broker that joins or leaves may affect a hundred thousand partitions, and a batch of that size would block everything
else. Such handlers return `Unfinished`: the records so far are appended and replayed, and then the same operation is
called again, on the new image, until it returns a plain `Result`. Other requests may be served in between. So the
records that complete such an operation (a broker is fenced, is registered) come in the last batch, together with the
last of their preconditions, and a controller that dies half-way leaves a consistent state.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.protocol.declaration import Message

Response = TypeVar("Response")

# Partitions changed in one batch if their number is unlimited: some milliseconds of work.
MAX_CHANGES_PER_BATCH: Final = 300
# The limit for one request of a user. A request beyond it is refused as a whole.
MAX_RECORDS_PER_REQUEST: Final = 10_000


class Result(NamedTuple, Generic[Response]):
    records: list[Message]
    response: Response


class Unfinished(Result[Any]):
    """The operation must be called again once these records are replayed; there is no answer yet."""

    __slots__ = ()

    def __new__(cls, records: list[Message]) -> Unfinished:
        return super().__new__(cls, records, None)
