"""Which quota applies to a client: the most specific of eight levels, as in Kafka.

    user and client id > user and default client id > user > default user and client id
    > default user and default client id > default user > client id > default client id

At the levels of a pair, each pair of user and client id has an account of its own; at the levels of a user, all clients
of the user share one; at the levels of a client id, all users of the client id share one.

A client that sends no client id has the empty one: the defaults apply to it. (In Kafka such a client escapes every
quota on client ids.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.quotas.entity import CLIENT_ID, IP, USER, Entity, Quotas, address_of

_LEAST: Final = 5e-324  # limits are divided by
_EVERY_ADDRESS: Final[Entity] = ((IP, None),)


class Limit(NamedTuple):
    """The value of the quota that applies, and the account it applies to."""

    user: str | None
    client_id: str | None
    value: float


class Levels:
    """The quotas of one key on users and client ids."""

    def __init__(self, values: Mapping[Entity, float]) -> None:
        self._values = values

    def __bool__(self) -> bool:
        return bool(self._values)

    def limit_of(self, user: str, client_id: str) -> Limit | None:
        values = self._values
        if not values:
            return None
        for name in (user, None):
            for client in (client_id, None):
                value = values.get(((CLIENT_ID, client), (USER, name)))
                if value is not None:
                    return Limit(user, client_id, value)
            value = values.get(((USER, name),))
            if value is not None:
                return Limit(user, None, value)
        for client in (client_id, None):
            value = values.get(((CLIENT_ID, client),))
            if value is not None:
                return Limit(None, client_id, value)
        return None


class AddressLevels:
    """The quotas of one key on addresses: that of the address, or else the default.

    Apache Kafka's controllers also accept quotas on names of hosts. They have no effect here.
    """

    def __init__(self, values: Mapping[Entity, float]) -> None:
        addresses = {entity: address_of(name or "") for entity in values for _, name in entity}
        self._values = {
            address: values[entity]
            for entity, address in addresses.items()
            if address is not None or entity == _EVERY_ADDRESS
        }

    def __bool__(self) -> bool:
        return bool(self._values)

    def limit_of(self, host: str) -> Limit | None:
        address = address_of(host)
        value = self._values.get(address, self._values.get(None))
        return None if value is None else Limit(None, address or host, value)


def values_of(quotas: Quotas, key: str) -> dict[Entity, float]:
    """The entities that have a quota with this key.

    Clusters that began with ZooKeeper may have quotas of 0: nothing is allowed.
    """
    return {entity: max(_LEAST, values[key]) for entity, values in quotas.items() if key in values}
