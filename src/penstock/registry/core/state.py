"""The registry's state: what the records of `_schemas` add up to. Only `replay` changes it.

Replay accepts what compaction leaves: any record may be missing whose key has a later one. A schema's references, its
earlier deletion and the context it is in are therefore taken from the record itself, never from records before it.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from penstock.registry.core import records
from penstock.registry.core.guid import guid_of
from penstock.registry.core.names import DEFAULT_CONTEXT, GLOBAL_SCOPE, context_of, in_context, parse_subject, scope_of
from penstock.registry.core.records import SchemasRecord, UnreadableRecord
from penstock.schemas import Reference

DEFAULT_COMPATIBILITY: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
READ_ONLY_MODES: Final = frozenset({"READONLY", "READONLY_OVERRIDE"})


@dataclass(frozen=True)
class SchemaVersion:
    """A schema under a subject."""

    subject: str
    version: int
    id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: bool = False

    @cached_property
    def guid(self) -> str:
        return guid_of(self.schema, self.references, self.metadata, self.rule_set)

    @property
    def described(self) -> dict[str, Any]:
        """What makes the schema, by the API's names; absent where there is nothing."""
        more: dict[str, Any] = {"schemaType": self.schema_type}
        if self.references:
            more["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in self.references
            ]
        if self.metadata is not None:
            more["metadata"] = self.metadata
        if self.rule_set is not None:
            more["ruleSet"] = self.rule_set
        return {"schema": self.schema, **more}

    @cached_property
    def answer(self) -> bytes:
        """What a request by id is answered with, in JSON. Consumers ask it more often than everything else."""
        content = {"guid": self.guid, **self.described}
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")

    def record(self) -> SchemasRecord:
        described = self.described
        if self.schema_type == "AVRO":
            del described["schemaType"]  # the default, which older registries do not know
        named = {"subject": self.subject, "version": self.version, "id": self.id}
        return SchemasRecord(
            records.schema_key(self.subject, self.version), {**named, **described, "deleted": self.deleted}
        )


