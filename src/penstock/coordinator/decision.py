"""The types that pass between a pure coordinator and its runtime.

A coordinator shard owns one partition of an internal topic. Its handlers decide and have no side effects: each returns
replies, and the records that make those replies true. The laws of a `Decision`:

- Its records are appended as one atomic batch: all of them become true, or none.
- The runtime replays the records right after the append, in order, before it calls the shard again.
- Its replies are sent when the records are committed. A Decision without records waits until everything appended before
  it is committed: even a read may have seen uncommitted state.
- A token that gets no reply now waits. It gets exactly one reply, in a later Decision or from `resigned`.

Tokens (waiting requests) and deadlines (timers) are soft state: they may be lost at any time, and clients retry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias

from penstock.protocol.declaration import Message

# Identifies a request that waits for a reply. Opaque to the coordinator.
Token: TypeAlias = Hashable


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone."""

    key: Message
    value: Message | None


class Reply(NamedTuple):
    token: Token
    # A response, or what the runtime needs to make one: it knows what it has asked for.
    response: object


class Decision(NamedTuple):
    records: list[CoordinatorRecord]
    replies: list[Reply]


class Caller(NamedTuple):
    """The client that sends a request: the part of it that coordinators use."""

    client_id: str = ""
    client_host: str = ""
    api_version: int = 0
    # Whether the client may know of a topic of this name; None if it may know of all.
    may_describe: Callable[[str], bool] | None = None
