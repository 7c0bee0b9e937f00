"""All brokers of one machine, from one file.

A broker uses one core, so a machine with many cores runs several. The file says how many, and what they share:

    name = "alpha"                       # how clients and other machines reach this one
    brokers = 8
    first-id = 101                       # 101 to 108
    port = 9092                          # 9092 to 9099
    directory = "/var/lib/penstock"
    disks = ["/data/1", "/data/2"]       # shared out among the brokers; without it, data is in the directory
    rack = "zone-a"
    listen = "0.0.0.0"
    listener = "PLAINTEXT"               # its name, which is also its protocol unless the settings say otherwise
    metrics = "127.0.0.1:9404"           # one page for all brokers
    pin = true                           # each broker to a core; or a list of cores
    client-config = "/etc/penstock/client.properties"   # how this command logs in, if the listener asks for it

    [controller]                         # if one of the controllers runs on this machine
    id = 1
    port = 9093

    [settings]                           # of all nodes, by Kafka's names
    "controller.quorum.voters" = "1@alpha:9093,2@beta:9093,3@gamma:9093"
    "penstock.cluster.id" = "4L6g3nShT-eMCtK--X86sw"

    [node.103]                           # of one node
    "log.retention.hours" = 24

`read_host_file` checks it, `plan_host` makes nodes of it; both only read. All brokers of a machine
advertise its name, which no other machine has: replicas of a partition go to different names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.local.cluster import METRICS_LISTENER, METRICS_PORT_ABOVE
from penstock.local.node import CONTROLLER_LISTENER, LocalNode
from penstock.local.properties import merge_properties

BROKERS_MAX = METRICS_PORT_ABOVE  # so that the ports of brokers and of their metrics differ
HEADER = "# Written by penstock host at each start of this node, from its file; changes here are lost.\n"
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_OURS = frozenset({"node.id", "process.roles", "listeners", "advertised.listeners", "log.dirs", "broker.rack"})


class BadHostFile(Exception):
    """The file cannot be used; the message is one line that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFile:
    name: str
    brokers: int
    first_id: int
    port: int
    directory: str
    disks: tuple[str, ...] = ()
    rack: str | None = None
    listen: str = "0.0.0.0"
    listener: str = "PLAINTEXT"
    metrics: tuple[str, int] | None = None
    cores: tuple[int, ...] = ()
    """The cores of brokers, one after the other; empty if the kernel chooses."""
    client_config: str | None = None
    controller_id: int | None = None
    controller_port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def broker_ids(self) -> range:
        return range(self.first_id, self.first_id + self.brokers)


class HostNode(LocalNode):
    """A node whose settings are in the file of its host, and nowhere else: a line that is removed there is gone."""

    def write_properties(self) -> None:
        with open(self.properties_path, "w", encoding="utf-8") as file:
            file.write(merge_properties(HEADER, self.own_properties()))


