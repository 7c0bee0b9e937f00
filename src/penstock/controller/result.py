"""What a handler returns: the records that would make its answer true, and the answer.

The records of one handler are appended as one batch: all of them become true, or none. A handler never changes
anything; replaying its records does. The answer leaves only when the records are committed.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from penstock.protocol.declaration import Message

Response = TypeVar("Response")


class Result(NamedTuple, Generic[Response]):
    records: list[Message]
    response: Response
