"""Makes a first pipeline from records of a topic: a source with their schema, a step, a sink, and tests: pure.

The tests are made of the records themselves: a few that have every field and type that was seen, what the sink writes
for each of them, and records that do not decode. They pass as they are, so that the first edit has tests already. A
value whose output is not certain without Spark (`inference.written`) is given, but not expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from penstock.pipelines.operate.inference import Inferred, infer_columns, misfits, written
from penstock.pipelines.spec import documents, sql
from penstock.pipelines.spec.problems import PipelineInvalid

STEP = "selected"
_TESTED_MAX = 3
_POISON_MAX = 2
_TEXT_MAX = 2000
"""Longer values make tests hard to read."""
_POISON = "not JSON"
_STRICT = ("BIGINT", "DOUBLE", "BOOLEAN")
"""Types that text never has."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/.-]*( [A-Za-z0-9_/.-]+)*")
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))

Format = Literal["json", "string", "bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A record of the topic."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold:
    text: str
    """Of the file."""
    format: Format
    columns: int
    tests: int


def scaffold(topic: str, records: Sequence[Sampled], *, name: str, bootstrap: str, to: str) -> Scaffold:
    """`to`: the topic that the pipeline writes."""
    values = [each.value for each in records if each.value is not None]
    objects = [made for made in map(_object, values) if made is not None]
    columns, others = infer_columns(objects) if 2 * len(objects) >= len(values) else ({}, [])
    coding: Format = "json" if columns else "string"
    if coding == "string" and not all(_text(value) is not None for value in values):
        coding = "bytes"
    source = re.sub(r"\W", "_", topic, flags=re.ASCII)
    source = source if re.match(r"[A-Za-z]", source) and source != STEP else f"topic_{source}"
    keys = [each.key for each in records if each.key is not None]
    binary_key = not all(_text(key) is not None for key in keys)
    tests = list(_tests(coding, columns, records, source, has_keys=bool(keys) and not binary_key))
    lines = [
        f"# Made by `penstock pipeline init {topic}`, from {len(records)} records. The tests contain some of them.",
        f"name: {_scalar(name)}",
        f"bootstrap: {_scalar(bootstrap)}",
        "",
        "sources:",
        f"  {source}:",
        f"    topic: {_scalar(topic)}",
        *(["    key: bytes"] if binary_key else []),
        *(f"    {line}" for line in _value(coding, columns, others, objects)),
        "",
        "steps:",
        f"  {STEP}:",
        "    sql: |",
        *(f"      {_escaped(line)}" for line in _select(columns, source)),
        "    # Records of which a condition is not true become dead letters:",
        "    # expect:",
        f"    #   - that: {_example(columns)}",
        "",
        "sinks:",
        f"  {STEP}:",
        f"    from: {STEP}",
        f"    topic: {_scalar(to)}",
        *(["    key: _key"] if keys else []),
        *([] if coding == "json" else [f"    value: {{format: {coding}, column: value}}"]),
    ]
    if tests:
        lines += ["", "tests:", *(f"  {line}" if line else "" for test in tests for line in test)]
    else:
        lines += ["", "# No tests: the values are binary, and rows of tests are text."]
    return Scaffold(text="\n".join(lines) + "\n", format=coding, columns=len(columns) or 1, tests=len(tests))


# -- The source and the step.


def _value(
    coding: Format, columns: Mapping[str, Inferred], others: list[str], objects: list[dict[str, Any]]
) -> Iterator[str]:
    if coding != "json":
        yield f"value: {{format: {coding}}}"
        return
    yield "value:"
    yield "  format: json"
    always = [name for name in columns if all(each.get(name) is not None for each in objects)]
    if always:
        yield f"  # In all records: {_listed(always)}. NOT NULL makes dead letters of records without."
    for name in columns:
        count = sum(name in misfits(each, {name: columns[name]}) for each in objects)
        if count:
            yield f"  # {_shown(name)} is no {columns[name].kind} in {count} of them: these become dead letters."
    if others:
        yield f"  # Left out, because they cannot be columns: {_listed(others)}."
    yield "  schema: |"
    ddl = [f"{sql.identifier(name)} {_ddl(kind)}" for name, kind in columns.items()]
    for index, line in enumerate(ddl):
        yield f"    {_escaped(line)}{',' if index < len(ddl) - 1 else ''}"


def _ddl(kind: Inferred) -> str:
    if kind.kind == "STRUCT":
        fields = (f"{sql.identifier(name)}: {_ddl(each)}" for name, each in kind.fields.items())
        return f"STRUCT<{', '.join(fields)}>"
    if kind.kind == "ARRAY":
        assert kind.item is not None
        return f"ARRAY<{_ddl(kind.item)}>"
    if kind.kind == "MAP":
        assert kind.item is not None
        return f"MAP<STRING, {_ddl(kind.item)}>"
    return kind.kind


def _select(columns: Mapping[str, Inferred], source: str) -> Iterator[str]:
    names = [sql.identifier(name) for name in columns] or ["value"]
    yield "SELECT _key,"
    for index, name in enumerate(names):
        yield f"  {name}{',' if index < len(names) - 1 else ''}"
    yield f"FROM {source}"


def _example(columns: Mapping[str, Inferred]) -> str:
    number = next((name for name, kind in columns.items() if kind.kind in ("BIGINT", "DOUBLE")), None)
    if number is not None:
        return f"{sql.identifier(number)} >= 0"
    return f"{sql.identifier(next(iter(columns), 'value'))} IS NOT NULL"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(_shown, names[:20]))
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _shown(name: str) -> str:
    """In a comment."""
    return name if name.isprintable() else json.dumps(name)


