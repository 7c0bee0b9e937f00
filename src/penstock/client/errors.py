"""Errors between a client and a cluster, each with a one-line message that a person can act on.

An error code in a broker's answer to our own requests is a `KafkaError`; these are the others. The errors of `Producer`
and `Consumer`, which use librdkafka, are all subclasses of `ClientError`; `code` is Kafka's name for the error
(`MSG_SIZE_TOO_LARGE`, or with an underscore one of librdkafka's own, `_TRANSPORT`) if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.model.errors import ErrorCode, KafkaError

_CODES = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """The base class of the errors below."""

    code: str | None = None


@contextmanager
def noted_on(error: BaseException | None, failures: type[ClientError] = ClientError) -> Iterator[None]:
    """At the end of a `with` block: if the client cannot be closed after `error`, that is a note of the error."""
    try:
        yield
    except failures as failure:
        if error is None:
            raise
        error.add_note(str(failure))


class Unreachable(ClientError):
    """The connection failed or broke."""


class TimedOut(ClientError):
    """The connection is open, but no answer came in time."""


class UnsupportedApi(ClientError):
    """The broker does not serve this request in any version that this client supports."""


class BadResponse(ClientError):
    """The bytes are not a Kafka response; most likely the peer is not a Kafka broker."""


class BadSetting(ClientError):
    """The setting does not exist, or its value is invalid."""


class Closed(ClientError):
    """The client was closed, or belongs to the parent process of a fork: make a new one."""


class WrongThread(ClientError):
    """Two threads use one consumer at the same time: give each its own, in the same group."""


class UnknownTopic(ClientError):
    """The topic does not exist and the cluster does not create it automatically, or it has no such partition."""


class NotAuthorized(ClientError):
    """The cluster does not authorize this operation, or this user."""


class RecordTooLarge(ClientError):
    """Larger than `message.max.bytes` of the client or `max.message.bytes` of the topic."""


class QueueFull(ClientError):
    """The queue of records to send stayed full: the cluster is slower than the sender, or unavailable."""


class Fenced(ClientError):
    """A newer client uses this one's `transactional_id` or `group.instance.id`: only that one may continue."""


class TransactionAborted(ClientError):
    """The transaction could not be committed and has no effect. Repeat the work in a new one."""


class CommitFailed(ClientError):
    """The offsets were not committed: their partitions now belong to another member, which reads the records again."""


class OffsetOutOfRange(ClientError):
    """The log does not contain the start offset: choose another one with `seek`, or `start="earliest"`."""


class PollTooLate(ClientError):
    """More than `max.poll.interval.ms` passed between two reads, so the group removed this consumer.

    The next read joins again. Read fewer records at once, or raise the setting.
    """


class Unserializable(ClientError, ValueError):
    """The serializer cannot convert a key or a value to bytes; nothing was sent."""


class Undeserializable(ClientError, ValueError):
    """The deserializer cannot read a key or a value.

    The consumer keeps its position: `consumer.seek(error.topic, error.partition, error.offset + 1)` skips the record,
    and `on_error` makes the consumer do so automatically.
    """

    def __init__(self, text: str, topic: str, partition: int, offset: int, *, is_key: bool) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.is_key = is_key


class NotDelivered(ClientError):
    """The cluster did not acknowledge records.

    For a single record, `failures` is empty and the message describes it.
    """

    failures: Sequence[ClientError] = ()


def raise_for(code: int, message: str | None, about: str) -> None:
    """Raise a KafkaError if the code is an error, with the subject and the broker's message or the code's meaning."""
    if code:
        error = _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(error, f"{about}: {message or error.text}")
