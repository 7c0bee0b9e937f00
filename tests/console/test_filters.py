"""Filters on columns find what a look at each record finds."""

from __future__ import annotations

import json
import random
import re

import pytest

from penstock.console.observe.access import ClusterAccess
from penstock.console.observe.json_columns import numbers_match
from penstock.console.observe.records import TopicReader, key_bytes, partitions_of
from penstock.console.views.json_path import parse_condition
from penstock.console.views.query import parse_query

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

CONDITIONS = (
    "total > 50",
    "total = 7",
    "total = 7.5",
    "order.total <= 3",
    "order.total != 3",
    'status = "open"',
    "status ~ pe",
    "status = schön",
    "flag = true",
    "missing",
    "order",
    "items[0] = 1",
    "place = a/b",
)


def values(kind: str) -> list[bytes | None]:
    chance = random.Random(kind)
    documents: list[bytes | None] = []
    for index in range(500):
        document: object = {
            "id": index,
            "total": chance.choice([7, 7.0, 7.5, 70, 0.7e1, -3]),
            "order": {"total": index % 5},
            "status": chance.choice(["open", "paid", "schön"]),
            "flag": index % 3 == 0,
            "items": [index % 2],
            "place": chance.choice(["a/b", "c"]),
        }
        text = json.dumps(document)
        if kind == "escaped":
            text = escaped(text, chance)
        if kind == "mixed":
            text = chance.choice(
                [text, json.dumps(document, indent=1), "[1]", "not JSON: total", '{"total": "7"}', "", text + text]
            )
        documents.append(None if kind == "mixed" and index % 50 == 0 else text.encode())
    return documents


def escaped(text: str, chance: random.Random) -> str:
    """The same JSON, some letters and slashes of it written otherwise; most documents have such only beyond ASCII."""
    if chance.random() < 0.7:
        return text
    written = re.sub('[a-z](?=[a-z]*"|/)', lambda found: _escape(found[0]) if chance.random() < 0.2 else found[0], text)
    assert json.loads(written) == json.loads(text)
    return written.replace("/", "\\/") if chance.random() < 0.5 else written


def _escape(letter: str) -> str:
    return f"\\u{ord(letter):04x}"


@pytest.mark.parametrize("kind", ["alike", "mixed", "escaped"])
@pytest.mark.parametrize("where", CONDITIONS)
def test_conditions_on_columns(kind: str, where: str) -> None:
    given = values(kind)
    batch = pa.record_batch(
        {"key": pa.nulls(len(given), pa.binary()), "value": pa.array(given, pa.binary()), "offset": range(len(given))}
    )
    reader = TopicReader(ClusterAccess("nowhere:1"), "t")
    found = reader._matching(batch, parse_query({"where": where})).column("offset").to_pylist()
    condition = parse_condition(where)

    def holds(text: bytes | None) -> bool:
        try:
            return condition.holds(json.loads(text or b""))
        except ValueError:
            return False

    assert found == [index for index, text in enumerate(given) if holds(text)]


def test_numbers_of_a_column_are_compared_at_once_only_where_that_is_right() -> None:
    def compared(where: str, *texts: bytes) -> list[bool] | None:
        found = numbers_match(pa.array(texts, pa.binary()), parse_condition(where))
        return None if found is None else found.to_pylist()

    assert compared("a.b >= 2", b'{"a": {"b": 2}, "c": [1]}', b'{"a": {"b": 1.5}}', b'{"b": 7, "a": null}') == [
        True,
        False,
        False,
    ]
    assert compared("a > 1", b'{"a": "2"}') is None
    assert compared("a > 1", b'{"a": 2}{"a": 3}') is None
    assert compared("a > 1", b'{"a": 2}\n{"a": 3}', b'{"a": 2}') is None
    assert compared("a > 1", b"[2]") is None
    assert compared("a = x", b'{"a": 2}') is None
    assert compared("a[0] > 1", b'{"a": [2]}') is None


def test_a_key_is_looked_for_where_clients_put_it() -> None:
    assert key_bytes("0x00ff") == b"\x00\xff"
    assert key_bytes("0xno") == b"0xno"
    assert partitions_of(b"customer-7", 1) == {0}
    assert all(1 <= len(partitions_of(f"k{index}".encode(), 12)) <= 2 for index in range(50))
