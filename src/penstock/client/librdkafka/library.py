"""The interface to librdkafka: its settings, its log, and its errors converted to ours.

Its log lines and the errors of single brokers (a connection refused, a broker down), from which it recovers by itself,
go to the logger `penstock.librdkafka`; the last of them is part of the error when a wait fails. An error that ends an
operation becomes one of `errors`, with advice.
"""

from __future__ import annotations

import atexit
import difflib
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from penstock.client import errors
from penstock.client.access import open_access
from penstock.client.librdkafka import properties
from penstock.client.librdkafka.security import settings_of, with_librdkafka_names
from penstock.client.wire.cluster import parse_bootstrap

logger = logging.getLogger("penstock.librdkafka")

_CLASSES: dict[int, tuple[type[errors.ClientError], str]] = {
    KafkaError._ALL_BROKERS_DOWN: (errors.Unreachable, "is the address right, and a broker up?"),
    KafkaError._TRANSPORT: (errors.Unreachable, "is the address right, and a broker up?"),
    KafkaError._RESOLVE: (errors.Unreachable, "is the address right?"),
    KafkaError._AUTHENTICATION: (errors.NotAuthorized, "check sasl.username and sasl.password"),
    KafkaError._SSL: (errors.NotAuthorized, "check the ssl.* settings"),
    KafkaError.SASL_AUTHENTICATION_FAILED: (errors.NotAuthorized, "check sasl.username and sasl.password"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (errors.NotAuthorized, "the user needs an ACL for the topic"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (errors.NotAuthorized, "the user needs an ACL for the group"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (errors.NotAuthorized, "the user needs an ACL for the cluster"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (errors.NotAuthorized, "the user needs an ACL for the id"),
    KafkaError._TIMED_OUT: (errors.TimedOut, "the cluster did not do it in time"),
    KafkaError._MSG_TIMED_OUT: (errors.TimedOut, "no leader took it within delivery.timeout.ms"),
    KafkaError.REQUEST_TIMED_OUT: (errors.TimedOut, "the cluster did not do it in time"),
    KafkaError._UNKNOWN_TOPIC: (errors.UnknownTopic, "create it: penstock topics create"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (errors.UnknownTopic, "create it: penstock topics create"),
    KafkaError._UNKNOWN_PARTITION: (errors.UnknownTopic, "partitions count from 0"),
    KafkaError.TOPIC_EXCEPTION: (errors.UnknownTopic, "topic names are letters, digits, dots, - and _"),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        errors.RecordTooLarge,
        "raise message.max.bytes, and max.message.bytes of the topic",
    ),
    KafkaError._FENCED: (errors.Fenced, "a newer client took its place; this one is finished"),
    KafkaError.PRODUCER_FENCED: (errors.Fenced, "a newer client took its place; this one is finished"),
    KafkaError.INVALID_PRODUCER_EPOCH: (errors.Fenced, "a newer client took its place; this one is finished"),
    KafkaError.FENCED_INSTANCE_ID: (errors.Fenced, "a newer client took its place; this one is finished"),
    KafkaError.ILLEGAL_GENERATION: (errors.CommitFailed, "another member reads its partitions now"),
    KafkaError.UNKNOWN_MEMBER_ID: (errors.CommitFailed, "another member reads its partitions now"),
    KafkaError.REBALANCE_IN_PROGRESS: (errors.CommitFailed, "the group is rebalancing; read on, and commit then"),
    KafkaError.STALE_MEMBER_EPOCH: (errors.CommitFailed, "another member reads its partitions now"),
    KafkaError._ASSIGNMENT_LOST: (errors.CommitFailed, "another member reads its partitions now"),
    KafkaError._AUTO_OFFSET_RESET: (errors.OffsetOutOfRange, 'seek, or start="earliest"'),
    KafkaError.OFFSET_OUT_OF_RANGE: (errors.OffsetOutOfRange, 'seek, or start="earliest"'),
    KafkaError._MAX_POLL_EXCEEDED: (errors.PollTooLate, "take fewer records at once, or raise max.poll.interval.ms"),
}


def client_error(error: KafkaError | KafkaException, about: str) -> errors.ClientError:
    """Convert an error: the subject, librdkafka's message, and advice."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    kind, advice = _CLASSES.get(cause.code(), (errors.ClientError, ""))
    text = f"{about}: {cause.str()}"
    raised = kind(f"{text} ({advice})" if advice else text)
    raised.code = cause.name()
    return raised


class Trouble:
    """The last error of a broker, to report when an operation gets no answer."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        self.last = error
        logger.warning("%s", error.str())

    def unreachable(self, seconds: float) -> errors.Unreachable:
        cause = f" ({self.last.str()})" if self.last is not None else ""
        return errors.Unreachable(
            f"no broker of {self.bootstrap} answers{cause}; waited {seconds:g} s. Is the address right, a broker up?"
        )


@contextmanager
def asking(about: str) -> Iterator[None]:
    """Convert exceptions of librdkafka in the block to `errors`."""
    try:
        yield
    except KafkaException as error:
        raise client_error(error, about) from error


def ask_partitions(client: Any, topic: str, seconds: float, trouble: Trouble) -> tuple[int, KafkaError | None]:
    """Return the number of partitions of a topic, or the error. Unreachable if no broker answers."""
    try:
        metadata = client.list_topics(topic, timeout=seconds).topics[topic]
    except KafkaException as error:
        if error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            try:
                client.poll(0)  # to get the connection's error
            except KafkaException as failure:
                trouble(failure.args[0])
            raise trouble.unreachable(seconds) from error
        raise client_error(error, f"topic {topic!r}") from error
    return len(metadata.partitions), metadata.error


def checked(settings: Mapping[str, Any], *, producer: bool) -> dict[str, Any]:
    """Return the settings, by librdkafka's names, if all of them apply to this client.

    A name that is not in our list is left to librdkafka, which may be newer than the list.
    """
    mine, other = properties.PRODUCER_ONLY, properties.CONSUMER_ONLY
    if not producer:
        mine, other = other, mine
    for name in settings:
        if name in other and name not in mine:
            who = "consumer" if producer else "producer"
            raise errors.BadSetting(f"{name} is a setting of a {who}, and would be ignored here")
    return with_librdkafka_names(settings)


def create(make: Callable[[dict[str, Any]], Any], bootstrap: str, settings: Mapping[str, Any], trouble: Trouble) -> Any:
    """Create a confluent-kafka client; a refused setting is a BadSetting that names the closest known setting."""
    access = open_access(bootstrap)
    parse_bootstrap(access.bootstrap)
    given = {
        "bootstrap.servers": access.bootstrap,
        "client.id": "penstock",
        "error_cb": trouble,
        "logger": logger,
        **settings_of(access),
        **settings,
    }
    try:
        return make(given)
    except (KafkaException, ValueError, TypeError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        unknown = [name for name in settings if f'"{name}"' in text and text.startswith("No such configuration")]
        for name in unknown:
            names = properties.BOTH | properties.PRODUCER_ONLY | properties.CONSUMER_ONLY
            close = difflib.get_close_matches(name.replace("_", "."), names, 1, 0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise errors.BadSetting(f"librdkafka has no setting {name!r}{hint}") from error
        raise errors.BadSetting(text) from error


class Client(Protocol):
    def _forked(self) -> None: ...
    def _at_exit(self) -> None: ...


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def watch(client: Client) -> None:
    """Notify `client` in the child of a fork, where librdkafka's threads do not exist, and when Python exits."""
    _clients.add(client)


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()
    _clients.clear()


def _at_exit() -> None:
    for client in list(_clients):
        client._at_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
