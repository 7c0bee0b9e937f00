"""Overlays and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from narrowing import expect
from penstock.pipelines.spec import documents
from penstock.pipelines.spec.documents import Mapping
from penstock.pipelines.spec.environments import overlay
from penstock.pipelines.spec.loading import bind, load
from penstock.pipelines.spec.model import TopicSource
from penstock.pipelines.spec.problems import PipelineInvalid

FILE = """\
name: orders-${region}
parameters:
  region: eu
  minimum: {type: int, default: 10}
  brokers: {type: string}
environments:
  prod:
    parameters: {brokers: "k:9092", region: us}
    sources: {orders: {starting_offsets: latest}}
    sinks: {copy: null, other: {from: orders, topic: others}}
bootstrap: ${brokers}
sources:
  orders: {topic: "orders.${region}", max_records: "${minimum}", options: {note: "$${region} costs $5"}}
sinks:
  copy: {from: orders, topic: copies}
"""

# On a busy machine it is the machine that is slow.
UNHURRIED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="\x85"), max_size=8)
SCALARS = st.one_of(WORDS, st.integers(-1000, 1000), st.booleans())
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))
DOCUMENTS = st.dictionaries(WORDS, TREES, min_size=1, max_size=4)


def document(value: dict[str, Any]) -> Mapping:
    return documents.parse(documents.dumped(value), "test.yaml")


@UNHURRIED
@given(DOCUMENTS)
def test_a_document_is_what_was_written(value: dict[str, Any]) -> None:
    assert documents.plain(document(value)) == value


@UNHURRIED
@given(DOCUMENTS, DOCUMENTS)
def test_laws_of_overlays(base: dict[str, Any], over: dict[str, Any]) -> None:
    below, above = document(base), document(over)
    merged = overlay(below, above)

    assert documents.plain(overlay(below, Mapping({}, below.location))) == base
    assert documents.plain(overlay(Mapping({}, below.location), above)) == over
    assert documents.plain(overlay(merged, above)) == documents.plain(merged)
    assert documents.plain(overlay(below, below)) == base
    assert set(merged.entries) == {*base, *over}
    for name, value in base.items():
        if name not in over:
            assert documents.plain(merged.entries[name].value) == value


@UNHURRIED
@given(DOCUMENTS)
def test_null_removes(base: dict[str, Any]) -> None:
    merged = overlay(document(base), document(dict.fromkeys(base)))

    assert documents.plain(merged) == {}


def test_parameters_overlays_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(FILE)

    plain = load(str(file), given={"brokers": "local:1", "minimum": "3"}).pipeline
    prod = load(str(file), "prod").pipeline
    changed = load(str(file), "prod", {"region": "asia"}).pipeline
    of_plain, of_prod, of_changed = (expect(TopicSource, each.sources["orders"]) for each in (plain, prod, changed))

    assert (plain.name, plain.bootstrap) == ("orders-eu", "local:1")
    assert of_plain.max_records == 3
    assert of_plain.options == {"note": "${region} costs $5"}
    assert list(plain.sinks) == ["copy"]
    assert (prod.name, prod.bootstrap, list(prod.sinks)) == ("orders-us", "k:9092", ["other"])
    assert of_prod.starting_offsets == "latest"
    assert of_prod.topic == ("orders.us",)
    assert of_changed.topic == ("orders.asia",)


@pytest.mark.parametrize(
    ("environment", "chosen", "message"),
    [
        (None, {}, '5:3: error: parameter "brokers" has no value; give it a default, or --set brokers=...'),
        ("prod", {"minimum": "few"}, '4:33: error: --set minimum: parameter "minimum": "few" is not of type int'),
        ("prod", {"minimun": "1"}, '2:1: error: --set minimun: no parameter "minimun"; did you mean "minimum"?'),
        ("prd", {"brokers": "x"}, '6:1: error: no environment "prd"; did you mean "prod"?'),
    ],
)
def test_wrong_settings(environment: str | None, chosen: dict[str, str], message: str) -> None:
    loaded = bind(documents.parse(FILE, "orders.yaml"), "orders.yaml", environment, chosen)

    assert [str(problem) for problem in loaded.problems] == [f"orders.yaml:{message}"]


def test_words_that_old_yaml_takes_for_something_else() -> None:
    tree = documents.parse("a: no\nb: on\nc: 2026-01-01\nd: 0o17\ne: 1_000\nf: 1e3\ng: ~\nh: 012\n", "x.yaml")

    assert documents.plain(tree) == {
        "a": "no", "b": "on", "c": "2026-01-01", "d": "0o17", "e": "1_000", "f": 1000.0, "g": None, "h": "012",
    }  # fmt: skip


def test_load_says_everything(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("nam: x\nsources: 3\n")

    with pytest.raises(PipelineInvalid) as failed:
        load(str(file))

    assert str(failed.value).splitlines() == [
        f'{file}:1:1: error: unknown field "nam" of a pipeline; did you mean "name"?',
        f"{file}:2:10: error: a mapping is needed here, not 3",
    ]