# -- Tests.


def _tests(
    coding: Format, columns: Mapping[str, Inferred], records: Sequence[Sampled], source: str, *, has_keys: bool
) -> Iterator[list[str]]:
    if coding == "bytes":
        return
    usable = [each for each in records if each.value is not None and len(each.value) <= _TEXT_MAX] or list(records)
    good: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for each in _telling(usable, columns) if coding == "json" else _distinct(usable):
        expected = _expected(each, columns) if coding == "json" else {"value": _parsed(each.value)}
        key = {"key": _text(each.key)} if has_keys else {}
        given, expected = {**key, **_given(each, coding, columns)}, {**key, **expected}
        if _can_be_written(given) and _can_be_written(expected):
            good.append((given, expected))
        if len(good) == _TESTED_MAX:
            break
    if good:
        yield [
            "- name: records are passed on",
            "  given:",
            f"    {source}:",
            *(f"      - {_flow(given)}" for given, _ in good),
            "  expect:",
            f"    {STEP}:",
            *(f"      - {_flow(expected)}" for _, expected in good),
        ]
    if coding == "json":
        bad = list(_poison(usable, columns))
        yield [
            "- name: records that do not decode become dead letters",
            "  given:",
            f"    {source}:",
            *(f"      - {_flow({'value': value})}" for value, _ in bad),
            "  dead_letters:",
            *(f"    - {_flow({'offset': number, **letter})}" for number, (_, letter) in enumerate(bad)),
        ]


def _telling(records: Iterable[Sampled], columns: Mapping[str, Inferred]) -> list[Sampled]:
    """Records that fit, the newest of each shape; those first that show something that the others before do not."""
    seen: set[tuple[str, str]] = set()
    first: list[Sampled] = []
    rest: list[Sampled] = []
    for each in reversed(list(records)):
        value = _object(each.value)
        if value is None or misfits(value, columns):
            continue
        shape = {(name, type(item).__name__) for name, item in value.items()}
        (rest if shape <= seen else first).append(each)
        seen |= shape
    return [*first, *rest]


def _distinct(records: Iterable[Sampled]) -> list[Sampled]:
    return list({each.value: each for each in reversed(list(records)) if each.value is not None}.values())


def _poison(records: Iterable[Sampled], columns: Mapping[str, Inferred]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Values that do not decode, and their dead letters: of the topic, or else a made-up one."""
    texts = [
        _text(each.value) for each in records if each.value is not None and _parsed(each.value) == _text(each.value)
    ]
    found: list[tuple[Any, dict[str, Any]]] = [
        (text, {"reason": _POISON}) for text in dict.fromkeys(texts) if text and _can_be_written(text)
    ]
    for each in records:
        value = {name: item for name, item in (_object(each.value) or {}).items() if name in columns}
        wrong = misfits(value, columns)
        certain = [name for name in wrong if columns[name].kind in _STRICT and isinstance(value[name], str)]
        if wrong and wrong == certain and _can_be_written(value):
            found.append((value, {"reason": "does not fit the schema", "field": ", ".join(wrong)}))
            break
    yield from found[-_POISON_MAX:] or [("no JSON at all", {"reason": _POISON})]


def _given(record: Sampled, coding: Format, columns: Mapping[str, Inferred]) -> dict[str, Any]:
    value: Any = _text(record.value)
    if coding == "json":
        value = {name: each for name, each in (_object(record.value) or {}).items() if name in columns}
    time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {"value": value, "timestamp": time.replace("+00:00", "Z")}


def _expected(record: Sampled, columns: Mapping[str, Inferred]) -> dict[str, Any]:
    value = _object(record.value) or {}
    return {"value": written(value, Inferred("STRUCT", columns))}


# -- Values and their text.


def _object(value: bytes | None) -> dict[str, Any] | None:
    parsed = _parsed(value)
    return parsed if isinstance(parsed, dict) else None


def _parsed(value: bytes | None) -> Any:
    """As JSON; text that is none as it is."""
    text = _text(value)
    try:
        return json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        return text


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _can_be_written(value: Any) -> bool:
    """Whether YAML gives it back: not NaN, for one."""
    try:
        read = documents.plain(documents.parse(f"row: {_flow(value)}\n", "row"))
    except (PipelineInvalid, ValueError):
        return False
    return bool(json.dumps(read) == json.dumps({"row": value}).replace("${", "$${"))


def _flow(value: Any) -> str:
    """YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(name)}: {_flow(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return _escaped(json.dumps(text, ensure_ascii=not text.isprintable()))


def _escaped(text: str) -> str:
    """`${` begins a parameter."""
    return text.replace("${", "$${")
