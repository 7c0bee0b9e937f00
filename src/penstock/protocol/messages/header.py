"""The headers of requests and responses. `penstock.protocol.frames` reads and writes them."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int16String, Int32


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: Int16 = field("0+")
    request_api_version: Int16 = field("0+")
    correlation_id: Int32 = field("0+")
    client_id: Int16String | None = field("1+", nullable="1+")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: Int32 = field("0+")
