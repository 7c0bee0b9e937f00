"""A write that reached another node than the writer: it is sent on, once, and its answer comes back.

The answer names the offset after the records that were written. The node that forwarded it waits until it has read them
too, so a client that asks the same node next finds what it wrote.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.registry.kafka.election import Identity

FORWARDED: Final = "X-Forward"
OFFSET: Final = "X-Penstock-Offset"
_PASSED_ON: Final = ("authorization", "content-type", "accept")
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class ForwardedResponse(NamedTuple):
    status: int
    body: bytes
    content_type: str
    offset: int | None


class NotSent(Exception):
    """The writer does not accept the connection: it has done nothing."""


class NotAnswered(Exception):
    """The writer may have done it or not."""


def forward(
    writer: Identity,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tls: ssl.SSLContext | None,
    timeout: float,
) -> ForwardedResponse:
    """Send a request to the writer. Blocks."""
    if writer.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            writer.host, writer.port, timeout=timeout, context=tls or ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(writer.host, writer.port, timeout=timeout)
    try:
        try:
            connection.connect()
        except OSError as error:
            raise NotSent(f"{writer.url}: {error}") from error
        passed = {name: headers[name] for name in _PASSED_ON if name in headers}
        try:
            connection.request(method, target, body=body, headers={**passed, FORWARDED: "true"})
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise NotAnswered(f"{writer.url}: {error!r}") from error
        offset = response.headers.get(OFFSET, "")
        return ForwardedResponse(
            response.status,
            content,
            response.headers.get("content-type", ""),
            int(offset) if offset.isdecimal() else None,
        )
    finally:
        connection.close()
