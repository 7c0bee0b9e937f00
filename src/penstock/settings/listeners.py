"""Listeners: the addresses a node binds, and the addresses it advertises.

A listener is `NAME://HOST:PORT`. The name is looked up in `listener.security.protocol.map`; an empty host binds all
addresses. `advertised.listeners` has the addresses for clients, by the same names. Its default is the bound addresses;
a wildcard is then replaced at registration by an address that reaches this machine, because clients cannot connect to
0.0.0.0.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode, KafkaError

# Ids as in BrokerRegistration and RegisterBrokerRecord.
SECURITY_PROTOCOLS: Final[dict[str, int]] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")
DEFAULT_PROTOCOL_MAP: Final = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"

_LISTENER = re.compile(r"([^:/]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]@]+)):([0-9]+)")


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def wildcard(self) -> bool:
        return is_wildcard(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class QuorumVoter(NamedTuple):
    """One entry of `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


def is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...`; names are upper-cased, as Kafka does."""
    result: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = entry.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not separator or not name:
            raise refusal(f"listener.security.protocol.map: {entry!r} is not LISTENER_NAME:SECURITY_PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise refusal(
                f"listener.security.protocol.map: unknown security protocol {protocol!r} of listener {name}; "
                f"it is one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in result:
            raise refusal(f"listener.security.protocol.map names {name} more than once")
        result[name] = protocol
    return result


def parse_listeners(setting: str, entries: Sequence[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints of `listeners` or `advertised.listeners` (the setting's name is for messages)."""
    endpoints: list[Endpoint] = []
    for entry in entries:
        match = _LISTENER.fullmatch(entry)
        if match is None:
            raise refusal(f"{setting}: {entry!r} is not NAME://HOST:PORT")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name not in protocols:
            raise refusal(f"{setting}: No security protocol defined for listener {name}")
        if not 0 <= port <= 65535:
            raise refusal(f"{setting}: port {port} of {entry!r} is not between 0 and 65535")
        if any(name == other.name for other in endpoints):
            raise refusal(f"{setting}: Each listener must have a different name: {','.join(entries)}")
        endpoints.append(Endpoint(name, host, port, protocols[name]))
    if setting == "listeners":
        _check_ports(endpoints, entries)
    return tuple(endpoints)


def parse_host_port(setting: str, entry: str) -> tuple[str, int]:
    match = _HOST_PORT.fullmatch(entry)
    if match is None or not 0 < int(match[3]) <= 65535:
        raise refusal(f"{setting}: {entry!r} is not HOST:PORT")
    return match[1] or match[2], int(match[3])


def parse_voters(entries: Sequence[str]) -> tuple[QuorumVoter, ...]:
    """`controller.quorum.voters`: ID@HOST:PORT, ..."""
    voters: list[QuorumVoter] = []
    for entry in entries:
        node_id, separator, address = entry.partition("@")
        if not separator or not re.fullmatch(r"[0-9]{1,10}", node_id):
            raise refusal(f"controller.quorum.voters: {entry!r} is not ID@HOST:PORT")
        voters.append(QuorumVoter(int(node_id), *parse_host_port("controller.quorum.voters", address)))
    if len({voter.node_id for voter in voters}) != len(voters):
        raise refusal(f"controller.quorum.voters names a node twice: {','.join(entries)}")
    return tuple(voters)


def parse_connection_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: HOST:COUNT, ...; hosts may be names or addresses, IPv6 in brackets."""
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.isdecimal():
            raise refusal(f"max.connections.per.ip.overrides: {entry!r} is not HOST:COUNT")
        overrides[host.strip("[]")] = int(count)
    return overrides


def _check_ports(endpoints: Sequence[Endpoint], entries: Sequence[str]) -> None:
    """Check that listeners share a port only on different hosts that are addresses. Port 0 is chosen when binding."""
    seen: dict[int, Endpoint] = {}
    for endpoint in endpoints:
        other = seen.get(endpoint.port)
        if endpoint.port != 0 and other is not None and not _separate(endpoint.host, other.host):
            raise refusal(f"listeners: Each listener must have a different port: {','.join(entries)}")
        seen[endpoint.port] = endpoint


def _separate(first: str, second: str) -> bool:
    try:
        one, two = ipaddress.ip_address(first), ipaddress.ip_address(second)
    except ValueError:
        return False
    return one.version != two.version or (one != two and not is_wildcard(first) and not is_wildcard(second))
