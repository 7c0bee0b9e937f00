"""What a handler returns: the records that would make its answer true, and the answer.

The records of one handler are appended as one batch: all of them become true, or none. A handler never changes
anything durable; replaying its records does. The answer leaves only when the records are committed.

A broker that comes or goes may take a hundred thousand partitions with it, and a batch of that size would hold up
everything else. Such handlers return `Unfinished`: the records so far are appended and replayed, and then the same
operation is called again, on the image as it is by then, until a plain `Result` comes. Others may be served in
between; so the records that make such an operation final (a broker is fenced, is registered) come in the last batch,
together with the last of what they require, and a controller that dies half-way leaves nothing that is wrong.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.protocol.declaration import Message

Response = TypeVar("Response")

# Partitions changed in one batch where there can be any number of them: some milliseconds of work.
MAX_CHANGES_PER_BATCH: Final = 300
# What one request of a user may ask for at once. It is refused as a whole beyond that.
MAX_RECORDS_PER_REQUEST: Final = 10_000


class Result(NamedTuple, Generic[Response]):
    records: list[Message]
    response: Response


class Unfinished(Result[Any]):
    """The operation is to be called again once these records are replayed; there is no answer yet."""

    __slots__ = ()

    def __new__(cls, records: list[Message]) -> Unfinished:
        return super().__new__(cls, records, None)
