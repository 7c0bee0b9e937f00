"""What a browser sends: forms and pieces of files, each bounded."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

FORM_BYTES_MAX = 16 * 1024 * 1024


async def read_form(request: Request) -> dict[str, str]:
    body = await read_body(request)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


async def read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise ClientDisconnect
    return bytes(body)


def not_ours() -> Response:
    return Response("This form is not of this session: load the page again.", 403)


def own_address(text: str) -> str:
    """Only an address of this console: a form cannot send the browser elsewhere."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
