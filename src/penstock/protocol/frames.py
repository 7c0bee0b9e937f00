"""Frames: a 4-byte length, a header, a body.

A request header is read on every request, before anything about the request is known to be valid; so it is read by hand
here, with one unpack. Its format depends on the API and version in the header itself: flexible requests have a tag
section (header version 2, otherwise 1). Response headers follow the same rule (1 and 0) with one exception: the
response to ApiVersions always has a header of version 0, because a client sends that request before it knows what the
broker supports.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from penstock.protocol.apis import API, NEVER, ApiKey
from penstock.protocol.codec import Splices, encode_into, join, splice
from penstock.protocol.declaration import Message
from penstock.protocol.messages import header
from penstock.protocol.primitives import Buffer, MalformedMessage, Part, read_uvarint, records_size

_FIXED_REQUEST_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_LENGTH_AND_CORRELATION_ID = struct.Struct(">ii")
_LENGTH_CORRELATION_ID_AND_TAGS = struct.Struct(">iiB")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_flexible_from: dict[int, int] = {}  # of the APIs that were asked for


def flexible_from(api_key: int) -> int:
    """The first flexible version of an API; NEVER for an API that does not exist."""
    first = _flexible_from.get(api_key)
    if first is not None:
        return first
    spec = API.get(api_key)
    if spec is None:
        return NEVER
    _flexible_from[api_key] = spec.flexible_from
    return spec.flexible_from


def request_header_version(api_key: int, version: int) -> int:
    return 2 if version >= flexible_from(api_key) else 1


def response_header_version(api_key: int, version: int) -> int:
    return 1 if version >= flexible_from(api_key) and api_key != ApiKey.API_VERSIONS else 0


@cache
def throttle_time_at(api_key: int, version: int) -> int | None:
    """Where an encoded response, with its header, has its throttle time; None if that is not its first field."""
    first = next((field for field in API[api_key].response.__schema__.fields if version in field.versions), None)
    if first is None or first.name != "throttle_time_ms":
        return None
    return 4 + response_header_version(api_key, version)


def read_request_header(buffer: Buffer, position: int) -> tuple[RequestHeader, int]:
    """Read the header at `position`; return it and the position of the body.

    An unknown API, or an unknown version of a known one, is returned as it is: the caller answers it. The tags of a
    header are checked and dropped, because Kafka defines none. A client id that is not UTF-8 is made readable, as in
    Kafka: it is a name for people.
    """
    try:
        api_key, version, correlation_id, size = _FIXED_REQUEST_HEADER.unpack_from(buffer, position)
        position += 10
        client_id = None
        if size >= 0:
            stop = position + size
            if stop > len(buffer):
                raise MalformedMessage(f"a client id of {size} bytes with {len(buffer) - position} left")
            client_id = str(buffer[position:stop], "utf-8", "replace")
            position = stop
        elif size != -1:
            raise MalformedMessage(f"a client id of {size} bytes")
        if version >= flexible_from(api_key):
            if buffer[position] == 0:
                position += 1
            else:
                position = _skip_tags(buffer, position)
    except (struct.error, IndexError) as error:
        raise MalformedMessage("a request header that ends too early") from error
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _skip_tags(buffer: Buffer, position: int) -> int:
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedMessage(f"a header tag of {size} bytes in a shorter frame")
    return position


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode the whole frame of a request, including its length."""
    key = request.__schema__.key
    if key is None:
        raise TypeError(f"{type(request).__name__} is not a request")
    out = bytearray(4)
    splices: Splices = []
    head = header.RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    encode_into(head, request_header_version(key, version), out, splices)
    encode_into(request, version, out, splices)
    parts: list[Part] = []
    _finish(out, splices, parts)
    return join(parts)


def response_parts(api_key: int, version: int, correlation_id: int, response: Message, out: list[Part]) -> None:
    """Append the buffers of a response frame, including its length; long records are not copied."""
    if response_header_version(api_key, version):
        encoded = bytearray(_LENGTH_CORRELATION_ID_AND_TAGS.pack(0, correlation_id, 0))
    else:
        encoded = bytearray(_LENGTH_AND_CORRELATION_ID.pack(0, correlation_id))
    splices: Splices = []
    encode_into(response, version, encoded, splices)
    _finish(encoded, splices, out)


def _finish(encoded: bytearray, splices: Splices, out: list[Part]) -> None:
    size = len(encoded) - 4
    for _, records in splices:
        size += records_size(records)
    _LENGTH.pack_into(encoded, 0, size)
    splice(encoded, splices, out)
