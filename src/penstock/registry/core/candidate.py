"""A schema as a client sends it, and its parsing with all that it refers to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.registry.core.errors import RegistryError, invalid_schema
from penstock.registry.core.names import context_of, in_context
from penstock.registry.core.state import SchemaVersion, State
from penstock.schemas import InvalidSchema, ParsedSchema, Reference, SchemaType, parse

NEW_ID: Final = -1
NEXT_VERSION: Final = 0
REFERENCES_MAX: Final = 1000
_INT_MAX: Final = 2**31 - 1
_PARSED_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class Candidate:
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    id: int = NEW_ID
    version: int = NEXT_VERSION


def read_candidate(body: object) -> Candidate:
    """The schema in the body of a request; RegistryError for a body of another form."""
    if not isinstance(body, dict):
        raise RegistryError(422, "The body must be a JSON object with a schema")
    schema = body.get("schema")
    if schema is not None and not isinstance(schema, str):
        raise RegistryError(422, "The schema must be a string: JSON in it is quoted")
    schema_type = body.get("schemaType") or SchemaType.AVRO
    if not isinstance(schema_type, str) or schema_type.upper() not in SchemaType.__members__:
        raise invalid_schema(f"there is no schema type {str(schema_type)[:100]!r}")
    return Candidate(
        schema=schema or "",
        schema_type=schema_type.upper(),
        references=_references(body.get("references")),
        metadata=_object(body, "metadata"),
        rule_set=_object(body, "ruleSet"),
        id=_number(body, "id", NEW_ID),
        version=_number(body, "version", NEXT_VERSION),
    )


def _references(given: object) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > REFERENCES_MAX:
        raise RegistryError(422, f"references must be a list of at most {REFERENCES_MAX}")
    return tuple(map(_reference, given))


def _reference(given: object) -> Reference:
    if isinstance(given, dict):
        name, subject, version = given.get("name"), given.get("subject"), given.get("version", -1)
        if isinstance(name, str) and isinstance(subject, str) and _is_number(version):
            return Reference(name, subject, version)
    raise RegistryError(422, "A reference needs a name, a subject and a version")


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RegistryError(422, f"{name} must be a JSON object")
    return value


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not _is_number(value):
        raise RegistryError(422, f"{name} must be a number between -1 and 2^31-1")
    return int(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= _INT_MAX


class Parser:
    """Parses schemas, and keeps what it parsed last: a subject's versions are parsed again for every new one."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[tuple[str, str], ParsedSchema] = OrderedDict()
        self._canonical: dict[str, _CanonicalTexts] = {}

    def new(self, state: State, subject: str, candidate: Candidate, *, normalize: bool) -> ParsedSchema:
        if not candidate.schema.strip():
            raise invalid_schema("Empty schema")
        parsed = _parse(
            candidate.schema_type, candidate.schema, resolved(state, context_of(subject), candidate.references)
        )
        return parsed.normalized() if normalize else parsed

    def stored(self, state: State, version: SchemaVersion) -> ParsedSchema:
        """A version of the state. What it refers to has a fixed subject and version, so its parsed form stays valid."""
        key = (context_of(version.subject), version.guid)
        parsed = self._parsed.get(key)
        if parsed is None:
            references = resolved(state, key[0], version.references)
            parsed = self._parsed[key] = _parse(version.schema_type, version.schema, references, new=False)
            if len(self._parsed) > _PARSED_MAX:
                self._parsed.popitem(last=False)
        else:
            self._parsed.move_to_end(key)
        return parsed

    def same(self, state: State, subject: str, canonical: str) -> list[SchemaVersion]:
        """The versions of a subject with this canonical text, oldest first, softly deleted ones too."""
        versions = state.subjects.get(subject)
        if versions is None:
            return []
        index = self._canonical.setdefault(subject, _CanonicalTexts())
        for version in reversed(versions):  # versions come in order, so most calls see one that is new
            if version.version in index.numbers and len(index.numbers) == len(versions):
                break
            if version.version not in index.numbers:
                index.add(version.version, self._canonical_text(state, version))
        found = (versions.get(number) for number in sorted(index.by_text.get(canonical, ())))
        return [each for each in found if each is not None]

    def forget(self) -> None:
        """After a permanent deletion: a version of the same number may be another schema later."""
        self._parsed.clear()
        self._canonical.clear()

    def _canonical_text(self, state: State, version: SchemaVersion) -> str:
        try:
            return self.stored(state, version).canonical
        except RegistryError:  # another registry accepted it
            return version.schema


class _CanonicalTexts:
    """Of one subject. Texts that are hashed once are compared quickly afterwards."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.by_text: dict[str, list[int]] = {}

    def add(self, number: int, text: str) -> None:
        self.numbers.add(number)
        self.by_text.setdefault(text, []).append(number)


def resolved(state: State, context: str, references: Sequence[Reference]) -> list[tuple[str, str]]:
    """The names and texts of all schemas that are referred to, directly or not; what others need comes first."""
    found: dict[str, str] = {}
    open_places: set[tuple[str, int]] = set()

    def visit(inside: str, reference: Reference) -> None:
        if reference.name in found:
            return
        subject = in_context(inside, reference.subject)
        version = (
            state.latest(subject)
            if reference.version == -1
            else state.version(subject, reference.version, deleted=True)
        )
        if version is None:
            raise invalid_schema(
                f"no schema for the reference {reference.name!r}: subject {reference.subject!r} version "
                f"{reference.version} does not exist"
            )
        place = (version.subject, version.version)
        if place in open_places:
            raise invalid_schema(f"the reference {reference.name!r} leads back to itself")
        if len(open_places) + len(found) >= REFERENCES_MAX:
            raise invalid_schema(f"more than {REFERENCES_MAX} schemas are referred to")
        open_places.add(place)
        for each in version.references:
            visit(context_of(subject), each)
        open_places.discard(place)
        found[reference.name] = version.schema

    try:
        for reference in references:
            visit(context, reference)
    except RecursionError:
        raise invalid_schema("the references are nested too deeply") from None
    return list(found.items())


def _parse(schema_type: str, text: str, references: list[tuple[str, str]], *, new: bool = True) -> ParsedSchema:
    if schema_type not in SchemaType.__members__:
        raise invalid_schema(f"there is no schema type {schema_type!r}")
    try:
        return parse(SchemaType(schema_type), text, references, new=new)
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from error
