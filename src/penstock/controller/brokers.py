"""Brokers: registering them, and whether they are used (unfenced) or not.

A broker registers each time it starts, with a new incarnation id, and gets a broker epoch: the offset of its
registration. Whatever it says later carries that epoch, so that a process from before is told that its time is over. A
registration begins fenced; the broker asks to be unfenced when it has caught up with the metadata that concerns it.
"""

from __future__ import annotations

from penstock.controller.leaders import changes_when_back, changes_when_gone
from penstock.controller.result import Result
from penstock.metadata.cluster import BrokerRegistration
from penstock.metadata.features import METADATA_VERSION, Levels
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition import is_reserved_directory
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import uuid_text
from penstock.protocol.declaration import Message
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)

_FENCE, _UNFENCE = 1, -1


class BrokerHandlers:
    """Handlers over one image."""

    def __init__(self, image: MetadataImage, cluster_id: str) -> None:
        self._image = image
        self._cluster_id = cluster_id

    def register_broker(
        self, request: BrokerRegistrationRequest, *, session_alive: bool = False
    ) -> Result[BrokerRegistrationResponse]:
        """`session_alive`: whether the registered incarnation of this broker has been heard of lately.

        Raises KafkaError where the whole request is refused.
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
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=self._image.offset + 1,
            end_points=[
                BrokerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
            rack=request.rack,
            log_dirs=list(request.log_dirs),
        )
        if existing is not None and same_incarnation:
            record.broker_epoch = existing.epoch
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            cleanup: list[Message] = []
        else:
            # Whatever the previous incarnation led, it leads no more.
            cleanup = list(changes_when_gone(self._image, request.broker_id))
        return Result([*cleanup, record], BrokerRegistrationResponse(broker_epoch=record.broker_epoch))

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        """The broker has caught up: it may lead, and clients may be sent to it."""
        broker = self.registered(broker_id, broker_epoch)
        if not broker.fenced:
            return Result([], None)
        return Result([_fencing(broker, _UNFENCE), *changes_when_back(self._image, broker_id)], None)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        broker = self.registered(broker_id, broker_epoch)
        if broker.fenced:
            return Result([], None)
        return Result([_fencing(broker, _FENCE), *changes_when_gone(self._image, broker_id)], None)

    def registered(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}",
            )
        return broker

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
        """A broker must be able to do all that the cluster does."""
        offered = {
            feature.name: Levels(feature.min_supported_version, feature.max_supported_version)
            for feature in request.features
        }
        if METADATA_VERSION not in offered:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
        for name, level in self._image.features.items():
            levels = offered.get(name, Levels(0, 0))
            if level not in levels:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {levels.minimum} and {levels.maximum}, inclusive.",
                )


def _fencing(broker: BrokerRegistration, direction: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=direction)