def read_host_file(path: str, cores: Sequence[int]) -> HostFile:
    """`cores`: those that this process may use. BadHostFile names the first mistake."""
    try:
        with open(path, "rb") as file:
            return parse_host_file(tomllib.load(file), cores)
    except OSError as error:
        raise BadHostFile(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadHostFile(f"{path}: not a TOML file: {error}") from error
    except BadHostFile as error:
        raise BadHostFile(f"{path}: {error}") from None


def parse_host_file(content: Mapping[str, Any], cores: Sequence[int]) -> HostFile:
    reading = _Reading(content)
    brokers = reading.number("brokers", 1, BROKERS_MAX)
    controller = _Reading(reading.table("controller"), "controller.")
    with_controller = bool(controller.left)
    parsed = HostFile(
        name=reading.text("name"),
        brokers=brokers,
        first_id=reading.number("first-id", 0, 2**31 - 1 - brokers),
        port=reading.number("port", 1, 65536 - brokers),
        directory=reading.text("directory"),
        disks=tuple(reading.texts("disks")),
        rack=reading.text("rack", None),
        listen=reading.text("listen", "0.0.0.0"),
        listener=reading.text("listener", "PLAINTEXT").upper(),
        metrics=_address(reading.text("metrics", None)),
        cores=_cores(reading.left.pop("pin", False), cores, brokers),
        client_config=reading.text("client-config", None),
        controller_id=controller.number("id", 0, 2**31 - 1) if with_controller else None,
        controller_port=controller.number("port", 1, 65535) if with_controller else None,
        settings=_settings("settings", reading.table("settings")),
        node_settings=_node_settings(reading.table("node")),
    )
    controller.finish()
    reading.finish()
    _check(parsed)
    return parsed


def plan_host(host: HostFile, client_options: Mapping[str, str] | None = None) -> list[LocalNode]:
    """The nodes in the order in which to start them: the controller, then the brokers."""
    check_host = _ANY.get(host.listen, host.listen)
    nodes: list[LocalNode] = []
    shared = {"controller.listener.names": CONTROLLER_LISTENER, **host.settings}
    if host.controller_id is not None and host.controller_port is not None:
        own = {
            "listeners": _listener(CONTROLLER_LISTENER, host.listen, host.controller_port),
            "advertised.listeners": _listener(CONTROLLER_LISTENER, host.name, host.controller_port),
        }
        nodes.append(
            HostNode(
                host.controller_id,
                os.path.join(host.directory, f"controller-{host.controller_id}"),
                host=host.listen,
                port=host.controller_port,
                roles="controller",
                properties={**shared, **own, **host.node_settings.get(host.controller_id, {})},
            )
        )
        nodes[0].checked_at = (check_host, host.controller_port)
    for index, broker_id in enumerate(host.broker_ids):
        port = host.port + index
        directory = os.path.join(host.directory, f"broker-{broker_id}")
        own = {
            "listeners": _listener(host.listener, host.listen, port),
            "advertised.listeners": _listener(host.listener, host.name, port),
        }
        if host.disks:
            own["log.dirs"] = ",".join(os.path.join(disk, f"broker-{broker_id}") for disk in _disks_of(host, index))
        if host.rack is not None:
            own["broker.rack"] = host.rack
        if host.metrics is not None:
            own[METRICS_LISTENER] = f"127.0.0.1:{internal_metrics_port(port)}"
        broker = HostNode(
            broker_id,
            directory,
            host=host.listen,
            port=port,
            roles="broker",
            properties={**shared, **own, **host.node_settings.get(broker_id, {})},
            client_options=client_options,
            cores=[host.cores[index % len(host.cores)]] if host.cores else [],
        )
        broker.checked_at = (check_host, port)
        nodes.append(broker)
    return nodes


def internal_metrics_port(port: int) -> int:
    """Where a broker has its own page, for the one of the host: 1000 above its own port, as with `penstock up`."""
    above = port + METRICS_PORT_ABOVE
    return above if above < 65536 else port - METRICS_PORT_ABOVE


def _disks_of(host: HostFile, index: int) -> list[str]:
    """Each disk belongs to one broker as far as there are enough brokers, and each broker has one at least."""
    if len(host.disks) < host.brokers:
        return [host.disks[index % len(host.disks)]]
    return list(host.disks[index :: host.brokers])


def _listener(name: str, address: str, port: int) -> str:
    return f"{name}://[{address}]:{port}" if ":" in address else f"{name}://{address}:{port}"


class _Reading:
    """Takes values out of a table; what is left in the end is a mistake."""

    def __init__(self, content: Mapping[str, Any], prefix: str = "") -> None:
        self.left = dict(content)
        self._prefix = prefix

    def text(self, name: str, *default: Any) -> Any:
        return self._take(name, str, "a text", default)

    def texts(self, name: str) -> list[str]:
        found = self._take(name, list, "a list of texts", ([],))
        if not all(isinstance(each, str) for each in found):
            raise BadHostFile(f"{self._prefix}{name} is a list of texts")
        return list(found)

    def number(self, name: str, lowest: int, highest: int) -> int:
        found = self._take(name, int, "a number", ())
        if isinstance(found, bool) or not lowest <= found <= highest:
            raise BadHostFile(f"{self._prefix}{name} = {found}: the number is from {lowest} to {highest}")
        return int(found)

    def table(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._take(name, dict, f"a table, [{name}]", ({},))
        return found

    def finish(self) -> None:
        if self.left:
            raise BadHostFile(f"{self._prefix}{next(iter(self.left))} is not a name that this file has")

    def _take(self, name: str, kind: type, what: str, default: tuple[Any, ...]) -> Any:
        if name not in self.left:
            if not default:
                raise BadHostFile(f"{self._prefix}{name} is missing: {what}")
            return default[0]
        found = self.left.pop(name)
        if not isinstance(found, kind):
            raise BadHostFile(f"{self._prefix}{name} is {what}")
        return found


def _settings(where: str, content: Mapping[str, Any]) -> dict[str, str]:
    settings = {}
    for name, value in content.items():
        if isinstance(value, dict):
            raise BadHostFile(
                f'[{where}] {name}: write the whole name in quotes, as in "{name}.{next(iter(value), "")}"'
            )
        if name in _OURS:
            raise BadHostFile(f"[{where}] {name} follows from the other lines of this file")
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def _node_settings(content: Mapping[str, Any]) -> dict[int, dict[str, str]]:
    found = {}
    for node, settings in content.items():
        if not node.isdecimal() or not isinstance(settings, dict):
            raise BadHostFile(f"[node.{node}] is not the table of a node, such as [node.103]")
        found[int(node)] = _settings(f"node.{node}", settings)
    return found


def _cores(pin: object, usable: Sequence[int], brokers: int) -> tuple[int, ...]:
    if pin is False:
        return ()
    if pin is True:
        return tuple(usable[:brokers])
    if not isinstance(pin, list) or not pin or not all(isinstance(core, int) for core in pin):
        raise BadHostFile("pin is true, false, or a list of cores such as [0, 1, 2]")
    missing = [core for core in pin if core not in usable]
    if missing:
        raise BadHostFile(f"pin names core {missing[0]}, and this process may use {', '.join(map(str, usable))}")
    return tuple(pin)


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadHostFile(f"metrics = {text!r} is not an address such as 127.0.0.1:9404")
    return host.strip("[]") or "0.0.0.0", int(port)


def _check(host: HostFile) -> None:
    if not host.name or any(character in host.name for character in " /"):
        raise BadHostFile(f"name = {host.name!r} is not the name or address of a machine")
    ports = list(range(host.port, host.port + host.brokers))
    if host.controller_port in ports:
        raise BadHostFile(f"controller.port {host.controller_port} is also that of a broker")
    if host.metrics is not None and host.metrics[1] in (*ports, host.controller_port):
        raise BadHostFile(f"the port of metrics, {host.metrics[1]}, is also that of a node")
    if host.controller_id in host.broker_ids:
        raise BadHostFile(f"controller.id {host.controller_id} is also that of a broker")
    for required in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        if required in host.settings:
            break
    else:
        raise BadHostFile('[settings] has no "controller.quorum.voters": the controllers of the cluster')
    for node_id in host.node_settings:
        if node_id not in host.broker_ids and node_id != host.controller_id:
            raise BadHostFile(f"[node.{node_id}]: no node of this file has this id")
