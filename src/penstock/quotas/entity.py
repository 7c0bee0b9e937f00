"""Quota entities: whom a quota is for. A user, a client id, both together, or an address.

An entity is a tuple of (type, name) pairs, sorted by type. The name None is the default: every user, client id or
address without a quota of its own.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (CLIENT_ID, IP, USER)

Entity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[Entity, Mapping[str, float]]
"""The quotas of a cluster: for each entity, values by key."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class QuotaKey(NamedTuple):
    is_integral: bool
    maximum: float
    type_name: str


_LONG: Final = QuotaKey(is_integral=True, maximum=2.0**63, type_name="LONG")
_INT: Final = QuotaKey(is_integral=True, maximum=2.0**31 - 1, type_name="INT")
_DOUBLE: Final = QuotaKey(is_integral=False, maximum=math.inf, type_name="DOUBLE")

CLIENT_KEYS: Final[Mapping[str, QuotaKey]] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: _DOUBLE,
    CONTROLLER_MUTATION_RATE: _DOUBLE,
}
IP_KEYS: Final[Mapping[str, QuotaKey]] = {CONNECTION_CREATION_RATE: _INT}


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity of these (type, name) pairs. Of pairs with the same type the last one counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def order(entity: Entity) -> list[tuple[str, bool, str]]:
    """A sort key: entities cannot be compared themselves, because a name may be None."""
    return [(kind, name is not None, name or "") for kind, name in entity]


def entity_text(entity: Entity) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name!r}" for kind, name in entity)


def keys_of(entity: Entity) -> Mapping[str, QuotaKey]:
    """The keys that an entity may have; KafkaError for an entity that cannot have quotas."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    # Kafka also takes host names, and asks DNS for them. The controller's event loop cannot wait for DNS.
    if names[IP] is not None and address_of(names[IP] or "") is None:
        raise _invalid(f"{names[IP]} is not a valid IP")
    return IP_KEYS


def check_value(keys: Mapping[str, QuotaKey], name: str, value: float) -> None:
    key = keys.get(name)
    if key is None:
        raise _invalid(f"Invalid configuration key {name}")
    if math.isnan(value) or value <= 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    if value > key.maximum or math.isinf(value):
        raise _invalid(f"Proposed value for {name} is too large for a {key.type_name}.")
    if key.is_integral and abs(value % 1.0) > 1e-6:
        raise _invalid(f"{name} cannot be a fractional value.")


def address_of(text: str) -> str | None:
    """An address in its one canonical form; None if the text is no address. Mapped IPv4 addresses become IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
