"""A cluster from a client's view: found through any bootstrap address, then addressed broker by broker.

Connections are opened on demand and kept while the broker keeps them. Leaders and coordinators are queried anew each
time they matter, and requests to a leader or a coordinator are repeated, with fresh metadata, while it is moving; this
is for administration, where correctness matters more than a round trip.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TypeVar

from penstock.client.access import open_access
from penstock.client.errors import ClientError, Closed, NotAuthorized, TimedOut, Unreachable, raise_for
from penstock.client.wire.closing import Closing
from penstock.client.wire.connection import DEFAULT_TIMEOUT_S, Connection
from penstock.client.wire.login import login_from, tls_from
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")

DEFAULT_PORT = 9092
_RETRY_S = 0.05

# Transient errors: an election, a move, metadata that has not arrived everywhere yet.
MOVING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
_MANY_COORDINATORS_SINCE = 4


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Parse `HOST:PORT,HOST:PORT`; the default port is 9092, an IPv6 address is in brackets."""
    addresses: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = entry.rpartition(":")
        if not separator or entry.endswith("]"):
            host, port = entry, str(DEFAULT_PORT)
        host = host.rpartition("://")[2].strip("[]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ClientError(f"{entry!r} is not a HOST:PORT")
        addresses.append((host, int(port)))
    if not addresses:
        raise ClientError("no bootstrap server is given")
    return addresses


class Cluster(Closing):
    def __init__(
        self, bootstrap: str, *, timeout: float = DEFAULT_TIMEOUT_S, options: Mapping[str, str] | None = None
    ) -> None:
        """`bootstrap` may refer to settings (see `client.access`), which `options`, by Kafka's names, override."""
        access = open_access(bootstrap, options)
        self.bootstrap = parse_bootstrap(access.bootstrap)
        self.timeout = timeout
        self.tls = tls_from(access.properties)
        self.login = login_from(access.properties)
        self._any: Connection | None = None
        self._brokers: dict[int, Connection] = {}

    def close(self) -> None:
        for connection in [*self._brokers.values(), *([self._any] if self._any else [])]:
            connection.close()
        self._brokers.clear()
        self._any = None

    def request(self, message: Message, response: type[Response], *, timeout: float | None = None) -> Response:
        """Send a request to any broker. Brokers forward requests for the controller, so this works for changes, too."""
        connection = self._somewhere()
        try:
            return connection.request(message, response, timeout=timeout)
        except (Unreachable, TimedOut):
            self._any = None
            raise

    def request_broker(
        self,
        broker_id: int,
        message: Message,
        response: type[Response],
        *,
        newest: int | None = None,
        draft: int | None = None,
    ) -> Response:
        """Send to this broker.

        With `newest`, in no later version than that; with `draft`, in a version that is not stable.
        """
        connection = self._broker(broker_id)
        try:
            return connection.request(message, response, newest=newest, draft=draft)
        except (Unreachable, TimedOut):
            del self._brokers[broker_id]
            raise

    def supports(self, key: ApiKey, broker_id: int | None = None) -> bool:
        return self._connection(broker_id).supports(key)

    def version(self, key: ApiKey, broker_id: int | None = None) -> int:
        """The version that a request is sent in; for requests whose fields differ between versions."""
        return self._connection(broker_id).version(key)

    def served(self, key: ApiKey, broker_id: int | None = None) -> int:
        """The newest version that a broker supports, stable or not."""
        return self._connection(broker_id).served(key)

    def broker_ids(self) -> list[int]:
        """The ids of the live brokers.

        Metadata may still list a broker that has just left, because clients look for it there.
        """
        if not self.supports(ApiKey.DESCRIBE_CLUSTER):
            return sorted(broker.node_id for broker in self.metadata([]).brokers)
        described = self.request(DescribeClusterRequest(), DescribeClusterResponse)
        raise_for(described.error_code, described.error_message, "cannot describe the cluster")
        return sorted(broker.broker_id for broker in described.brokers)

    def metadata(self, topics: Iterable[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """Return metadata of the named topics, of all (None), or of the brokers alone (no names).

        With `create`, missing topics are created if the cluster does that (auto.create.topics.enable).
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if wanted is None and self.version(ApiKey.METADATA) == 0:
            wanted = []  # "all topics" in version 0
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        return self.request(request, MetadataResponse)

    def topics(self, names: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        """Return metadata of topics by name; KafkaError for a topic that does not exist."""
        topics = sorted(self.metadata(names).topics, key=lambda topic: topic.name or "")
        for topic in topics:
            if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                raise_for(topic.error_code, None, f"topic {topic.name!r}")
        return topics

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return partitions by their leader. KafkaError for a partition that has no leader or does not exist."""
        wanted = sorted(set(partitions))
        leader_of: dict[TopicPartition, int] = {}
        for topic in self.topics(sorted({partition.topic for partition in wanted})):
            for found in topic.partitions:
                leader_of[TopicPartition(topic.name or "", found.partition_index)] = found.leader_id
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            if partition not in leader_of:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
            if leader_of[partition] < 0:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
            by_leader.setdefault(leader_of[partition], []).append(partition)
        return by_leader

    def coordinators(self, kind: CoordinatorType, keys: Iterable[str]) -> dict[int, list[str]]:
        """Return groups or transactional ids by their coordinator; KafkaError if there is none now."""
        by_coordinator: dict[int, list[str]] = {}
        for key, broker_id in self._find_coordinators(kind, sorted(set(keys))):
            by_coordinator.setdefault(broker_id, []).append(key)
        return by_coordinator

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """Repeat while leaders or coordinators are moving, up to the timeout."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if error.code not in MOVING or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    def _address_of(self, broker_id: int) -> tuple[str, int]:
        for broker in self.metadata([]).brokers:
            if broker.node_id == broker_id:
                return broker.host, broker.port
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")

    def _find_coordinators(self, kind: CoordinatorType, keys: list[str]) -> Iterable[tuple[str, int]]:
        about = "coordinator of " + ("group" if kind is CoordinatorType.GROUP else "transactional id")
        if not keys:
            return
        if self.version(ApiKey.FIND_COORDINATOR) >= _MANY_COORDINATORS_SINCE:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
            for found in self.request(request, FindCoordinatorResponse).coordinators:
                raise_for(found.error_code, found.error_message, f"{about} {found.key!r}")
                yield found.key, found.node_id
            return
        for key in keys:
            answer = self.request(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse)
            raise_for(answer.error_code, answer.error_message, f"{about} {key!r}")
            yield key, answer.node_id

    def _connection(self, broker_id: int | None) -> Connection:
        return self._somewhere() if broker_id is None else self._broker(broker_id)

    def _broker(self, broker_id: int) -> Connection:
        """Return a connection to a broker. A broker that refuses is dead or starting: that is worth another attempt."""
        connection = self._brokers.get(broker_id)
        if connection is None or not connection.is_open:
            if connection is not None:
                connection.close()
            host, port = self._address_of(broker_id)
            try:
                connection = self._brokers[broker_id] = Connection(
                    host, port, timeout=self.timeout, login=self.login, tls=self.tls
                )
            except Unreachable as error:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id}: {error}") from error
        return connection

    def _somewhere(self) -> Connection:
        """Return the open connection, or one to the first bootstrap address that accepts it."""
        if self._any is not None and self._any.is_open:
            return self._any
        if self._any is not None:
            self._any.close()
        failures: list[str] = []
        for host, port in self.bootstrap:
            try:
                self._any = Connection(host, port, timeout=self.timeout, login=self.login, tls=self.tls)
                return self._any
            except (NotAuthorized, Closed):
                raise  # the other brokers know the same users
            except ClientError as error:
                failures.append(str(error))
        raise Unreachable("; ".join(failures))
