"""Requests about configuration and modes."""

from __future__ import annotations

from starlette.responses import Response

from penstock.registry.core import settings
from penstock.registry.web.call import Call
from penstock.registry.web.messages import answer, flag
from penstock.registry.web.roles import Role


async def get_config(call: Call) -> Response:
    return answer(settings.get_config(call.state, _readable(call), in_scope=flag(call.request, "defaultToGlobal")))


async def set_config(call: Call) -> Response:
    scope = call.scope()
    call.require(Role.ADMIN, scope)
    content = await call.content()
    return await call.write(lambda state, _: settings.set_config(state, scope, content), repeatable=True)


async def delete_config(call: Call) -> Response:
    scope = call.scope()
    call.require(Role.ADMIN, scope)
    return await call.write(lambda state, _: settings.delete_config(state, scope))


async def get_mode(call: Call) -> Response:
    return answer(settings.get_mode(call.state, _readable(call), in_scope=flag(call.request, "defaultToGlobal")))


async def set_mode(call: Call) -> Response:
    scope, force = call.scope(), flag(call.request, "force")
    call.require(Role.ADMIN, scope)
    content = await call.content()
    return await call.write(lambda state, _: settings.set_mode(state, scope, content, force=force), repeatable=True)


async def delete_mode(call: Call) -> Response:
    scope = call.scope()
    call.require(Role.ADMIN, scope)
    return await call.write(lambda state, _: settings.delete_mode(state, scope))


def _readable(call: Call) -> str | None:
    """The scope of a request. Every user may read what applies to all subjects."""
    scope = call.scope()
    if scope is not None:
        call.require(Role.READ, scope)
    return scope
