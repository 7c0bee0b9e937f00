"""Requests about subjects, their versions, and compatibility with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from penstock.registry.core import deletion, errors, reading, registration
from penstock.registry.core.candidate import Candidate, Parser
from penstock.registry.core.decision import Decision
from penstock.registry.core.errors import RegistryError
from penstock.registry.core.names import DEFAULT_CONTEXT, context_named, in_context, scope_of
from penstock.registry.core.state import SchemaVersion, State
from penstock.registry.web.call import Call
from penstock.registry.web.messages import answer, flag, page
from penstock.registry.web.roles import Role


async def list_subjects(call: Call) -> Response:
    prefix = call.request.query_params.get("subjectPrefix")
    if prefix is None:
        prefix = scope_of(call.context) or reading.EVERY_CONTEXT
    found = reading.list_subjects(
        call.state,
        prefix if prefix.startswith(":") else in_context(call.context, prefix),
        deleted=flag(call.request, "deleted"),
        deleted_only=flag(call.request, "deletedOnly"),
    )
    return answer(page(call.request, [each for each in found if call.may(Role.READ, each)]))


async def list_versions(call: Call) -> Response:
    subject = call.subject()
    call.require(Role.READ, subject)
    deleted, only = flag(call.request, "deleted"), flag(call.request, "deletedOnly")
    found: Sequence[int] = reading.list_versions(call.state, subject, deleted=deleted, deleted_only=only)
    return answer(page(call.request, list(found)))


async def get_version(call: Call) -> Response:
    version = _version(call)
    content = reading.described(version)
    if call.request.query_params.get("referenceFormat") == "qualified" and version.references:
        content["references"] = reading.qualified_references(version)
    content["schema"] = await formatted(call, version)
    return answer(content)


async def get_schema_of_version(call: Call) -> Response:
    version = _version(call)
    text = await formatted(call, version)
    return Response(text.encode("utf-8", "replace"), media_type="application/vnd.schemaregistry.v1+json")


async def get_referrers(call: Call) -> Response:
    version = _version(call)
    found = call.state.referrers(version.subject, version.version, deleted=flag(call.request, "deleted"))
    return answer(page(call.request, list(dict.fromkeys(each.id for each in found))))


async def get_latest_with_metadata(call: Call) -> Response:
    subject = call.subject()
    call.require(Role.READ, subject)
    query = call.request.query_params
    wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
    version = reading.latest_with_metadata(call.state, subject, wanted, deleted=flag(call.request, "deleted"))
    return answer({**reading.described(version), "schema": await formatted(call, version)})


async def register(call: Call) -> Response:
    subject = call.subject()
    call.require(Role.WRITE, subject)
    candidate = await call.candidate()
    normalize, force = flag(call.request, "normalize"), flag(call.request, "force")
    if force:
        call.require(Role.ADMIN, subject)

    def known(state: State, parser: Parser) -> SchemaVersion | None:
        return registration.find_registered(state, parser, subject, candidate, normalize=normalize)

    def decide(state: State, parser: Parser) -> Decision:
        return registration.register(state, parser, subject, candidate, normalize=normalize, force=force)

    if not call.node.is_writer:  # every node knows the schemas that are there already
        found = await call.examine(known)
        if found is not None:
            return answer(registration.registered(found, candidate))
    return await call.write(decide, repeatable=True)


async def look_up(call: Call) -> Response:
    subject = call.subject()
    call.require(Role.READ, subject)
    candidate = await call.candidate()
    normalize, deleted = flag(call.request, "normalize"), flag(call.request, "deleted")

    def find(state: State, parser: Parser) -> SchemaVersion:
        return registration.look_up(state, parser, subject, candidate, normalize=normalize, deleted=deleted)

    version = await call.examine(find)
    return answer({**reading.described(version), "schema": await formatted(call, version)})


async def delete_version(call: Call) -> Response:
    subject, permanent = call.subject(), flag(call.request, "permanent")
    call.require(Role.ADMIN if permanent else Role.WRITE, subject)
    number = reading.parse_version(call.parameters[1])
    return await call.write(lambda state, _: deletion.delete_version(state, subject, number, permanent=permanent))


async def delete_subject(call: Call) -> Response:
    subject, permanent = call.subject(), flag(call.request, "permanent")
    call.require(Role.ADMIN if permanent else Role.WRITE, subject)
    return await call.write(lambda state, _: deletion.delete_subject(state, subject, permanent=permanent))


async def check_against_version(call: Call) -> Response:
    subject = call.subject()
    call.require(Role.READ, subject)
    number = reading.parse_version(call.parameters[1])
    candidate = await call.candidate()

    def against(state: State) -> list[SchemaVersion]:
        found = state.latest(subject) if number == deletion.LATEST else state.version(subject, number)
        if found is None and number != deletion.LATEST:
            raise errors.version_not_found(number)
        return [] if found is None else [found]

    return await _checked(call, subject, candidate, against)


async def check_against_all(call: Call) -> Response:
    subject = call.subject()
    call.require(Role.READ, subject)
    candidate = await call.candidate()
    return await _checked(call, subject, candidate, lambda state: list(state.newest_first(subject)))


async def _checked(call: Call, subject: str, candidate: Candidate, against: Any) -> Response:
    verbose, normalize = flag(call.request, "verbose"), flag(call.request, "normalize")

    def check(state: State, parser: Parser) -> list[str]:
        return registration.compatibility(state, parser, subject, candidate, against(state), normalize=normalize)

    try:
        messages = await call.examine(check)
    except RegistryError as error:
        if not verbose or error.code != 42201:
            raise
        messages = [error.message]
    return answer({"is_compatible": not messages, **({"messages": messages} if verbose else {})})


async def formatted(call: Call, version: SchemaVersion) -> str:
    """The schema's text, or with `format=serialized` the binary form that Protobuf has."""
    if call.request.query_params.get("format") != "serialized" or version.schema_type != "PROTOBUF":
        return version.schema
    return await call.examine(lambda state, parser: parser.stored(state, version).serialized())


def _version(call: Call) -> SchemaVersion:
    subject = call.subject()
    number = reading.parse_version(call.parameters[1])
    version = reading.get_version(call.state, subject, number, deleted=flag(call.request, "deleted"))
    call.require(Role.READ, version.subject)
    return version


async def list_contexts(call: Call) -> Response:
    found = reading.list_contexts(call.state)
    return answer(page(call.request, [each for each in found if call.may(Role.READ, scope_of(each))]))


async def delete_context(call: Call) -> Response:
    context = context_named(call.parameters[0])
    call.require(Role.ADMIN, scope_of(context) if context != DEFAULT_CONTEXT else "")
    return await call.write(lambda state, _: deletion.delete_context(state, context))
