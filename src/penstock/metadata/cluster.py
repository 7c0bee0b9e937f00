"""The nodes of the cluster in the metadata: registrations of brokers and controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.metadata.features import Levels
from penstock.metadata.partition import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from penstock.model.ids import Uuid
from penstock.protocol.messages.broker_registration import Feature, Listener
from penstock.protocol.messages.metadata_records import RegisterBrokerRecord, RegisterControllerRecord


class NodeEndpoint(NamedTuple):
    """The address of a node on one of its listeners."""

    name: str
    host: str
    port: int
    security_protocol: int


def default_directory(directories: Sequence[Uuid]) -> Uuid:
    """The directory of a new replica, as far as the controller knows: with one directory there is no choice."""
    if not directories:  # a broker from before directories had ids
        return MIGRATING_DIRECTORY
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


def features_message(features: Mapping[str, Levels]) -> list[Feature]:
    """As registrations send them."""
    return [
        Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
        for name, levels in features.items()
    ]


def _endpoints_of(record: RegisterBrokerRecord | RegisterControllerRecord) -> dict[str, NodeEndpoint]:
    return {
        each.name: NodeEndpoint(each.name, each.host, each.port, each.security_protocol) for each in record.end_points
    }


def _features_of(record: RegisterBrokerRecord | RegisterControllerRecord) -> dict[str, Levels]:
    return {each.name: Levels(each.min_supported_version, each.max_supported_version) for each in record.features}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    broker_id: int
    # The offset of the registration. The broker sends it in its requests, so that an old incarnation is detected.
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, NodeEndpoint]
    features: Mapping[str, Levels]
    rack: str | None
    # A fenced broker is registered but not used: it leads nothing, and clients are not directed to it.
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        cordoned = record.cordoned_log_dirs
        return cls(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints_of(record),
            features=_features_of(record),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[Listener(**endpoint._asdict()) for endpoint in self.endpoints.values()],
            features=features_message(self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=None if self.cordoned_directories is None else list(self.cordoned_directories),
        )

    @property
    def active(self) -> bool:
        """Whether the broker may be in sync and lead."""
        return not self.fenced and not self.in_controlled_shutdown

    def host(self, listener: str) -> str | None:
        """The host on which the broker runs, as far as its address on `listener` tells (that of the brokers among
        themselves: clients may reach all of them through one proxy)."""
        endpoint = self.endpoints.get(listener) or next(iter(self.endpoints.values()), None)
        return endpoint.host.lower() if endpoint is not None and endpoint.host else None

    def has_online(self, directory: Uuid) -> bool:
        """Whether a replica in this directory can be used. True if its directory was not reported yet."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory in self.directories or (not self.directories and directory != LOST_DIRECTORY)

    @property
    def cordoned(self) -> bool:
        """Whether none of its directories takes new replicas."""
        return bool(self.directories) and set(self.directories) <= set(self.cordoned_directories or ())

    @property
    def default_directory(self) -> Uuid:
        return default_directory(self.directories)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    controller_id: int
    incarnation_id: Uuid
    endpoints: Mapping[str, NodeEndpoint]
    features: Mapping[str, Levels]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints_of(record),
            features=_features_of(record),
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            end_points=[Listener(**endpoint._asdict()) for endpoint in self.endpoints.values()],
            features=features_message(self.features),
        )
