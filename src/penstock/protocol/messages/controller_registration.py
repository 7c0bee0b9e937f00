"""ControllerRegistration (API key 70). A controller registers with the active one."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.broker_registration import Feature, Listener
from penstock.protocol.primitives import Int16, Int32, Uuid


class ControllerRegistrationRequest(Message, key=70, versions="0", flexible="0+"):
    controller_id: Int32 = field("0+")
    incarnation_id: Uuid = field("0+")
    zk_migration_ready: bool = field("0+")
    listeners: list[Listener] = field("0+")
    features: list[Feature] = field("0+")


class ControllerRegistrationResponse(Message, key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
