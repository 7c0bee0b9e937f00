"""Deliveries: the outcome of sending a record.

librdkafka sends in its own threads, and reports outcomes to the thread that polls it. A producer polls while it sends
and flushes; waiting for a `Delivery` polls as well. So a million deliveries cost no thread, no lock and no event: one
small object each.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confluent_kafka import KafkaError, Message

from penstock.client.errors import ClientError, TimedOut
from penstock.client.librdkafka.library import client_error

if TYPE_CHECKING:
    import asyncio

_POLL_S = 0.1


class Sent(NamedTuple):
    """The position of a record in its log."""

    topic: str
    partition: int
    offset: int | None
    """None with acks=0: the broker does not report it."""
    timestamp: int | None
    """Milliseconds since 1970: the record's, or on a topic with LogAppendTime the broker's."""


class DeliveringProducer(Protocol):
    """The interface of a producer for its deliveries."""

    def serve(self, seconds: float) -> None: ...
    def delivery_failed(self, delivery: Delivery, error: ClientError) -> None: ...
    def failure_seen(self, delivery: Delivery) -> None: ...


class _Failed(NamedTuple):
    producer: DeliveringProducer
    error: ClientError


class Delivery:
    """`result()` waits and returns a `Sent`, or raises the failure.

    A producer makes one for every record, so it is as small as possible: no constructor, and one slot, which holds the
    producer until the outcome is known and then the outcome. It is also librdkafka's callback.
    """

    __slots__ = ("state",)

    state: DeliveringProducer | Message | _Failed

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Take librdkafka's report; called while a thread polls."""
        if error is None:
            self.state = message
        else:
            about = f"{message.topic()}-{message.partition()}, record with key {message.key()!r:.60}"
            self.fail(client_error(error, about))

    def fail(self, error: ClientError) -> None:
        assert not isinstance(self.state, (Message, _Failed))
        producer = self.state
        self.state = _Failed(producer, error)
        producer.delivery_failed(self, error)

    def done(self) -> bool:
        return isinstance(self.state, (Message, _Failed))

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """Wait, then return the failure or None. `flush` and `close` do not raise a failure that was checked here."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not isinstance(self.state, (Message, _Failed)):
            left = _POLL_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"no acknowledgement within {timeout:g} s; the record is still being sent")
            self.state.serve(min(left, _POLL_S))
        if isinstance(self.state, Message):
            return None
        self.state.producer.failure_seen(self)
        return self.state.error

    def result(self, timeout: float | None = None) -> Sent:
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        assert isinstance(self.state, Message)
        return _sent(self.state)


def _sent(message: Message) -> Sent:
    offset = message.offset()
    _, timestamp = message.timestamp()
    return Sent(
        str(message.topic()),
        int(message.partition() or 0),
        None if offset is None or offset < 0 else offset,
        timestamp if timestamp >= 0 else None,
    )


class AsyncDelivery(Delivery):
    """A delivery to await: `sent = await delivery`. `result()` is only for one that is done."""

    __slots__ = ("_waiting", "loop")

    loop: asyncio.AbstractEventLoop
    _waiting: asyncio.Future[None]

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        super().__call__(error, message)
        self._wake()

    def fail(self, error: ClientError) -> None:
        super().fail(error)
        self._wake()

    def _wake(self) -> None:
        # Reports come from the loop's thread, and from another one while a transaction ends.
        if hasattr(self, "_waiting"):
            self.loop.call_soon_threadsafe(_finish, self._waiting)

    def exception(self, timeout: float | None = None) -> ClientError | None:
        if not self.done():
            raise TimedOut("not known yet: await the delivery")
        return super().exception()

    def __await__(self) -> Generator[object, None, Sent]:
        while not self.done():
            if not hasattr(self, "_waiting") or self._waiting.done():
                self._waiting = self.loop.create_future()
                if self.done():
                    break
            yield from _shielded(self._waiting)
        return self.result()


def _shielded(future: asyncio.Future[None]) -> Generator[object, None, None]:
    """Await a future; a caller that stops waiting leaves it to the other waiters."""
    import asyncio

    yield from asyncio.shield(future).__await__()


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
