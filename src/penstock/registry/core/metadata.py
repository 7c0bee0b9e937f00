"""Metadata and rules of a new schema: its own, else those of the version before it, and what the configuration adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.registry.core.state import SchemaVersion

Content = Mapping[str, Any]

_VERSION_PROPERTY = "confluent:version"


def metadata_of(given: Content | None, previous: SchemaVersion | None, config: Content, number: int) -> Content | None:
    """The metadata under which a schema is stored as version `number`."""
    own = given if given is not None else (previous.metadata if previous else None)
    merged = _merged(_merged(config.get("defaultMetadata"), own), config.get("overrideMetadata"))
    if merged is not None and _VERSION_PROPERTY in (merged.get("properties") or {}):
        return {**merged, "properties": {**merged["properties"], _VERSION_PROPERTY: str(number)}}
    return merged


def rule_set_of(given: Content | None, previous: SchemaVersion | None, config: Content) -> Content | None:
    own = given if given is not None else (previous.rule_set if previous else None)
    return _merged_rules(_merged_rules(config.get("defaultRuleSet"), own), config.get("overrideRuleSet"))


def property_of(metadata: Content | None, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)


def _merged(first: Content | None, second: Content | None) -> Content | None:
    if not first or not second:
        return first if second is None else second
    result = {**first, **second}
    for name in ("tags", "properties"):
        both = {**(first.get(name) or {}), **(second.get(name) or {})}
        if both:
            result[name] = both
    sensitive = sorted({*(first.get("sensitive") or ()), *(second.get("sensitive") or ())})
    if sensitive:
        result["sensitive"] = sensitive
    return result


def _merged_rules(first: Content | None, second: Content | None) -> Content | None:
    """Rules of the second replace those of the same name in the first."""
    if not first or not second:
        return first if second is None else second
    result = {**first, **second}
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        new = second.get(kind) or []
        names = {rule.get("name") for rule in new}
        both = [rule for rule in first.get(kind) or [] if rule.get("name") not in names] + list(new)
        if both:
            result[kind] = both
    return result
