"""Network settings: listeners, and limits on connections and requests.

Only Produce requests may be large. A decoded message without records can take fifty times the memory of its bytes, so
other requests are limited to `penstock.max.small.request.bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.settings.definition import INT_MAX, Scope, at_least, distinct, integer, long, one_of, string, strings
from penstock.settings.listeners import (
    DEFAULT_PROTOCOL_MAP,
    SECURITY_PROTOCOLS,
    Endpoint,
    parse_connection_overrides,
    parse_listeners,
    parse_protocol_map,
)


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    listeners: tuple[str, ...] = strings(
        ("PLAINTEXT://:9092",),
        "The addresses to listen on, as NAME://HOST:PORT; an empty host is all addresses, port 0 any free port.",
        distinct(empty=False),
    )
    advertised_listeners: tuple[str, ...] = strings(
        (),
        "The addresses that clients should use, by listener name; default: the listeners, with wildcards replaced by "
        "an address that reaches this machine.",
        distinct(),
    )
    listener_security_protocol_map: str = string(
        DEFAULT_PROTOCOL_MAP, "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    )
    inter_broker_listener_name: str = string(
        "", "The listener for traffic between brokers; default: the only listener, or PLAINTEXT."
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "The listener for traffic between brokers, by its security protocol; inter.broker.listener.name wins.",
        one_of(*SECURITY_PROTOCOLS),
    )
    controller_listener_names: tuple[str, ...] = strings(
        (), "The listeners of the controller role. A node that is the only member of the quorum needs none.", distinct()
    )
    socket_send_buffer_bytes: int = integer(
        -1, "SO_SNDBUF of accepted sockets; -1 lets the operating system adapt it.", at_least(-1)
    )
    socket_receive_buffer_bytes: int = integer(
        -1, "SO_RCVBUF of accepted sockets; -1 lets the operating system adapt it.", at_least(-1)
    )
    socket_request_max_bytes: int = integer(
        104_857_600, "The maximum size of a request. A larger one closes the connection.", at_least(1)
    )
    socket_listen_backlog_size: int = integer(
        1024,
        "How many connections may wait to be accepted (the system may allow fewer). Kafka's 50 fills up quickly when "
        "many clients reconnect at once.",
        at_least(1),
    )
    max_connections: int = integer(
        INT_MAX,
        "The maximum number of open connections. Listeners that only nodes use (those of controllers, and that between "
        "brokers if clients have another one) are exempt. Connections never take the last quarter of the files that "
        "the process may open (`ulimit -n`).",
        at_least(0),
        scope=Scope.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = integer(
        INT_MAX, "The maximum number of open connections from one address.", at_least(0), scope=Scope.CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = string(
        "",
        "Exceptions to max.connections.per.ip, as HOST:COUNT,...",
        lambda _, text: check_overrides(text),
        scope=Scope.CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = long(600_000, "Idle connections are closed after this time; negative for never.")
    queued_max_requests: int = integer(
        500,
        "How many requests of a connection may wait for a response before the broker stops reading from it.",
        at_least(1),
    )
    queued_max_request_bytes: int = long(
        -1, "How many bytes of requests may be in memory before the broker stops reading everywhere; -1 for no limit."
    )
    penstock_max_small_request_bytes: int = integer(
        8_388_608,
        "The maximum size of requests other than Produce. A larger one closes the connection. An addition to Kafka's "
        "settings.",
        at_least(1024),
    )
    penstock_max_parked_requests: int = integer(
        100_000,
        "How many Produce and Fetch requests may wait for replicas or data at the same time. Further requests are "
        "answered at once. An addition to Kafka's settings.",
        at_least(1),
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "The maximum number of fetch sessions. Further consumers send full requests.", at_least(0)
    )
    fetch_max_bytes: int = integer(
        57_671_680, "The maximum size of a fetch response, whatever the client requests.", at_least(1024)
    )
    max_request_partition_size_limit: int = integer(
        2000, "The maximum number of partitions in a DescribeTopicPartitions response.", at_least(1)
    )
    request_timeout_ms: int = integer(30_000, "How long this node waits for a response from another node.", at_least(1))

    @cached_property
    def protocol_map(self) -> dict[str, str]:
        """Security protocol by listener name. A controller listener that is not mapped is PLAINTEXT, as in Kafka."""
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        if self.listener_security_protocol_map == DEFAULT_PROTOCOL_MAP:
            for name in self.controller_listener_names:
                protocols.setdefault(name.upper(), "PLAINTEXT")
        return protocols

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints to bind, including controller listeners."""
        return parse_listeners("listeners", self.listeners, self.protocol_map)

    @cached_property
    def controller_endpoints(self) -> tuple[Endpoint, ...]:
        names = {name.upper() for name in self.controller_listener_names}
        return tuple(endpoint for endpoint in self.endpoints if endpoint.name in names)

    @cached_property
    def quorum_listener(self) -> str:
        """The listener of the metadata quorum: the first controller listener."""
        return self.controller_listener_names[0].upper() if self.controller_listener_names else "CONTROLLER"

    @cached_property
    def broker_endpoints(self) -> tuple[Endpoint, ...]:
        controller = self.controller_endpoints
        return tuple(endpoint for endpoint in self.endpoints if endpoint not in controller)

    @cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses for clients; hosts may still be wildcards and ports 0, which are resolved after binding."""
        if not self.advertised_listeners:
            return self.broker_endpoints
        names = {name.upper() for name in self.controller_listener_names}
        advertised = parse_listeners("advertised.listeners", self.advertised_listeners, self.protocol_map)
        return tuple(endpoint for endpoint in advertised if endpoint.name not in names)

    @cached_property
    def advertised_controller_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints where other nodes reach this controller: advertised, or else bound."""
        advertised = parse_listeners("advertised.listeners", self.advertised_listeners, self.protocol_map)
        by_name = {endpoint.name: endpoint for endpoint in advertised}
        return tuple(by_name.get(endpoint.name, endpoint) for endpoint in self.controller_endpoints)

    @cached_property
    def inter_broker_listener(self) -> str:
        if self.inter_broker_listener_name:
            return self.inter_broker_listener_name.upper()
        names = [endpoint.name for endpoint in self.broker_endpoints]
        return names[0] if len(names) == 1 else self.security_inter_broker_protocol

    @cached_property
    def connection_overrides(self) -> dict[str, int]:
        return parse_connection_overrides(self.max_connections_per_ip_overrides)


def check_overrides(text: str) -> None:
    parse_connection_overrides(text)
