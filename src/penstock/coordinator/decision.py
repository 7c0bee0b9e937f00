"""What passes between a pure coordinator and its runtime.

A coordinator shard owns one partition of an internal topic. Its handlers decide and never do: each returns the records
that would make its answers true, and the answers. The laws of a `Decision`:

- Its records are appended as one atomic batch: all of them become true, or none.
- The records are replayed right after the append, in order, before the shard is asked anything else.
- Its replies leave when the records are committed, and a Decision without records when everything appended before it
  is: even a read may have seen what is not committed yet.
- A token that gets no reply now waits, and gets exactly one in a later Decision, or from `resigned`.

What waits (tokens) and what ticks (deadlines) is soft state: it may be lost at any time, and clients come back.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message

# Who waits for an answer: opaque to the coordinator.
Token: TypeAlias = Hashable


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone."""

    key: Message
    value: Message | None


class Reply(NamedTuple):
    token: Token
    # The runtime itself answers for the markers it writes: with no more than an ErrorCode.
    response: Message | ErrorCode


class Decision(NamedTuple):
    records: list[CoordinatorRecord]
    replies: list[Reply]


class Caller(NamedTuple):
    """Who asks, as far as a coordinator wants to know."""

    client_id: str = ""
    client_host: str = ""
    api_version: int = 0
