"""Brokers: their registration, fencing and unfencing.

A broker registers each time it starts, with a new incarnation id, and gets a broker epoch: about the offset of its
registration. All its later requests carry that epoch, so that an earlier process is detected and refused. A
registration begins fenced; the broker asks to be unfenced when it has caught up with the metadata that concerns it. A
new registration ends all leaderships of the previous incarnation, so every restart begins a new leader epoch, also on a
single node: a power loss may have cost an unsynced tail, and clients notice that by the epoch.

A broker that stopped cleanly sends its last epoch (`PreviousBrokerEpoch`). If it cannot, it crashed, and is no longer
trusted with the end of any log: it leaves the in-sync and the eligible leader replicas (KIP-966).

When a broker leaves, the partition changes come first. The record about the broker comes last, in the same batch as the
last of them. So a controller that takes over half-way finds a broker that still has to be fenced, and starts again.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.controller.leaders import (
    batch_of,
    when_back,
    when_directories_lost,
    when_gone,
    when_replaced,
    when_unregistered,
)
from penstock.controller.result import Result, Unfinished
from penstock.controller.view import ClusterView
from penstock.metadata.cluster import BrokerRegistration
from penstock.metadata.features import KRAFT_VERSION, METADATA_VERSION, Levels
from penstock.metadata.partition import is_reserved_directory
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import uuid_text
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_FENCE, _UNFENCE = 1, -1


class BrokerHandlers:
    """Handlers over one image. `kraft_version` comes from the quorum and is not in the image."""

    def __init__(self, view: ClusterView, cluster_id: str, kraft_version: int) -> None:
        self._view = view
        self._image = view.image
        self._cluster_id = cluster_id
        self._kraft_version = kraft_version

    def register_broker(
        self, request: BrokerRegistrationRequest, *, session_alive: bool = False
    ) -> Result[BrokerRegistrationResponse]:
        """`session_alive`: whether the registered incarnation of this broker has sent a heartbeat recently.

        Raises KafkaError if the whole request is refused.
        """
        if request.cluster_id != self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        existing = self._image.brokers.get(request.broker_id)
        same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and session_alive and not same_incarnation:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this should "
                "self-resolve once the heartbeat manager expires the broker's session.",
            )
        self._check_directories(request)
        self._check_features(request)
        changes, is_last = batch_of(self._replaced(request, existing))
        if not is_last:
            return Unfinished(changes)
        record = _registration(request)
        # The offset where the batch begins: above any earlier epoch, and not above the offset of the registration.
        record.broker_epoch = self._image.offset + 1
        if existing is not None and same_incarnation:
            record.broker_epoch = existing.epoch
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
        return Result([*changes, record], BrokerRegistrationResponse(broker_epoch=record.broker_epoch))

    def _replaced(
        self, request: BrokerRegistrationRequest, existing: BrokerRegistration | None
    ) -> Iterator[PartitionChangeRecord]:
        """End all leaderships of the previous incarnation. The same incarnation may have lost directories meanwhile."""
        if existing is not None and existing.incarnation_id == request.incarnation_id:
            lost = set(existing.directories) - set(request.log_dirs)
            return when_directories_lost(self._view, request.broker_id, lost) if lost else iter(())
        clean = existing is not None and existing.epoch == request.previous_broker_epoch
        return when_replaced(self._view, request.broker_id, clean=clean, directories=request.log_dirs)

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        """The broker has caught up: it may lead, and clients may use it.

        This record comes first, followed by its leaderships, so that a fenced broker never leads.
        """
        broker = self.registered(broker_id, broker_epoch)
        changes, is_last = batch_of(when_back(self._view, broker_id))
        if broker.fenced:
            changes.insert(0, _fencing(broker, _UNFENCE))
        return Result(changes, None) if is_last else Unfinished(changes)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        broker = self.registered(broker_id, broker_epoch)
        if broker.fenced:
            return Result([], None)
        changes, is_last = batch_of(when_gone(self._view, broker_id))
        return Result([*changes, _fencing(broker, _FENCE)], None) if is_last else Unfinished(changes)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        """Remove a broker that will not return. Its replicas stay assigned to it until they are reassigned."""
        broker = self._image.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
            )
        changes, is_last = batch_of(when_unregistered(self._view, request.broker_id))
        if not is_last:
            return Unfinished(changes)
        record = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
        return Result([*changes, record], UnregisterBrokerResponse(error_message=None))

    def registered(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        self._view.check_broker(broker_id, broker_epoch)
        return self._image.brokers[broker_id]

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        def refuse(why: str) -> KafkaError:
            return KafkaError(ErrorCode.INVALID_REGISTRATION, why)

        if not request.log_dirs:
            raise refuse("No directories specified in request")
        if any(map(is_reserved_directory, request.log_dirs)):
            raise refuse("Reserved directory ID in request")
        if len(set(request.log_dirs)) != len(request.log_dirs):
            raise refuse("Duplicate directory ID in request")
        for broker in self._image.brokers.values():
            if broker.broker_id == request.broker_id:
                continue
            for directory in request.log_dirs:
                if directory in broker.directories:
                    raise refuse(
                        f"Broker {broker.broker_id} is already registered with directory {uuid_text(directory)}"
                    )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Check that the broker supports all finalized features of the cluster."""
        offered = {
            feature.name: Levels(feature.min_supported_version, feature.max_supported_version)
            for feature in request.features
        }
        if METADATA_VERSION not in offered:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
        finalized = {**self._image.features, KRAFT_VERSION: self._kraft_version}
        for name, level in finalized.items():
            levels = offered.get(name, Levels(0, 0))
            if level not in levels:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {levels.minimum} and {levels.maximum}, inclusive.",
                )


def _registration(request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=list(request.listeners),
        features=list(request.features),
        rack=request.rack,
        log_dirs=list(request.log_dirs),
    )


def _fencing(broker: BrokerRegistration, direction: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=direction)
