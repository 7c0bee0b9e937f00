"""What can go wrong between a client and a cluster, each as one line a person can act on.

Errors that a broker answers our own requests with are `KafkaError`s with Kafka's code; these are the others. Those of
`Producer` and `Consumer`, which stand on librdkafka, all descend from `ClientError`; `code` is Kafka's name for what
happened (`MSG_SIZE_TOO_LARGE`, or with an underscore one of librdkafka's own, `_TRANSPORT`) where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import ErrorCode, KafkaError

_CODES = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """The base of all below."""

    code: str | None = None


class Unreachable(ClientError):
    """No connection, or it broke."""


class TimedOut(ClientError):
    """Connected, but no answer in time."""


class UnsupportedApi(ClientError):
    """The broker does not serve this request in any version we speak."""


class BadResponse(ClientError):
    """Bytes that are no Kafka response; most likely the peer is not a Kafka broker."""


class BadSetting(ClientError):
    """A setting that does not exist, or a value it cannot have."""


class Closed(ClientError):
    """The client was closed, or belongs to the process that this one was forked from: make a new one."""


class WrongThread(ClientError):
    """Two threads use one consumer at the same time: give each its own, in the same group."""


class UnknownTopic(ClientError):
    """No such topic, and the cluster does not make one by itself, or no such partition of it."""


class NotAuthorized(ClientError):
    """The cluster does not let this user do this, or does not let this user in."""


class RecordTooLarge(ClientError):
    """Larger than `message.max.bytes` of the client or `max.message.bytes` of the topic."""


class QueueFull(ClientError):
    """Records wait to be sent, and no room came in time: the cluster is slower than the sender, or gone."""


class Fenced(ClientError):
    """A newer client took this one's `transactional_id` or `group.instance.id`: only that one may go on."""


class TransactionAborted(ClientError):
    """The transaction could not be committed; none of it counts. Do the work again in a new one."""


class CommitFailed(ClientError):
    """The offsets were not committed: their partitions belong to another member by now, which reads them again."""


class OffsetOutOfRange(ClientError):
    """The log does not hold the offset to start from: name another with `seek`, or `start="earliest"`."""


class PollTooLate(ClientError):
    """Longer than `max.poll.interval.ms` between two reads, so the group went on without this consumer.

    The next read joins again. Take fewer records at once, or raise the setting.
    """


class Unserializable(ClientError, ValueError):
    """A key or a value that its serializer cannot turn into bytes; nothing was sent."""


class Undeserializable(ClientError, ValueError):
    """A key or a value that its deserializer cannot read.

    The consumer stays where it is: `consumer.seek(error.topic, error.partition, error.offset + 1)` passes over the
    record, and `on_error` lets the consumer do so by itself.
    """

    def __init__(self, text: str, topic: str, partition: int, offset: int, *, is_key: bool) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.is_key = is_key


class NotDelivered(ClientError):
    """Records that the cluster did not acknowledge: with one record, `failures` is empty and the text is about it."""

    failures: Sequence[ClientError] = ()


def raise_for(code: int, message: str | None, about: str) -> None:
    """A KafkaError if the code is one: what it is about, then what the broker says, or else what the code means."""
    if code:
        error = _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(error, f"{about}: {message or error.text}")
