"""Answers of requests that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.registry.core import errors
from penstock.registry.core.deletion import LATEST
from penstock.registry.core.names import DEFAULT_CONTEXT, context_of, in_context, parse_subject, scope_of
from penstock.registry.core.state import SchemaVersion, State

_INT_MAX = 2**31 - 1
EVERY_CONTEXT = ":*:"


def parse_version(text: str) -> int:
    """A version in a URL; -1 is the latest."""
    text = text.strip()
    if text.lower() == "latest" or text == "-1":
        return LATEST
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or not 0 < int(text) <= _INT_MAX:
        raise errors.invalid_version(text[:100])
    return int(text)


def get_version(state: State, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion:
    """A version of a subject. A plain name that the default context does not know may be one of another context."""
    for name in _candidates(state, subject):
        found = state.latest(name) if number == LATEST else state.version(name, number, deleted=deleted)
        if found is not None:
            return found
    if not state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(number)


def get_by_id(state: State, schema_id: int, subject: str | None) -> SchemaVersion:
    """The schema of an id, in the context of `subject`, where clients say for which subject they ask."""
    found = find_by_id(state, schema_id, subject)
    if not found:
        raise errors.schema_not_found(schema_id)
    return found[0]


def find_by_id(state: State, schema_id: int, subject: str | None) -> list[SchemaVersion]:
    if not subject:
        return state.with_id(DEFAULT_CONTEXT, schema_id)
    parsed = parse_subject(subject)
    own = state.with_id(parsed.context, schema_id)
    if parsed.is_context or parsed.context != DEFAULT_CONTEXT or any(each.subject == subject for each in own):
        return own
    for name in _candidates(state, subject)[1:]:
        found = state.with_id(context_of(name), schema_id)
        if any(each.subject == name for each in found):
            return found
    return own


def get_by_guid(state: State, guid: str) -> SchemaVersion:
    for context in _contexts(state):
        found = state.with_guid(context, guid.lower())
        if found:
            return found[0]
    raise errors.schema_not_found(guid[:100])


def ids_of_guid(state: State, guid: str) -> list[dict[str, Any]]:
    found = [(context, state.with_guid(context, guid.lower())) for context in _contexts(state)]
    ids = [{"context": context, "id": versions[0].id} for context, versions in found if versions]
    if not ids:
        raise errors.schema_not_found(guid[:100])
    return ids


def list_subjects(state: State, prefix: str = "", *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
    """Subjects by a prefix, which may name a context; `:*:` searches all contexts."""
    everywhere = prefix.startswith(EVERY_CONTEXT)
    prefix = prefix.removeprefix(EVERY_CONTEXT)
    wanted = parse_subject(prefix)

    def matches(subject: str) -> bool:
        named = parse_subject(subject)
        return named.name.startswith(wanted.name) and (everywhere or named.context == wanted.context)

    def counts(subject: str) -> bool:
        alive = state.has_subject(subject)
        return not alive if deleted_only else alive or deleted

    return sorted(subject for subject in state.subjects if matches(subject) and counts(subject))


def list_versions(state: State, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
    if not state.has_subject(subject, deleted=deleted or deleted_only):
        raise errors.subject_not_found(subject)
    versions = state.versions(subject, deleted=deleted or deleted_only)
    return [each.version for each in versions if each.deleted or not deleted_only]


def list_schemas(state: State, prefix: str, *, deleted: bool, latest_only: bool) -> Iterable[SchemaVersion]:
    for subject in list_subjects(state, prefix or EVERY_CONTEXT, deleted=deleted):
        versions = state.versions(subject, deleted=deleted)
        yield from versions[-1:] if latest_only else versions


def list_contexts(state: State) -> list[str]:
    used = {context_of(subject) for subject in state.subjects}
    return sorted({DEFAULT_CONTEXT} | state.declared | used)


def latest_with_metadata(state: State, subject: str, wanted: Mapping[str, str], *, deleted: bool) -> SchemaVersion:
    """The newest version whose metadata has these properties."""
    if not state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    for each in reversed(state.versions(subject, deleted=deleted)):
        properties = (each.metadata or {}).get("properties") or {}
        if all(properties.get(name) == value for name, value in wanted.items()):
            return each
    raise errors.schema_not_found()


def described(version: SchemaVersion) -> dict[str, Any]:
    """A version as the API shows it."""
    more = {"deleted": True} if version.deleted else {}
    named = {"subject": version.subject, "version": version.version, "id": version.id, "guid": version.guid}
    return {**named, **version.described, **more}


def qualified_references(version: SchemaVersion) -> list[dict[str, Any]]:
    context = context_of(version.subject)
    return [
        {"name": each.name, "subject": in_context(context, each.subject), "version": each.version}
        for each in version.references
    ]


def _contexts(state: State) -> list[str]:
    return [DEFAULT_CONTEXT, *sorted(set(state.contexts) - {DEFAULT_CONTEXT})]


def _candidates(state: State, subject: str) -> list[str]:
    """The subject, then subjects of the same name in other contexts, if it names no context."""
    if context_of(subject) != DEFAULT_CONTEXT:
        return [subject]
    return [scope_of(context) + subject for context in _contexts(state)]
