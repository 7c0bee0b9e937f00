"""Infers columns from values of JSON: pure.

A type holds all values that a column has in the sample. If nearly all of them have one type (`AGREEMENT`), it is that
type: one record with text in a column of numbers must not make text of all numbers. The records that then do not fit
become dead letters, and `misfits` names them.

`written` is what Spark writes as JSON for a value that it has read with such a type, for values of which that is
certain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.pipelines.spec.model import METADATA_COLUMNS

AGREEMENT = 0.95
FIELDS_MAX = 100
"""Of one object. An object with more has data as names: a map."""

_BIGINT = range(-(2**63), 2**63)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
_SPECIAL_NUMBERS = frozenset(("NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF"))
UNCERTAIN = object()
"""Instead of a value that `written` does not know."""


@dataclass(frozen=True, slots=True)
class Inferred:
    kind: str
    """BOOLEAN, BIGINT, DOUBLE, TIMESTAMP, STRING, STRUCT, ARRAY or MAP."""
    fields: Mapping[str, Inferred] = field(default_factory=dict)
    item: Inferred | None = None
    """Of an array, or of the values of a map."""


TEXT = Inferred("STRING")


def infer(values: Iterable[Any]) -> Inferred:
    """The type of these values of JSON; NULL tells nothing."""
    there = [value for value in values if value is not None]
    counts = Counter(map(_kind, there))
    if counts["BIGINT"] and counts["DOUBLE"]:
        counts["DOUBLE"] += counts.pop("BIGINT")
    if counts["TIMESTAMP"] < AGREEMENT * (counts["TIMESTAMP"] + counts["STRING"]):
        counts["STRING"] += counts.pop("TIMESTAMP", 0)
    kind, count = max(counts.items(), key=lambda each: each[1], default=("STRING", 0))
    if count < AGREEMENT * len(there):
        return TEXT
    if kind == "ARRAY":
        return Inferred(kind, item=infer(item for value in there if isinstance(value, list) for item in value))
    if kind == "STRUCT":
        return _object([value for value in there if isinstance(value, dict)])
    return Inferred(kind)


def infer_columns(objects: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Inferred], list[str]]:
    """The columns of records, and the fields that cannot be columns."""
    names = list(dict.fromkeys(name for each in objects for name in each))
    columns: dict[str, Inferred] = {}
    others: list[str] = []
    lowered: set[str] = set()
    for name in names:
        if name.lower() in lowered or not _can_be_column(name) or len(columns) == FIELDS_MAX:
            others.append(name)
            continue
        lowered.add(name.lower())
        columns[name] = infer(each.get(name) for each in objects)
    return columns, others


def misfits(value: Mapping[str, Any], columns: Mapping[str, Inferred]) -> list[str]:
    """The columns that the value of a record does not fit."""
    return [name for name, kind in columns.items() if not _fits(value.get(name), kind)]


def written(value: Any, kind: Inferred) -> Any:
    """What Spark writes for a value that fits; UNCERTAIN, or an object without them, where that is not known."""
    if value is None:
        return None
    if kind.kind == "STRUCT":
        return _known({name: written(value[name], each) for name, each in kind.fields.items() if name in value})
    if kind.kind == "MAP":
        assert kind.item is not None
        return _known({name: written(each, kind.item) for name, each in value.items()})
    if kind.kind == "ARRAY":
        assert kind.item is not None
        items = [written(each, kind.item) for each in value]
        return UNCERTAIN if any(each is UNCERTAIN for each in items) else items
    if kind.kind == "TIMESTAMP":
        return _time_text(value)
    return value if _kind(value) == kind.kind or (_is_number(value) and kind.kind == "DOUBLE") else UNCERTAIN


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if value in _BIGINT else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, dict):
        return "STRUCT"
    if isinstance(value, list):
        return "ARRAY"
    return "TIMESTAMP" if _time(value) is not None else "STRING"


def _object(values: list[dict[str, Any]]) -> Inferred:
    names = list(dict.fromkeys(name for each in values for name in each))
    distinct = {name.lower() for name in names}
    if not 0 < len(names) <= FIELDS_MAX or len(distinct) < len(names) or not all(map(_can_be_column, names)):
        return Inferred("MAP", item=infer(item for each in values for item in each.values()))
    return Inferred("STRUCT", {name: infer(each.get(name) for each in values) for name in names})


def _can_be_column(name: str) -> bool:
    hidden = name.startswith("__") or name.lower() in METADATA_COLUMNS
    return bool(name) and not hidden and name.isprintable() and "`" not in name


def _fits(value: Any, kind: Inferred) -> bool:
    """Whether Spark reads the value as this type, as far as the types above can differ."""
    if value is None or kind.kind == "STRING":
        return True
    if kind.kind == "STRUCT":
        return isinstance(value, dict) and all(_fits(value.get(name), each) for name, each in kind.fields.items())
    if kind.kind == "MAP":
        return isinstance(value, dict) and all(_fits(each, kind.item or TEXT) for each in value.values())
    if kind.kind == "ARRAY":
        return isinstance(value, list) and all(_fits(each, kind.item or TEXT) for each in value)
    if kind.kind == "DOUBLE":
        return _is_number(value) or value in _SPECIAL_NUMBERS
    if kind.kind == "TIMESTAMP":
        return isinstance(value, str) and _time(value) is not None
    return _kind(value) == kind.kind


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _time(text: str) -> datetime | None:
    if _TIME.fullmatch(text) is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _time_text(text: str) -> str:
    """A pipeline's session is in UTC, and Spark writes milliseconds."""
    time = _time(text)
    assert time is not None
    return f"{time.astimezone(UTC).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def _known(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not UNCERTAIN}
