"""Requests and responses: bodies within a limit, JSON, booleans, content types, errors with a code."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.registry.core.errors import RegistryError, too_large

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# A client reads the refusal only after it has sent its body, so a body that is too large is read, and dropped.
DRAIN_BYTES_MAX: Final = 64 * 1024 * 1024

_TYPES: Final = frozenset(
    {"application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json"}
)
_BODY_TYPES: Final = _TYPES | {"application/octet-stream", ""}
_ACCEPTED: Final = _TYPES | {"*/*", "application/*", ""}
_TRUE: Final = frozenset({"true", "1", "yes"})


def answer(content: Any, status: int = 200) -> Response:
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, media_type=CONTENT_TYPE)


def failure(error: RegistryError) -> Response:
    return answer({"error_code": error.code, "message": error.message}, error.status)


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Python's clients send `True` and `False`."""
    value = request.query_params.get(name)
    return default if value is None else value.strip().lower() in _TRUE


def number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name, "").strip()
    if not value:
        return default
    try:
        return int(value[:20])
    except ValueError:
        raise RegistryError(422, f"{name} must be a number") from None


def page(request: Request, items: list[Any]) -> list[Any]:
    """The part of a list that `offset` and `limit` name; a negative limit is none."""
    offset, limit = max(0, number(request, "offset", 0)), number(request, "limit", -1)
    return items[offset:] if limit < 0 else items[offset : offset + limit]


def check_accepted(request: Request) -> None:
    accepted = request.headers.get("accept", "")
    if accepted and not any(_media_type(each) in _ACCEPTED for each in accepted.split(",")):
        raise RegistryError(406, "HTTP 406 Not Acceptable")


async def read_body(request: Request) -> bytes:
    if _media_type(request.headers.get("content-type", "")) not in _BODY_TYPES:
        raise RegistryError(415, "HTTP 415 Unsupported Media Type")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > DRAIN_BYTES_MAX:
                break
            if size <= BODY_BYTES_MAX:
                parts.append(part)
    except ClientDisconnect:
        raise RegistryError(400, "The body is incomplete") from None
    if size > BODY_BYTES_MAX:
        raise too_large(BODY_BYTES_MAX)
    return b"".join(parts)


def parse_body(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RegistryError(400, f"The body is not JSON: {reason[:200]}") from None


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()
