"""Writes the `server.properties` of a new node from the settings of a running cluster.

The settings that an operator has given in the files of the present brokers are taken over, if this software uses them,
and all brokers agree on them; those that belong to one machine (addresses, directories, its id) are not. Passwords
cannot be read over the wire: the file has a line for each, to be filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.settings.known import missing_protection
from penstock.settings.node import BROKER_SETTINGS

# These say who a node is or where it is.
_OF_A_MACHINE: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "cordoned.log.dirs",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)
FILL_IN: Final = "FILL-IN"
DEFAULT_PORT: Final = 9092


@dataclass(frozen=True, slots=True)
class GivenSetting:
    """A setting of a broker's file; None for a password."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the present brokers were given, by broker."""

    brokers: Mapping[int, Sequence[GivenSetting]]

    def values(self, name: str) -> list[str]:
        """What brokers have been given for it, each once."""
        given = (each.value for settings in self.brokers.values() for each in settings if each.name == name)
        return sorted({value for value in given if value})

    def agreed(self) -> dict[str, str | None]:
        """Those that every broker that has them has with the same value."""
        found: dict[str, set[str | None]] = {}
        for given in self.brokers.values():
            for setting in given:
                found.setdefault(setting.name, set()).add(setting.value)
        return {name: next(iter(values)) for name, values in sorted(found.items()) if len(values) == 1}

    def differing(self) -> list[str]:
        agreed = self.agreed()
        names = {setting.name for given in self.brokers.values() for setting in given}
        return sorted(names - set(agreed) - _OF_A_MACHINE)

    def common(self) -> dict[str, str]:
        """What a new node takes over; passwords are to be filled in."""
        return {
            name: FILL_IN if value is None else value
            for name, value in self.agreed().items()
            if name not in _OF_A_MACHINE and (_is_used(name) or missing_protection(name, value or ""))
        }

    def unused(self) -> list[str]:
        """Names that Penstock does not use."""
        return sorted(name for name in self.agreed() if name not in _OF_A_MACHINE and not _is_used(name))


def _is_used(name: str) -> bool:
    return name in BROKER_SETTINGS or name.startswith(("listener.name.", "sasl.", "ssl.", "config.providers"))


@dataclass(frozen=True, slots=True)
class NewNode:
    node_id: int
    host: str
    controller_port: int | None
    directory: str
    rack: str | None = None
    # By listener; those that are missing have the ports that the present brokers have.
    ports: Mapping[str, int] = field(default_factory=dict)


def properties(
    node: NewNode, cluster_id: str, settings: Settings, quorum: Sequence[tuple[str, int]], controller_listener: str
) -> dict[str, str]:
    """The settings of a new node. `quorum`: the addresses of the present voters."""
    given = settings.agreed()
    protocols = given.get("listener.security.protocol.map") or ""
    ports = {**broker_listeners(settings), **node.ports}
    lines = {
        "process.roles": "broker" if node.controller_port is None else "broker,controller",
        "node.id": str(node.node_id),
        "penstock.cluster.id": cluster_id,
        "listeners": ",".join(f"{name}://{node.host}:{port}" for name, port in ports.items()),
        "controller.listener.names": controller_listener,
        "controller.quorum.bootstrap.servers": ",".join(f"{host}:{port}" for host, port in quorum),
        "log.dirs": node.directory,
    }
    if node.controller_port is not None:
        lines["listeners"] += f",{controller_listener}://{node.host}:{node.controller_port}"
    if node.rack is not None:
        lines["broker.rack"] = node.rack
    if protocols:
        lines["listener.security.protocol.map"] = protocols
    return {**settings.common(), **lines}


def broker_listeners(settings: Settings) -> dict[str, int]:
    """The listeners of the present brokers that are not the controllers', with their ports, in order."""
    controllers = (settings.agreed().get("controller.listener.names") or "").split(",")
    found: dict[str, int] = {}
    for given in settings.brokers.values():
        values = {setting.name: setting.value or "" for setting in given}
        for entry in (values.get("listeners") or values.get("advertised.listeners") or "").split(","):
            name, separator, address = entry.strip().partition("://")
            port = address.rpartition(":")[2]
            if separator and name not in controllers and port.isdecimal():
                found.setdefault(name, int(port))
    return found or {"PLAINTEXT": DEFAULT_PORT}


def text_of(lines: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in lines.items())
