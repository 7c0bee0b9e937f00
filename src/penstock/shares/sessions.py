"""Share sessions: which partitions a member fetches from this broker, and the order of its requests.

A member opens a session with epoch 0 and then counts its requests, so that none is lost or repeated unnoticed; epoch -1
closes it. Later requests name only the partitions that were added or that they acknowledge, and those to forget. A
session lives as long as its connection: when that is lost, the caller releases what the member has acquired.

The number of sessions of a broker is limited (`group.share.max.share.sessions`). Errors are raised as KafkaError:
INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED.

Pure: a connection is any object with an identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFFFFFF


class PartitionKey(NamedTuple):
    topic_id: Uuid
    partition: int


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    key: SessionKey
    connection: object
    epoch: int = 1
    """That of the next request."""
    partitions: dict[PartitionKey, bool] = field(default_factory=dict)
    """In the order in which they are served; the value says whether the next response must contain the partition."""

    def update(self, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]) -> None:
        for key in added:
            self.partitions.setdefault(key, True)
        for key in forgotten:
            self.partitions.pop(key, None)

    def has_news(self, key: PartitionKey, *, has_records: bool, has_error: bool) -> bool:
        """Whether a response must contain the partition; remembers the response."""
        must = self.partitions.get(key, True) or has_records or has_error
        if key in self.partitions:
            # An error is followed by a response without one.
            self.partitions[key] = has_error
            if has_records:
                self.partitions[key] = self.partitions.pop(key)  # so that a limit starves no partition
        return must


@owned_by_loop()
class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        wanted: Sequence[PartitionKey],
        forgotten: Sequence[PartitionKey],
        *,
        has_acknowledgements: bool,
        connection: object,
        limit: int,
    ) -> ShareSession:
        """The session of a ShareFetch request, opened or updated by it. At FINAL_EPOCH the caller closes it."""
        if epoch == FINAL_EPOCH:
            return self._existing(key)
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that opens a session cannot acknowledge records")
            return self._open(key, wanted, connection, limit)
        session = self._next(key, epoch)
        session.update(wanted, forgotten)
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a ShareAcknowledge request."""
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return self._existing(key) if epoch == FINAL_EPOCH else self._next(key, epoch)

    def close(self, session: ShareSession) -> None:
        if self._sessions.get(session.key) is not session:
            return
        del self._sessions[session.key]
        of_connection = self._by_connection[session.connection]
        del of_connection[session.key]
        if not of_connection:
            del self._by_connection[session.connection]

    def disconnected(self, connection: object) -> list[ShareSession]:
        """Close the sessions of a connection that was lost."""
        closed = [self._sessions[key] for key in self._by_connection.get(connection, ())]
        for session in closed:
            self.close(session)
        return closed

    def _existing(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _next(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._existing(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the next epoch is {session.epoch}, not {epoch}")
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def _open(self, key: SessionKey, wanted: Sequence[PartitionKey], connection: object, limit: int) -> ShareSession:
        former = self._sessions.get(key)
        if former is not None:
            self.close(former)  # the member keeps the records that it has acquired
        if len(self._sessions) >= limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(key, connection)
        session.update(wanted, ())
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = None
        return session
