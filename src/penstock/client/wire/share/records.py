"""`ShareRecord`: a record that a member of a share group has acquired."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from penstock.client.wire.share.acknowledgements import Place
from penstock.model.ids import ZERO_UUID

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRecord(Generic[K, V]):
    """A null key or value is None, whatever K and V are."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: Sequence[tuple[str | bytes, bytes | None]] = ()
    # How often the record was delivered, including this time.
    delivery_count: int = 1
    topic_id: bytes = ZERO_UUID

    @property
    def place(self) -> Place:
        return Place(self.topic_id, self.partition)

    @property
    def time(self) -> datetime.datetime:
        """The timestamp, in UTC."""
        return datetime.datetime.fromtimestamp(self.timestamp / 1000, datetime.UTC)

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """Return the last header of this name, which is the effective one."""
        return next((value for each, value in reversed(self.headers) if each == name), default)

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition}@{self.offset}"
        return f"ShareRecord({where}, key={self.key!r}, value={self.value!r}, delivery_count={self.delivery_count})"
