"""The ASGI application: from a path to a handler, and from an error to its answer.

Paths are split before they are decoded, because a subject may contain an encoded slash. A base URL that ends in
`/contexts/CONTEXT` puts every subject into that context.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.registry.core.errors import RegistryError
from penstock.registry.core.names import DEFAULT_CONTEXT, context_named
from penstock.registry.node import RegistryNode
from penstock.registry.web import schemas, settings, subjects
from penstock.registry.web.call import Call
from penstock.registry.web.messages import CONTENT_TYPE, check_accepted, failure
from penstock.registry.web.passwords import Passwords
from penstock.registry.web.roles import Roles

logger = logging.getLogger("penstock.registry")

Handler = Callable[[Call], Awaitable[Response]]

_ROUTES: Final[list[tuple[str, str, Handler]]] = [
    ("GET", "", schemas.root),
    ("GET", "schemas", schemas.list_schemas),
    ("GET", "schemas/types", schemas.list_types),
    ("GET", "schemas/ids/*", schemas.get_by_id),
    ("GET", "schemas/ids/*/schema", schemas.get_text_by_id),
    ("GET", "schemas/ids/*/subjects", schemas.subjects_of_id),
    ("GET", "schemas/ids/*/versions", schemas.versions_of_id),
    ("GET", "schemas/guids/*", schemas.get_by_guid),
    ("GET", "schemas/guids/*/ids", schemas.ids_of_guid),
    ("GET", "subjects", subjects.list_subjects),
    ("POST", "subjects/*", subjects.look_up),
    ("DELETE", "subjects/*", subjects.delete_subject),
    ("GET", "subjects/*/metadata", subjects.get_latest_with_metadata),
    ("GET", "subjects/*/versions", subjects.list_versions),
    ("POST", "subjects/*/versions", subjects.register),
    ("GET", "subjects/*/versions/*", subjects.get_version),
    ("DELETE", "subjects/*/versions/*", subjects.delete_version),
    ("GET", "subjects/*/versions/*/schema", subjects.get_schema_of_version),
    ("GET", "subjects/*/versions/*/referencedby", subjects.get_referrers),
    ("POST", "compatibility/subjects/*/versions", subjects.check_against_all),
    ("POST", "compatibility/subjects/*/versions/*", subjects.check_against_version),
    ("GET", "config", settings.get_config),
    ("PUT", "config", settings.set_config),
    ("DELETE", "config", settings.delete_config),
    ("GET", "mode", settings.get_mode),
    ("PUT", "mode", settings.set_mode),
    ("DELETE", "mode", settings.delete_mode),
    ("GET", "config/*", settings.get_config),
    ("PUT", "config/*", settings.set_config),
    ("DELETE", "config/*", settings.delete_config),
    ("GET", "mode/*", settings.get_mode),
    ("PUT", "mode/*", settings.set_mode),
    ("DELETE", "mode/*", settings.delete_mode),
    ("GET", "contexts", subjects.list_contexts),
    ("DELETE", "contexts/*", subjects.delete_context),
    ("GET", "v1/metadata/id", schemas.registry_id),
    ("GET", "v1/metadata/version", schemas.registry_version),
]


# What clients accept, mostly; anything else is looked at more closely.
_PLAIN_ACCEPT: Final = (b"*/*", b"application/json", CONTENT_TYPE.encode())
_BY_ID: Final = b"/schemas/ids/"


async def _send(body: bytes, send: Send) -> None:
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Router:
    """Paths by their number of parts and the first of them, which leaves few to compare."""

    def __init__(self) -> None:
        self._routes: dict[tuple[int, str], list[tuple[tuple[str, ...], dict[str, Handler]]]] = {}
        for method, path, handler in _ROUTES:
            pattern = tuple(path.split("/"))
            known = self._routes.setdefault((len(pattern), pattern[0]), [])
            handlers = next((each for shape, each in known if shape == pattern), None)
            if handlers is None:
                handlers = {}
                known.append((pattern, handlers))
            handlers[method] = handler

    def find(self, method: str, parts: list[str]) -> tuple[Handler, tuple[str, ...]]:
        for pattern, handlers in self._routes.get((len(parts), parts[0]), ()):
            if all(wanted in ("*", part) for wanted, part in zip(pattern, parts, strict=True)):
                if method not in handlers:
                    raise RegistryError(405, "HTTP 405 Method Not Allowed")
                return handlers[method], tuple(
                    unquote(part) for wanted, part in zip(pattern, parts, strict=True) if wanted == "*"
                )
        raise RegistryError(404, "HTTP 404 Not Found")


class Application:
    def __init__(
        self,
        node: RegistryNode,
        *,
        passwords: Passwords | None = None,
        roles: Roles | None = None,
        forward_tls: ssl.SSLContext | None = None,
    ) -> None:
        self._node = node
        self._passwords = passwords
        self._roles = roles
        self._forward_tls = forward_tls
        self._router = Router()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        known = self._plain_id(scope)
        if known is not None:
            await _send(known, send)
            return
        request = Request(scope, receive)
        response = await self._respond(request)
        await response(scope, receive, send)

    def _plain_id(self, scope: Scope) -> bytes | None:
        """The answer of `GET /schemas/ids/N` without parameters, where it needs no further look; else None."""
        path: bytes = scope["raw_path"]
        number = path[len(_BY_ID) :]
        if not path.startswith(_BY_ID) or not number.isdigit() or len(number) > 10 or scope["query_string"]:
            return None
        if self._passwords is not None or scope["method"] != "GET":
            return None
        if any(name == b"accept" and value not in _PLAIN_ACCEPT for name, value in scope["headers"]):
            return None
        version = self._node.state.first_with_id(DEFAULT_CONTEXT, int(number))
        return None if version is None else version.answer

    async def _respond(self, request: Request) -> Response:
        try:
            return await self._handle(request)
        except RegistryError as error:
            response = failure(error)
            if error.code == 401:
                response.headers["www-authenticate"] = 'Basic realm="penstock registry"'
            return response
        except Exception:
            logger.exception("%s %s failed", request.method, request.scope.get("path"))
            return failure(RegistryError(500, "Internal Server Error"))

    async def _handle(self, request: Request) -> Response:
        user = None
        if self._passwords is not None:
            user = await self._passwords.user_of(request.headers.get("authorization"))
        check_accepted(request)
        parts = request.scope["raw_path"].decode("latin-1").strip("/").split("/")
        context = DEFAULT_CONTEXT
        if parts[0] == "contexts" and len(parts) > 2:
            context = context_named(unquote(parts[1]))
            parts = parts[2:]
        handler, parameters = self._router.find(request.method, parts)
        return await handler(Call(self._node, request, parameters, context, user, self._roles, self._forward_tls))
