"""Network settings: listeners, and limits on connections and requests.

Only Produce requests may be large. A decoded message without records can take fifty times the memory of its bytes, so
other requests are limited to `penstock.max.small.request.bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.settings.definition import INT_MAX, Scope, Type, at_least, distinct, one_of, setting
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
    listeners: tuple[str, ...] = setting(
        Type.LIST,
        ("PLAINTEXT://:9092",),
        distinct(empty=False),
        "The addresses to listen on, as NAME://HOST:PORT; an empty host is all addresses, port 0 any free port.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        Type.LIST,
        (),
        distinct(),
        "The addresses that clients should use, by listener name; default: the listeners, with wildcards replaced by "
        "an address that reaches this machine.",
    )
    listener_security_protocol_map: str = setting(
        Type.STRING,
        DEFAULT_PROTOCOL_MAP,
        None,
        "The security protocol of each listener name: PLAINTEXT or SSL.",
    )
    inter_broker_listener_name: str = setting(
        Type.STRING, "", None, "The listener for traffic between brokers; default: the only listener, or PLAINTEXT."
    )
    security_inter_broker_protocol: str = setting(
        Type.STRING,
        "PLAINTEXT",
        one_of(*SECURITY_PROTOCOLS),
        "The listener for traffic between brokers, by its security protocol; inter.broker.listener.name wins.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        Type.LIST,
        (),
        distinct(),
        "The listeners of the controller role. A node that is the only member of the quorum needs none.",
    )
    socket_send_buffer_bytes: int = setting(
        Type.INT, -1, at_least(-1), "SO_SNDBUF of accepted sockets; -1 lets the operating system adapt it."
    )
    socket_receive_buffer_bytes: int = setting(
        Type.INT, -1, at_least(-1), "SO_RCVBUF of accepted sockets; -1 lets the operating system adapt it."
    )
    socket_request_max_bytes: int = setting(
        Type.INT, 104_857_600, at_least(1), "The maximum size of a request. A larger one closes the connection."
    )
    socket_listen_backlog_size: int = setting(
        Type.INT,
        1024,
        at_least(1),
        "How many connections may wait to be accepted (the system may allow fewer). Kafka's 50 fills up quickly when "
        "many clients reconnect at once.",
    )
    max_connections: int = setting(
        Type.INT,
        INT_MAX,
        at_least(0),
        "The maximum number of open connections.",
        scope=Scope.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting(
        Type.INT,
        INT_MAX,
        at_least(0),
        "The maximum number of open connections from one address.",
        scope=Scope.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = setting(
        Type.STRING,
        "",
        lambda _, text: check_overrides(text),
        "Exceptions to max.connections.per.ip, as HOST:COUNT,...",
        scope=Scope.CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = setting(
        Type.LONG, 600_000, None, "Idle connections are closed after this time; negative for never."
    )
    connection_failed_authentication_delay_ms: int = setting(
        Type.INT,
        100,
        at_least(0),
        "How long a connection is kept open after its authentication failed, so that trying passwords is slow.",
    )
    queued_max_requests: int = setting(
        Type.INT,
        500,
        at_least(1),
        "How many requests of a connection may wait for a response before the broker stops reading from it.",
    )
    queued_max_request_bytes: int = setting(
        Type.LONG,
        -1,
        None,
        "How many bytes of requests may be in memory before the broker stops reading everywhere; -1 for no limit.",
    )
    penstock_max_small_request_bytes: int = setting(
        Type.INT,
        8_388_608,
        at_least(1024),
        "The maximum size of requests other than Produce. A larger one closes the connection. An addition to Kafka's "
        "settings.",
    )
    penstock_max_parked_requests: int = setting(
        Type.INT,
        100_000,
        at_least(1),
        "How many Produce and Fetch requests may wait for replicas or data at the same time. Further requests are "
        "answered at once. An addition to Kafka's settings.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Type.INT, 1000, at_least(0), "The maximum number of fetch sessions. Further consumers send full requests."
    )
    fetch_max_bytes: int = setting(
        Type.INT, 57_671_680, at_least(1024), "The maximum size of a fetch response, whatever the client requests."
    )
    max_request_partition_size_limit: int = setting(
        Type.INT, 2000, at_least(1), "The maximum number of partitions in a DescribeTopicPartitions response."
    )
    request_timeout_ms: int = setting(
        Type.INT, 30_000, at_least(1), "How long this node waits for a response from another node."
    )

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
