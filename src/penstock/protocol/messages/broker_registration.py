"""BrokerRegistration (API key 62). A starting broker registers with the controller."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uint16, Uuid


class BrokerRegistrationRequest(Message, key=62, versions="0-4", flexible="0+"):
    broker_id: Int32 = field("0+")
    cluster_id: str = field("0+")
    incarnation_id: Uuid = field("0+")
    listeners: list[Listener] = field("0+")
    features: list[Feature] = field("0+")
    rack: str | None = field("0+", nullable="0+")
    is_migrating_zk_broker: bool = field("1+")
    log_dirs: list[Uuid] = field("2+", ignorable=True)
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


class Listener(Message):
    name: str = field("0+")
    host: str = field("0+")
    port: Uint16 = field("0+")
    security_protocol: Int16 = field("0+")


class Feature(Message):
    name: str = field("0+")
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class BrokerRegistrationResponse(Message, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
