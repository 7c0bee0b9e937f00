"""Registration, lookup and compatibility of schemas.

A schema that a subject has already keeps its id and version. A schema that another subject of the context has keeps its
id. Anything else gets the next id of the context, after a check against the versions before it.

Schemas are found by GUID, which is a hash of the stored text. A text that Confluent's registry stored may be written
differently from ours and still be the same schema, so a miss is followed by a comparison with the subject's own
versions, in canonical form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.registry.core import errors, records
from penstock.registry.core.candidate import NEW_ID, NEXT_VERSION, Candidate, Parser
from penstock.registry.core.decision import Decision
from penstock.registry.core.metadata import metadata_of, property_of, rule_set_of
from penstock.registry.core.names import DEFAULT_CONTEXT, context_of, in_context, scope_of
from penstock.registry.core.records import SchemasRecord
from penstock.registry.core.state import READ_ONLY_MODES, SchemaVersion, State
from penstock.schemas import Compatibility, ParsedSchema, Policy, SchemaType, check, is_base64

_IMPORTING = frozenset({"IMPORT", "FORWARD"})


def register(
    state: State, parser: Parser, subject: str, candidate: Candidate, *, normalize: bool = False, force: bool = False
) -> Decision:
    _check_mode(state, subject, candidate)
    importing = state.mode(subject) in _IMPORTING
    if not importing:
        candidate = _completed(state, subject, candidate)
    parsed, new = _parsed(state, parser, subject, candidate, normalize=normalize)
    if candidate.version == NEXT_VERSION:
        known = _find(state, parser, new, parsed)
        if known is not None and candidate.id in (NEW_ID, known.id):
            return Decision((), registered(known, candidate))
    if not importing and not force:
        messages = _incompatibilities(state, parser, new, parsed, state.newest_first(subject))
        if messages:
            raise errors.incompatible(subject, messages)
    new = replace(new, id=_id_for(state, new, candidate), version=_number_for(state, subject, candidate, importing))
    return Decision((*_prelude(state, new), new.record()), registered(new, candidate))


def find_registered(
    state: State, parser: Parser, subject: str, candidate: Candidate, *, normalize: bool = False
) -> SchemaVersion | None:
    """The version that a registration would return without writing anything; None if it would write, or fail."""
    if candidate.id != NEW_ID or candidate.version != NEXT_VERSION or state.mode(subject) != "READWRITE":
        return None
    if not candidate.schema.strip():
        return None
    parsed, new = _parsed(state, parser, subject, _completed(state, subject, candidate), normalize=normalize)
    return _find(state, parser, new, parsed)


def look_up(
    state: State, parser: Parser, subject: str, candidate: Candidate, *, normalize: bool = False, deleted: bool = False
) -> SchemaVersion:
    """The version of a subject that has this schema; 40401 or 40403 if there is none."""
    if state.has_subject(subject, deleted=deleted):
        for each in (candidate, _completed(state, subject, candidate)):
            parsed, new = _parsed(state, parser, subject, each, normalize=normalize)
            found = _find(state, parser, new, parsed, deleted=deleted)
            if found is not None:
                return found
        raise errors.schema_not_found()
    if context_of(subject) == DEFAULT_CONTEXT:  # a plain name may be one of another context
        for context in sorted(set(state.contexts) - {DEFAULT_CONTEXT}):
            elsewhere = scope_of(context) + subject
            if state.has_subject(elsewhere, deleted=deleted):
                return look_up(state, parser, elsewhere, candidate, normalize=normalize, deleted=deleted)
    raise errors.subject_not_found(subject)


def compatibility(
    state: State,
    parser: Parser,
    subject: str,
    candidate: Candidate,
    against: Iterable[SchemaVersion],
    *,
    normalize: bool = False,
) -> list[str]:
    """Why the schema may not follow these versions, newest first."""
    parsed, new = _parsed(state, parser, subject, candidate, normalize=normalize)
    return _incompatibilities(state, parser, new, parsed, against)


def registered(version: SchemaVersion, candidate: Candidate) -> dict[str, Any]:
    """The answer to a registration. A client that sent Protobuf as a file descriptor gets the same back, not text.

    Confluent's registry answers with text. Confluent's Python client remembers the answer as the schema to read with,
    and can only read file descriptors."""
    answer = {"id": version.id, "version": version.version, "guid": version.guid, **version.described}
    if candidate.schema_type == SchemaType.PROTOBUF and is_base64(candidate.schema):
        answer["schema"] = candidate.schema
    return answer


def _check_mode(state: State, subject: str, candidate: Candidate) -> None:
    mode = state.mode(subject)
    where = f"Subject {subject} in context {context_of(subject)}"
    if mode in READ_ONLY_MODES:
        raise errors.not_permitted(f"{where} is in read-only mode")
    if candidate.id != NEW_ID and mode not in _IMPORTING:
        raise errors.not_permitted(f"{where} is not in import mode")
    if candidate.id == NEW_ID and mode in _IMPORTING:
        raise errors.not_permitted(f"{where} is not in read-write mode")


def _completed(state: State, subject: str, candidate: Candidate) -> Candidate:
    """The candidate with what it leaves out: the schema, metadata and rules of the version before."""
    previous = state.latest(subject)
    config = state.config(subject)
    if not candidate.schema.strip() and previous is not None:
        candidate = replace(
            candidate, schema=previous.schema, schema_type=previous.schema_type, references=previous.references
        )
    number = state.subjects[subject].highest + 1 if subject in state.subjects else 1
    return replace(
        candidate,
        metadata=metadata_of(candidate.metadata, previous, config, number),
        rule_set=rule_set_of(candidate.rule_set, previous, config),
    )


def _parsed(
    state: State, parser: Parser, subject: str, candidate: Candidate, *, normalize: bool
) -> tuple[ParsedSchema, SchemaVersion]:
    """The parsed schema, and the version that would be stored, without id and number."""
    normalize = normalize or bool(state.config(subject).get("normalize"))
    parsed = parser.new(state, subject, candidate, normalize=normalize)
    context = context_of(subject)
    references = []
    for each in candidate.references:
        latest = state.latest(in_context(context, each.subject)) if each.version == -1 else None
        references.append(each if latest is None else replace(each, version=latest.version))
    return parsed, SchemaVersion(
        subject=subject,
        version=NEXT_VERSION,
        id=NEW_ID,
        schema_type=candidate.schema_type,
        schema=parsed.canonical,
        references=tuple(references),
        metadata=candidate.metadata,
        rule_set=candidate.rule_set,
    )


def _find(
    state: State, parser: Parser, new: SchemaVersion, parsed: ParsedSchema, *, deleted: bool = False
) -> SchemaVersion | None:
    """The newest version of the subject that is this schema."""
    for each in reversed(state.with_guid(context_of(new.subject), new.guid)):
        if each.subject == new.subject and (deleted or not each.deleted):
            return each
    for each in reversed(parser.same(state, new.subject, parsed.canonical)):
        if _alike(each, new) and (deleted or not each.deleted):
            return each
    return None


def _alike(one: SchemaVersion, other: SchemaVersion) -> bool:
    """Equal in all but the text."""
    return (one.schema_type, one.references, one.metadata, one.rule_set) == (
        other.schema_type,
        other.references,
        other.metadata,
        other.rule_set,
    )


def _incompatibilities(
    state: State, parser: Parser, new: SchemaVersion, parsed: ParsedSchema, against: Iterable[SchemaVersion]
) -> list[str]:
    config = state.config(new.subject)
    level = Compatibility(str(config["compatibilityLevel"]))
    group = config.get("compatibilityGroup")
    if group:  # only versions of the same group follow one another
        mine = property_of(new.metadata, group)
        against = (each for each in against if property_of(each.metadata, group) == mine)
    if level is Compatibility.NONE:
        return []
    earlier = against if level.transitive else itertools.islice(against, 1)
    policy = Policy(str(config.get("compatibilityPolicy", Policy.STRICT)))
    return check(level, parsed, [_earlier(state, parser, each) for each in earlier], policy)


def _earlier(state: State, parser: Parser, version: SchemaVersion) -> ParsedSchema:
    try:
        return parser.stored(state, version)
    except errors.RegistryError as error:
        raise errors.invalid_schema(
            f"version {version.version} of {version.subject}, which it would follow, cannot be parsed: {error.message}"
        ) from error


def _id_for(state: State, new: SchemaVersion, candidate: Candidate) -> int:
    context = context_of(new.subject)
    if candidate.id != NEW_ID:
        holders = state.with_id(context, candidate.id)
        if any(each.guid != new.guid for each in holders):
            raise errors.not_permitted(
                f"Overwrite new schema with id {candidate.id} in context {context} is not permitted."
            )
        return candidate.id
    known = state.with_guid(context, new.guid)
    if known:
        return known[0].id
    return state.contexts[context].highest_id + 1 if context in state.contexts else 1


def _number_for(state: State, subject: str, candidate: Candidate, importing: bool) -> int:
    following = state.subjects[subject].highest + 1 if subject in state.subjects else 1
    if candidate.version <= NEXT_VERSION:
        return following
    if not importing and candidate.version != following:
        raise errors.invalid_schema("Version is not one more than previous version")
    taken = state.version(subject, candidate.version, deleted=True)
    if taken is not None and taken.id != candidate.id:
        raise errors.id_mismatch(
            f"Version {candidate.version} of '{subject}' has the id {taken.id}, not {candidate.id}"
        )
    return candidate.version


def _prelude(state: State, new: SchemaVersion) -> list[SchemasRecord]:
    """What is written before a version: its context, if it is new, and the end of deleted versions of the same id."""
    prelude = []
    context = context_of(new.subject)
    if context != DEFAULT_CONTEXT and context not in state.declared:
        prelude.append(records.context_record(context))
    for each in state.with_id(context, new.id):
        superseded = each.deleted and each.subject == new.subject and each.version < new.version
        if superseded and not state.referrers(each.subject, each.version, deleted=True):
            prelude.append(SchemasRecord(records.schema_key(each.subject, each.version), None))
    return prelude
