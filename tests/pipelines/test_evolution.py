"""Which columns fields of JSON become."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipelines.engine.evolution import COLUMNS_MAX, added_columns, type_of


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], "BOOLEAN"),
        ([1, -(2**63)], "BIGINT"),
        ([2**63], "STRING"),
        ([1, 1.5], "DOUBLE"),
        (["2026-05-01"], "STRING"),
        ([True, 1], "STRING"),
        ([{"a": 1}], "STRING"),
        ([[1], "x"], "STRING"),
    ],
)
def test_types(values: list[Any], expected: str) -> None:
    assert type_of(values) == expected


def test_what_cannot_be_a_column_is_passed_over() -> None:
    taken = {"id": 1, "ID": 2, "_Key": 3, "__source": 4}
    fields = {**taken, "user-agent": 5, "": 6, "a.b": 7, "nothing": None, "More": 8, "more": 9}

    texts = [json.dumps(fields), "{'single': 'quotes'}", "[1]", "poison"]

    assert added_columns(["id"], {}, texts) == {"More": "BIGINT"}


def test_there_is_an_end_to_it() -> None:
    texts = [json.dumps({f"c{number}": 1}) for number in range(COLUMNS_MAX + 10)]

    added = added_columns([], {}, texts)

    assert len(added) == COLUMNS_MAX
    assert added_columns(added, added, texts) == {}


def records(seed: int) -> list[str]:
    random = Random(seed)
    values = [None, True, 7, 2.5, "text", [1], {"a": 1}]
    names = ["a", "b", "B", "c d", "e"]
    return [
        json.dumps({name: random.choice(values) for name in random.sample(names, random.randint(0, len(names)))})
        for _ in range(random.randint(0, 8))
    ]


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, SEEDS)
@settings(deadline=None)
def test_columns_are_added_once_and_stay(first: int, second: int) -> None:
    """Once they are known, the same records add nothing; later ones add others, and never one that is there."""
    added = added_columns(["a"], {}, records(first))

    assert added_columns(["a", *added], added, records(first)) == {}
    later = added_columns(["a", *added], added, records(second))
    names = [name.lower() for name in ("a", *added, *later)]
    assert len(set(names)) == len(names)


@given(SEEDS)
@settings(deadline=None)
def test_the_order_of_records_does_not_matter_to_types(seed: int) -> None:
    texts = records(seed)

    forward, backward = added_columns([], {}, texts), added_columns([], {}, texts[::-1])

    assert {name.lower() for name in forward} == {name.lower() for name in backward}
    for name in {*forward} & {*backward}:
        assert forward[name] == backward[name]
