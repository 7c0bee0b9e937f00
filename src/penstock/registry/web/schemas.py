"""Requests by id and GUID, and about the registry itself."""

from __future__ import annotations

from starlette.responses import Response

from penstock import __version__
from penstock.registry.core import errors, reading
from penstock.registry.core.names import context_of
from penstock.registry.core.state import SchemaVersion
from penstock.registry.web.call import Call
from penstock.registry.web.messages import answer, flag, page
from penstock.registry.web.roles import Role
from penstock.registry.web.subjects import formatted
from penstock.schemas import SchemaType


async def get_by_id(call: Call) -> Response:
    version = _by_id(call)
    content = {"guid": version.guid, **version.described}
    query = call.request.scope["query_string"]
    if query:  # the plain request is the one that every consumer sends
        if flag(call.request, "fetchMaxId"):
            content["maxId"] = call.state.contexts[context_of(version.subject)].highest_id
        if call.request.query_params.get("referenceFormat") == "qualified" and version.references:
            content["references"] = reading.qualified_references(version)
        content["schema"] = await formatted(call, version)
    return answer(content)


async def get_text_by_id(call: Call) -> Response:
    text = await formatted(call, _by_id(call))
    return Response(text.encode("utf-8", "replace"), media_type="application/vnd.schemaregistry.v1+json")


async def subjects_of_id(call: Call) -> Response:
    return answer(page(call.request, sorted({each.subject for each in _holders(call)})))


async def versions_of_id(call: Call) -> Response:
    found = [{"subject": each.subject, "version": each.version} for each in _holders(call)]
    return answer(page(call.request, found))


async def get_by_guid(call: Call) -> Response:
    version = reading.get_by_guid(call.state, call.parameters[0])
    call.require(Role.READ, version.subject)
    return answer({"guid": version.guid, **version.described, "schema": await formatted(call, version)})


async def ids_of_guid(call: Call) -> Response:
    call.require(Role.READ, reading.get_by_guid(call.state, call.parameters[0]).subject)
    return answer(reading.ids_of_guid(call.state, call.parameters[0]))


async def list_schemas(call: Call) -> Response:
    found = reading.list_schemas(
        call.state,
        call.request.query_params.get("subjectPrefix", ""),
        deleted=flag(call.request, "deleted"),
        latest_only=flag(call.request, "latestOnly"),
    )
    return answer(page(call.request, [reading.described(each) for each in found if call.may(Role.READ, each.subject)]))


async def list_types(call: Call) -> Response:
    return answer([each.value for each in SchemaType])


async def root(call: Call) -> Response:
    return answer({})


async def registry_id(call: Call) -> Response:
    return answer({"scope": {"path": [], "clusters": {}}})


async def registry_version(call: Call) -> Response:
    return answer({"version": __version__, "commitId": ""})


def _by_id(call: Call) -> SchemaVersion:
    holders = _all_holders(call)
    if call.roles is not None and not any(call.may(Role.READ, each.subject) for each in holders):
        call.require(Role.READ, holders[0].subject)
    return holders[0]


def _holders(call: Call) -> list[SchemaVersion]:
    """The versions with an id that may be seen; deleted ones if they are asked for."""
    deleted = flag(call.request, "deleted")
    shown = [each for each in _all_holders(call) if deleted or not each.deleted]
    return [each for each in shown if call.may(Role.READ, each.subject)]


def _all_holders(call: Call) -> list[SchemaVersion]:
    text = call.parameters[0]
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        raise errors.RegistryError(404, "HTTP 404 Not Found")
    schema_id = int(text)
    found = reading.find_by_id(call.state, schema_id, call.asked_subject())
    if not found:
        raise errors.schema_not_found(schema_id)
    return found
