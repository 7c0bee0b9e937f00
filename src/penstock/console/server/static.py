"""The stylesheet, the script and the icon, which are in this package."""

from __future__ import annotations

import os
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


async def static_file(request: Request) -> Response:
    name = request.path_params["file"]
    kind = _TYPES.get(os.path.splitext(name)[1])
    file = files("penstock.console") / "static" / name
    if kind is None or "/" in name or not file.is_file():
        return Response("there is no such file", 404)
    return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "max-age=3600"})
