"""GUIDs: the MD5 of everything that makes a schema what it is, as a UUID.

Confluent's clients put it into record headers, so the bytes that are hashed, and their order, are Confluent's: the
text, the references, the metadata and the rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.schemas import Reference


def guid_of(
    schema: str,
    references: Sequence[Reference] = (),
    metadata: Mapping[str, Any] | None = None,
    rule_set: Mapping[str, Any] | None = None,
) -> str:
    parts = [schema.encode()]
    for reference in references:
        parts += [
            reference.name.encode(),
            reference.subject.encode(),
            reference.version.to_bytes(4, "big", signed=True),
        ]
    if metadata is not None:
        parts += [b"\x01", *_metadata_parts(metadata)]
    if rule_set is not None:
        parts += [b"\x01", *_rule_set_parts(rule_set)]
    digits = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _metadata_parts(metadata: Mapping[str, Any]) -> Iterable[bytes]:
    for key, values in sorted((metadata.get("tags") or {}).items()):
        yield str(key).encode()
        yield from (str(value).encode() for value in sorted(values))
    for key, value in sorted((metadata.get("properties") or {}).items()):
        yield str(key).encode()
        yield str(value).encode()
    yield from (str(value).encode() for value in sorted(metadata.get("sensitive") or ()))


def _rule_set_parts(rule_set: Mapping[str, Any]) -> Iterable[bytes]:
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rule_set.get(kind) or ():
            yield from _rule_parts(rule)
    if rule_set.get("enableAt"):
        yield str(rule_set["enableAt"]).encode()


def _rule_parts(rule: Mapping[str, Any]) -> Iterable[bytes]:
    yield from (
        str(rule[name]).encode() for name in ("name", "doc", "kind", "mode", "type") if rule.get(name) is not None
    )
    yield from (str(tag).encode() for tag in sorted(rule.get("tags") or ()))
    for key, value in sorted((rule.get("params") or {}).items()):
        yield str(key).encode()
        yield str(value).encode()
    yield from (str(rule[name]).encode() for name in ("expr", "onSuccess", "onFailure") if rule.get(name) is not None)
    if rule.get("disabled"):
        yield b"\x01"
