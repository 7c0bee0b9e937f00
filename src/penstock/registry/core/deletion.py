"""Deletion of versions, subjects and contexts.

A soft deletion hides a version; its number stays taken, and its id can still be asked for, because old data refers to
it. A permanent deletion needs a soft one first, and nothing may refer to what it deletes.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.registry.core import errors, records
from penstock.registry.core.decision import Decision
from penstock.registry.core.names import DEFAULT_CONTEXT, context_of, scope_of
from penstock.registry.core.records import SchemasRecord
from penstock.registry.core.state import READ_ONLY_MODES, SchemaVersion, State

LATEST = -1


def delete_version(state: State, subject: str, number: int, *, permanent: bool) -> Decision:
    check_writable(state, subject)
    version = state.latest(subject) if number == LATEST else state.version(subject, number, deleted=True)
    if version is None:
        if not state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)
    if version.deleted and not permanent:
        raise errors.version_soft_deleted(subject, version.version)
    if not version.deleted and permanent:
        raise errors.version_not_soft_deleted(subject, version.version)
    if state.referrers(subject, version.version, deleted=permanent):
        raise errors.referenced(subject, version.version)
    if not permanent:
        return Decision((replace(version, deleted=True).record(),), version.version)
    written = [_tombstone(version), records.noop(state.highest_ids())]
    if len(state.subjects[subject]) == 1:
        written += _end_of_settings(state, subject)
    return Decision(tuple(written), version.version)


def delete_subject(state: State, subject: str, *, permanent: bool) -> Decision:
    check_writable(state, subject)
    if not state.has_subject(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if not permanent and not state.has_subject(subject):
        raise errors.subject_soft_deleted(subject)
    versions = state.versions(subject, deleted=permanent)
    for each in versions:
        referrers = state.referrers(subject, each.version, deleted=permanent)
        if any(other.subject != subject for other in referrers):
            raise errors.referenced(subject, each.version)
    if permanent and not all(each.deleted for each in versions):
        raise errors.subject_not_soft_deleted(subject)
    numbers = [each.version for each in versions]
    if not permanent:
        value = {"subject": subject, "version": numbers[-1]}
        return Decision((SchemasRecord(records.scoped_key(records.DELETE_SUBJECT, subject), value),), numbers)
    tombstones = [_tombstone(each) for each in reversed(versions)]  # a version may refer to an earlier one
    return Decision((*tombstones, records.noop(state.highest_ids()), *_end_of_settings(state, subject)), numbers)


def delete_context(state: State, context: str) -> Decision:
    if context == DEFAULT_CONTEXT or state.subjects_in(scope_of(context)):
        raise errors.context_not_empty(context)
    if context not in state.declared:
        return Decision((), None)
    return Decision((SchemasRecord(records.context_record(context).key, None),), None)


def check_writable(state: State, subject: str | None) -> None:
    if state.mode(subject) in READ_ONLY_MODES:
        where = DEFAULT_CONTEXT if subject is None else context_of(subject)
        raise errors.not_permitted(f"Subject {subject} in context {where} is in read-only mode")


def _tombstone(version: SchemaVersion) -> SchemasRecord:
    return SchemasRecord(records.schema_key(version.subject, version.version), None)


def _end_of_settings(state: State, subject: str) -> list[SchemasRecord]:
    kinds = [records.MODE] * (subject in state.modes) + [records.CONFIG] * (subject in state.configs)
    return [SchemasRecord(records.scoped_key(kind, subject), None) for kind in kinds]
