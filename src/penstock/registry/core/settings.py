"""Configuration and mode: of a subject, of a context, of everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.registry.core import errors, records
from penstock.registry.core.decision import Decision
from penstock.registry.core.deletion import check_writable
from penstock.registry.core.errors import RegistryError
from penstock.registry.core.names import GLOBAL_SCOPE
from penstock.registry.core.records import SchemasRecord
from penstock.registry.core.state import State
from penstock.schemas import Compatibility, Policy

# Names in a request; `compatibility` is `compatibilityLevel` in answers and records.
_CONFIG_TYPES: Final[Mapping[str, type]] = {
    "alias": str,
    "aliasForDeks": str,
    "normalize": bool,
    "validateFields": bool,
    "validateNewSchemas": bool,
    "validateRules": bool,
    "compatibilityLevel": str,
    "compatibilityPolicy": str,
    "compatibilityGroup": str,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}
_MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


def get_config(state: State, subject: str | None, *, in_scope: bool) -> Mapping[str, Any]:
    """The configuration; 40408 if a subject has none of its own and that of its scope is not asked for."""
    if subject is not None and subject != GLOBAL_SCOPE and not in_scope and subject not in state.configs:
        raise errors.no_compatibility(subject)
    return state.config(subject)


def set_config(state: State, subject: str | None, body: object) -> Decision:
    """Change what the request names; null removes a setting."""
    changes = _config_changes(body)
    check_writable(state, subject)
    config = {name: value for name, value in {**state.configs.get(subject, {}), **changes}.items() if value is not None}
    value = {**({} if subject is None else {"subject": subject}), **config}
    answer = {name: value for name, value in config.items() if name != "compatibilityLevel"}
    if "compatibilityLevel" in config:
        answer["compatibility"] = config["compatibilityLevel"]
    return Decision((SchemasRecord(records.scoped_key(records.CONFIG, subject), value),), answer)


def delete_config(state: State, subject: str | None) -> Decision:
    check_writable(state, subject)
    if subject is not None and subject not in state.configs:
        raise errors.subject_not_found(subject)
    answer = state.config(subject)
    if subject not in state.configs:
        return Decision((), answer)
    return Decision((SchemasRecord(records.scoped_key(records.CONFIG, subject), None),), answer)


def get_mode(state: State, subject: str | None, *, in_scope: bool) -> dict[str, str]:
    if subject is not None and subject != GLOBAL_SCOPE and not in_scope and subject not in state.modes:
        raise errors.no_mode(subject)
    return {"mode": state.mode(subject)}


def set_mode(state: State, subject: str | None, body: object, *, force: bool) -> Decision:
    """Change the mode. IMPORT, in which clients give ids themselves, needs an empty subject or context, or `force`."""
    given = body.get("mode") if isinstance(body, dict) else None
    if not isinstance(given, str) or given.upper() not in _MODES:
        raise errors.invalid_mode()
    mode = given.upper()
    if mode == "FORWARD" and subject != GLOBAL_SCOPE:
        raise RegistryError(42204, "Forward mode only supported on global level")
    written: list[SchemasRecord] = []
    if mode == "IMPORT" and state.mode(subject) != "IMPORT" and not force:
        written = _cleared(state, subject)
    value = {**({} if subject is None else {"subject": subject}), "mode": mode}
    written.append(SchemasRecord(records.scoped_key(records.MODE, subject), value))
    return Decision(tuple(written), {"mode": mode})


def delete_mode(state: State, subject: str | None) -> Decision:
    if subject is not None and subject not in state.modes:
        raise errors.subject_not_found(subject)
    answer = {"mode": state.modes.get(subject, state.mode(subject))}
    if subject not in state.modes:
        return Decision((), answer)
    return Decision((SchemasRecord(records.scoped_key(records.MODE, subject), None),), answer)


def _cleared(state: State, scope: str | None) -> list[SchemasRecord]:
    """The end of all softly deleted versions; 42205 if there are others."""
    written: list[SchemasRecord] = []
    for subject in state.subjects_in(scope or ""):
        if state.has_subject(subject):
            raise errors.not_permitted("Cannot import since found existing subjects")
        for each in state.versions(subject, deleted=True):
            if state.referrers(subject, each.version, deleted=True):
                raise errors.referenced(subject, each.version)
            written.append(SchemasRecord(records.schema_key(subject, each.version), None))
    if written:
        written.append(records.noop(state.highest_ids()))
    value = {} if scope is None else {"subject": scope}
    written.append(SchemasRecord(records.scoped_key(records.CLEAR_SUBJECT, scope), value))
    return written


def _config_changes(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RegistryError(422, "The body must be a JSON object")
    changes = {name: body[name] for name in _CONFIG_TYPES if name in body}
    if "compatibility" in body:
        changes["compatibilityLevel"] = body["compatibility"]
    level = changes.get("compatibilityLevel")
    if level is not None:
        if not isinstance(level, str) or level.upper() not in Compatibility.__members__:
            raise errors.invalid_compatibility()
        changes["compatibilityLevel"] = level.upper()
    policy = changes.get("compatibilityPolicy")
    if policy is not None:
        if not isinstance(policy, str) or policy.upper() not in Policy.__members__:
            raise RegistryError(42203, f"Invalid compatibility policy. Valid values are {' and '.join(Policy)}")
        changes["compatibilityPolicy"] = policy.upper()
    for name, value in changes.items():
        if value is not None and not isinstance(value, _CONFIG_TYPES[name]):
            raise RegistryError(422, f"{name} must be a JSON {_CONFIG_TYPES[name].__name__}")
    return changes
