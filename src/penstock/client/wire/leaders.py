"""The leaders of partitions of some topics, each with a channel, and found again when they move.

A reader or writer of topics calls `leader_of` before each request, sends over `channel`, and takes events from `wait`.
Failures are events of `wait` too: they drop the channel, and the next step is to `refresh` and send again. The caller
decides how long to continue.

A cluster outlives the broker it was found through: every refresh adds the brokers in the metadata to the bootstrap
addresses, and an address that does not answer moves to the end of the list.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.client.errors import ClientError, Closed, TimedOut, UnknownTopic, Unreachable, raise_for
from penstock.client.wire.channel import Channel, ChannelResponse
from penstock.client.wire.closing import Closing
from penstock.client.wire.cluster import MOVING, Cluster
from penstock.client.wire.connection import DEFAULT_TIMEOUT_S
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid

Result = TypeVar("Result")

# Errors of a leader that fresh metadata and another attempt may cure.
STALE = MOVING | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}

# A topic created a moment ago is not known to every broker yet.
PROPAGATION_S = 2.0
_RETRY_S = 0.05


class Leader(NamedTuple):
    broker_id: int
    epoch: int


class Event(NamedTuple):
    """An event from a broker: answers, or the reason why there will be none."""

    broker_id: int
    answers: list[ChannelResponse]
    error: ClientError | None


@dataclass(slots=True)
class LedTopic:
    topic_id: Uuid = ZERO_UUID
    leaders: dict[int, Leader | None] = field(default_factory=dict)  # by partition; None: it has no leader now


class Leaders(Closing):
    def __init__(
        self, bootstrap: str, *, timeout: float = DEFAULT_TIMEOUT_S, options: Mapping[str, str] | None = None
    ) -> None:
        self.cluster = Cluster(bootstrap, timeout=timeout, options=options)
        self.topics: dict[str, LedTopic] = {}
        self.names: dict[Uuid, str] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._channels: dict[int, Channel] = {}

    def close(self) -> None:
        self.disconnect()
        self.cluster.close()

    def disconnect(self) -> None:
        """Close every channel, without waiting for answers."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def find(self, topics: Iterable[str], *, patience: float = PROPAGATION_S) -> None:
        """Query topics first; a missing topic is an error, after the seconds that a new one needs to propagate."""
        names = list(topics)
        deadline = time.monotonic() + patience
        while True:
            try:
                first_contact(self.cluster, lambda: self._ask(names))
                return
            except UnknownTopic:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    def refresh(self) -> str | None:
        """Query all topics again; return the reason if that failed."""
        try:
            self._ask(list(self.topics))
            return None
        except Closed:
            raise
        except (ClientError, KafkaError) as error:
            bootstrap = self.cluster.bootstrap
            bootstrap.append(bootstrap.pop(0))
            return str(error)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop these topics: they were deleted, or another topic has the name."""
        for name in topics:
            led = self.topics.pop(name, None)
            if led is not None:
                self.names.pop(led.topic_id, None)

    def leader_of(self, partition: TopicPartition) -> Leader | None:
        led = self.topics.get(partition.topic)
        return led.leaders.get(partition.partition) if led else None

    def channel(self, broker_id: int) -> Channel:
        """Return the open channel to a broker, or a new one; Unreachable or TimedOut if that fails."""
        channel = self._channels.get(broker_id)
        if channel is None:
            if broker_id not in self._addresses:
                raise Unreachable(f"broker {broker_id} is not alive")
            host, port = self._addresses[broker_id]
            channel = self._channels[broker_id] = Channel(
                host, port, timeout=self.cluster.timeout, login=self.cluster.login, tls=self.cluster.tls
            )
        return channel

    def drop(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def wait(self, seconds: float) -> list[Event]:
        """Return the first events, from any number of brokers; nothing after `seconds`.

        Records in the answers of a channel are valid until the next call.
        """
        watched = {channel.fileno(): broker_id for broker_id, channel in self._channels.items() if _busy(channel)}
        poller = select.poll()
        deadline = time.monotonic() + seconds
        for file, broker_id in watched.items():
            channel = self._channels[broker_id]
            poller.register(file, select.POLLIN | (select.POLLOUT if channel.has_outgoing else 0))
            deadline = min(deadline, channel.deadline() or deadline)
        events: list[Event] = []
        # What TLS has decrypted already does not wake the poller.
        decrypted = {file for file, broker_id in watched.items() if self._channels[broker_id].has_received}
        patience = 0.0 if decrypted else max(deadline - time.monotonic(), 0.0)
        for file in decrypted.union(file for file, _ in poller.poll(patience * 1000)):
            broker_id = watched.pop(file)
            try:
                channel = self._channels[broker_id]
                channel.flush()
                answers = channel.receive()
                if answers:
                    events.append(Event(broker_id, answers, None))
            except ClientError as error:
                events.append(self._failed(broker_id, error))
        for broker_id in watched.values():
            try:
                self._channels[broker_id].check_deadline()
            except TimedOut as error:
                events.append(self._failed(broker_id, error))
        return events

    def _failed(self, broker_id: int, error: ClientError) -> Event:
        self.drop(broker_id)
        return Event(broker_id, [], error)

    def _ask(self, names: list[str]) -> None:
        metadata = self.cluster.metadata(names)
        for broker in metadata.brokers:
            self._addresses[broker.node_id] = (broker.host, broker.port)
            if (broker.host, broker.port) not in self.cluster.bootstrap:
                self.cluster.bootstrap.append((broker.host, broker.port))
        for topic in metadata.topics:
            name = topic.name or ""
            if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopic(f"there is no topic {name!r}")
                raise_for(topic.error_code, None, f"topic {name!r}")
            led = self.topics.setdefault(name, LedTopic())
            if topic.topic_id not in (led.topic_id, ZERO_UUID) and led.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name!r} was deleted and created again")
            led.topic_id = topic.topic_id
            self.names[topic.topic_id] = name
            for found in topic.partitions:
                known = led.leaders.get(found.partition_index)
                if known is None or found.leader_epoch >= known.epoch:  # older: from a broker with stale metadata
                    led.leaders[found.partition_index] = (
                        Leader(found.leader_id, found.leader_epoch) if found.leader_id >= 0 else None
                    )


def first_contact(cluster: Cluster, attempt: Callable[[], Result]) -> Result:
    """Try each address once, since a broker may just have died; if none answers, waiting longer is no use."""
    for _ in cluster.bootstrap[1:]:
        try:
            return attempt()
        except (Unreachable, TimedOut):
            cluster.bootstrap.append(cluster.bootstrap.pop(0))
    return attempt()


def _busy(channel: Channel) -> bool:
    return channel.pending > 0 or channel.has_outgoing