class Versions:
    """The versions of one subject, by number."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._by_number: dict[int, SchemaVersion] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[SchemaVersion]:
        return (self._by_number[number] for number in self._numbers)

    def __reversed__(self) -> Iterator[SchemaVersion]:
        return (self._by_number[number] for number in reversed(self._numbers))

    def get(self, number: int) -> SchemaVersion | None:
        return self._by_number.get(number)

    @property
    def highest(self) -> int:
        return self._numbers[-1] if self._numbers else 0

    def put(self, version: SchemaVersion) -> None:
        if version.version not in self._by_number:
            bisect.insort(self._numbers, version.version)
        self._by_number[version.version] = version

    def remove(self, number: int) -> None:
        del self._by_number[number]
        self._numbers.remove(number)


@dataclass
class Context:
    highest_id: int = 0
    by_id: dict[int, dict[tuple[str, int], None]] = field(default_factory=dict)  # subjects and versions, oldest first
    by_guid: dict[str, int] = field(default_factory=dict)


class State:
    def __init__(self) -> None:
        self.subjects: dict[str, Versions] = {}
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.declared: set[str] = set()  # contexts that have a record
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}

    # Questions

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        return [each for each in self.subjects.get(subject, ()) if deleted or not each.deleted]

    def newest_first(self, subject: str) -> Iterator[SchemaVersion]:
        return (each for each in reversed(self.subjects.get(subject, _NONE)) if not each.deleted)

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion | None:
        found = self.subjects.get(subject, _NONE).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def latest(self, subject: str) -> SchemaVersion | None:
        return next(self.newest_first(subject), None)

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        return any(deleted or not each.deleted for each in self.subjects.get(subject, ()))

    def subjects_in(self, scope: str) -> list[str]:
        """The subject of this name, or all subjects of a context; with deleted ones."""
        parsed = parse_subject(scope)
        if not parsed.is_context:
            return [scope] if scope in self.subjects else []
        return sorted(each for each in self.subjects if context_of(each) == parsed.context)

    def with_id(self, context: str, schema_id: int) -> list[SchemaVersion]:
        """Every version with this id, softly deleted ones too: old data refers to them."""
        known = self.contexts.get(context)
        places = known.by_id.get(schema_id, {}) if known else {}
        return [self._at(place) for place in places]

    def first_with_id(self, context: str, schema_id: int) -> SchemaVersion | None:
        known = self.contexts.get(context)
        places = known.by_id.get(schema_id) if known else None
        return self._at(next(iter(places))) if places else None

    def with_guid(self, context: str, guid: str) -> list[SchemaVersion]:
        known = self.contexts.get(context)
        schema_id = known.by_guid.get(guid) if known else None
        return [] if schema_id is None else [each for each in self.with_id(context, schema_id) if each.guid == guid]

    def highest_ids(self) -> dict[str, int]:
        return {name: context.highest_id for name, context in self.contexts.items() if context.highest_id}

    def referrers(self, subject: str, number: int, *, deleted: bool) -> list[SchemaVersion]:
        """The versions that refer to this one."""
        found = (self._at(place) for place in sorted(self._referrers.get((subject, number), ())))
        return [each for each in found if deleted or not each.deleted]

    def config(self, subject: str | None) -> Mapping[str, Any]:
        """What applies to a subject: its own configuration, else its context's, else that of all contexts."""
        for scope in _scopes(subject):
            if scope in self.configs:
                return {"compatibilityLevel": DEFAULT_COMPATIBILITY, **self.configs[scope]}
        return {"compatibilityLevel": DEFAULT_COMPATIBILITY}

    def mode(self, subject: str | None) -> str:
        if self.modes.get(None) == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        return next((self.modes[scope] for scope in _scopes(subject) if scope in self.modes), DEFAULT_MODE)

    # Changes

    def replay(self, record: SchemasRecord) -> None:
        """Apply a record that was read from the topic; UnreadableRecord if it is of no known kind."""
        key, value = record
        kind = key.get("keytype")
        subject = key.get("subject")
        if subject is not None and not isinstance(subject, str):
            raise UnreadableRecord("a subject must be text")
        match kind:
            case records.SCHEMA:
                self._replay_schema(subject, key.get("version"), value)
            case records.DELETE_SUBJECT if value is not None:
                self._delete_subject(str(value.get("subject", subject)), value.get("version"))
            case records.CLEAR_SUBJECT if value is not None:
                self._clear(subject)
            case records.CONFIG:
                _set(self.configs, subject, value and _config_of(value))
            case records.MODE:
                _set(self.modes, subject, value and str(value.get("mode", DEFAULT_MODE)))
            case records.CONTEXT:
                self._replay_context(str(key.get("context")), value)
            case records.NOOP:
                self._note_ids((value or {}).get("maxIds"))
            case records.DELETE_SUBJECT | records.CLEAR_SUBJECT | records.ASSOCIATION:
                return  # a tombstone: what it did is done
            case _:
                raise UnreadableRecord(f"the type of record {kind!r} is not known")

    def _replay_schema(self, subject: str | None, number: object, value: Mapping[str, Any] | None) -> None:
        if subject is None or not isinstance(number, int):
            raise UnreadableRecord("the key of a schema needs a subject and a version")
        if value is None:
            self._remove(subject, number)
            return
        version = _version_of(subject, number, value)
        holders = self.with_id(context_of(subject), version.id)
        others = [each for each in holders if (each.subject, each.version) != (subject, number)]
        if any(each.schema != version.schema for each in others):
            raise UnreadableRecord(
                f"{subject} version {number} has the id {version.id} of another schema; it is left out"
            )
        self._remove(subject, number)
        self._put(version)

    def _put(self, version: SchemaVersion) -> None:
        place = (version.subject, version.version)
        self.subjects.setdefault(version.subject, Versions()).put(version)
        context = self.contexts.setdefault(context_of(version.subject), Context())
        context.highest_id = max(context.highest_id, version.id)
        context.by_id.setdefault(version.id, {})[place] = None
        context.by_guid[version.guid] = version.id
        for target in self.referred(version):
            self._referrers.setdefault(target, set()).add(place)

    def _remove(self, subject: str, number: int) -> None:
        old = self.subjects.get(subject, _NONE).get(number)
        if old is None:
            return
        place = (subject, number)
        versions = self.subjects[subject]
        versions.remove(number)
        if not versions:
            del self.subjects[subject]
        context = self.contexts[context_of(subject)]
        places = context.by_id[old.id]
        del places[place]
        if not any(self._at(each).guid == old.guid for each in places):
            context.by_guid.pop(old.guid, None)
        if not places:
            del context.by_id[old.id]
        for target in self.referred(old):
            self._referrers.get(target, set()).discard(place)

    @staticmethod
    def referred(version: SchemaVersion) -> Iterable[tuple[str, int]]:
        """The subjects and versions that a schema refers to; a plain subject is one of the same context."""
        context = context_of(version.subject)
        return ((in_context(context, each.subject), each.version) for each in version.references)

    def _delete_subject(self, subject: str, last: object) -> None:
        if not isinstance(last, int):
            raise UnreadableRecord("the deletion of a subject needs a version")
        for each in self.versions(subject):
            if each.version <= last:
                self.subjects[subject].put(replace(each, deleted=True))

    def _clear(self, scope: str | None) -> None:
        for subject in self.subjects_in(scope or ""):
            for each in list(self.subjects[subject]):
                if each.deleted:
                    self._remove(subject, each.version)

    def _replay_context(self, context: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.declared.discard(context)
        else:
            self.declared.add(context)

    def _note_ids(self, highest: object) -> None:
        if isinstance(highest, dict):
            for name, number in highest.items():
                if isinstance(number, int):
                    context = self.contexts.setdefault(name, Context())
                    context.highest_id = max(context.highest_id, number)

    def _at(self, place: tuple[str, int]) -> SchemaVersion:
        found = self.subjects[place[0]].get(place[1])
        assert found is not None
        return found


_NONE: Final = Versions()


def _scopes(subject: str | None) -> list[str | None]:
    """Where settings of a subject may be, the most specific first; None is the default context."""
    if subject is None:
        return [None, GLOBAL_SCOPE]
    context = context_of(subject)
    return [subject, None if context == DEFAULT_CONTEXT else scope_of(context), GLOBAL_SCOPE]


def _set(settings: dict[Any, Any], subject: str | None, value: Any) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value


def _config_of(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name != "subject" and each is not None}


def _version_of(subject: str, number: int, value: Mapping[str, Any]) -> SchemaVersion:
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in value.get("references") or ()
        )
        return SchemaVersion(
            subject=subject,
            version=number,
            id=int(value["id"]),
            schema_type=str(value.get("schemaType") or "AVRO"),
            schema=str(value["schema"]),
            references=references,
            metadata=value.get("metadata"),
            rule_set=value.get("ruleSet"),
            deleted=bool(value.get("deleted", False)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(f"{subject} version {number} is no schema: {error!r}") from error
