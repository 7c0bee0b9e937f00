"""`Record` and `Batch`: the records that a consumer returns.

A record is a view of librdkafka's message: key and value are stored, everything else is read on demand. It is a tuple
because Python creates those fastest; a constructor, even an empty one, would cost as much as librdkafka's part of
reading it. A `Batch` goes further and creates its records one by one on demand.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from confluent_kafka import Message

from penstock.client.librdkafka.types import K, V
from penstock.serializers.base import HeaderPairs

KEY, VALUE = Message.key, Message.value

_CREATE_TIME = 1


class _Fields(NamedTuple):
    key: object
    value: object
    message: object


class Record(tuple[Any, ...], Generic[K, V]):
    """A null key or value is None, whatever K and V are: use `Consumer[str, Order | None]` if there may be nulls."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def key(self) -> K: ...
        @property
        def value(self) -> V: ...
        @property
        def message(self) -> Message: ...
    else:
        key, value, message = _Fields.key, _Fields.value, _Fields.message

    @staticmethod
    def of(
        topic: str,
        value: V,
        *,
        key: K = None,  # type: ignore[assignment]
        partition: int = 0,
        offset: int = 0,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Record[K, V]:
        """Make a record without a broker, for tests of code that takes one."""
        message = Message(
            topic=topic,
            partition=partition,
            offset=offset,
            headers=list(headers),
            timestamp=(_CREATE_TIME, timestamp),
        )
        return Record((key, value, message))

    @property
    def topic(self) -> str:
        return self.message.topic()  # type: ignore[return-value]  # of a message that was read it is never None

    @property
    def partition(self) -> int:
        return self.message.partition()  # type: ignore[return-value]

    @property
    def offset(self) -> int:
        return self.message.offset()  # type: ignore[return-value]

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970."""
        kind, timestamp = self.message.timestamp()
        return timestamp if kind else None

    @property
    def time(self) -> datetime.datetime | None:
        """The timestamp, in UTC."""
        timestamp = self.timestamp
        if timestamp is None:
            return None
        return datetime.datetime.fromtimestamp(timestamp / 1000, datetime.UTC)

    @property
    def headers(self) -> HeaderPairs:
        """The headers in order; a name may occur more than once."""
        return headers_of(self.message)

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """Return the last header of this name, which is the effective one."""
        for each, value in reversed(self.headers):
            if each == name:
                return value
        return default

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition}@{self.offset}, key={self.key!r}, value={self.value!r})"


def headers_of(message: Message) -> HeaderPairs:
    return message.headers() or []  # type: ignore[return-value]  # pairs, with bytes for values, is what is read


class Batch(Sequence[Record[K, V]]):
    """Records in processing order. `keys()` and `values()` are the fastest way to just those."""

    __slots__ = ("_keys", "_messages", "_values")

    def __init__(self, messages: list[Message], keys: list[K] | None = None, values: list[V] | None = None) -> None:
        """If `keys` or `values` is None, they are the messages' own bytes."""
        self._messages = messages
        self._keys = keys
        self._values = values

    def keys(self) -> list[K]:
        return list(map(KEY, self._messages)) if self._keys is None else self._keys  # type: ignore[arg-type]

    def values(self) -> list[V]:
        return list(map(VALUE, self._messages)) if self._values is None else self._values  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Record[K, V]]:
        messages = self._messages
        keys: Any = map(KEY, messages) if self._keys is None else self._keys
        values: Any = map(VALUE, messages) if self._values is None else self._values
        return map(Record, zip(keys, values, messages))  # noqa: B905  # strict costs, and these are as long as each other

    @overload
    def __getitem__(self, index: int) -> Record[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> Batch[K, V]: ...
    def __getitem__(self, index: int | slice) -> Record[K, V] | Batch[K, V]:
        if isinstance(index, slice):
            return Batch(
                self._messages[index],
                None if self._keys is None else self._keys[index],
                None if self._values is None else self._values[index],
            )
        message = self._messages[index]
        key = message.key() if self._keys is None else self._keys[index]
        value = message.value() if self._values is None else self._values[index]
        return Record((key, value, message))

    def __repr__(self) -> str:
        return f"Batch({list(self)!r})"
