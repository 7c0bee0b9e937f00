"""UnregisterController (API key 94). Remove the registration of a controller that will not return."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class UnregisterControllerRequest(Message, key=94, versions="0", flexible="0+"):
    controller_id: Int32 = field("0+")


class UnregisterControllerResponse(Message, key=94, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
