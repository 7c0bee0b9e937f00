"""Fields that are never shown, by rule: `TOPIC:PATH`, such as `payments.*:card.number`; `*` stands for any text.

A topic with a rule has its values read as JSON, and the field replaced, before anything else sees them: also filters,
so that a masked value cannot be found by guessing it. A value that is not JSON cannot be masked in part, and is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from penstock.client.errors import BadSetting
from penstock.console.views.decoding import SchemaDecoder, document_of
from penstock.console.views.json_path import BadPath, Path, parse_path

MASK = "•••"
HIDDEN = json.dumps(f"{MASK} hidden: fields of this topic are masked, and this value is not JSON").encode()


@dataclass(frozen=True, slots=True)
class MaskRule:
    topics: str
    path: Path


def parse_rule(text: str) -> MaskRule:
    topics, colon, path = text.partition(":")
    try:
        if not colon or not topics:
            raise BadPath("no topic")
        return MaskRule(topics, parse_path(path))
    except BadPath:
        raise BadSetting(f"--mask {text!r} is not TOPIC:PATH, such as payments:card.number") from None


def paths_for(topic: str, rules: Iterable[MaskRule]) -> tuple[Path, ...]:
    return tuple(rule.path for rule in rules if fnmatchcase(topic, rule.topics))


def masked(value: bytes | None, paths: tuple[Path, ...], schema: SchemaDecoder | None = None) -> bytes | None:
    if not paths or not value:
        return value
    document = document_of(value, schema)
    if not isinstance(document, dict | list):
        return HIDDEN
    for path in paths:
        _mask(document, path)
    return json.dumps(document, ensure_ascii=False, default=str).encode(errors="replace")


def _mask(document: Any, path: Path) -> None:
    """In place; a step through a list applies to all its elements, unless it is a number."""
    if isinstance(document, list) and isinstance(path[0], str):
        for each in document:
            _mask(each, path)
        return
    step, rest = path[0], path[1:]
    inside = (isinstance(document, dict) and step in document) or (
        isinstance(document, list) and isinstance(step, int) and -len(document) <= step < len(document)
    )
    if not inside:
        return
    if rest:
        _mask(document[step], rest)
    else:
        document[step] = MASK
