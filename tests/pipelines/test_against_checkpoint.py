"""Which edits of a pipeline its checkpoints survive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.main import run
from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.checkpoint_edits import compare, worst
from penstock.pipelines.check.checkpoint_shape import QueryShape, SourceShape, StepShape, shape_of
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.spec.documents import parse
from penstock.pipelines.spec.loading import bind

FILE = """\
name: shop
sources:
  orders:
    topic: [orders]
    value: {format: json, schema: "id BIGINT, customer BIGINT, amount DOUBLE, at TIMESTAMP"}
    watermark: {column: at, delay: 1 minute}
  refunds:
    topic: [refunds]
    value: {format: json, schema: "id BIGINT, at TIMESTAMP"}
    watermark: {column: at, delay: 1 minute}
  names: {format: csv, mode: lookup, path: names.csv, schema: "id BIGINT, name STRING"}
  bills: {format: jdbc, mode: incremental, cursor: id, schema: "id BIGINT, no BIGINT"}
steps:
  valid: {sql: "SELECT id, customer, amount, at FROM orders WHERE amount > 0"}
  totals:
    sql: |
      SELECT customer, window.start AS s, sum(amount) AS total FROM valid
      GROUP BY customer, window(at, '1 hour')
  named: {sql: "SELECT totals.*, name FROM totals JOIN names ON customer = id"}
  both: {sql: "SELECT id, at FROM orders UNION ALL SELECT id, at FROM refunds"}
  pairs: {sql: "SELECT o.id, o.amount FROM orders o JOIN refunds r ON o.id = r.id AND r.at > o.at"}
sinks:
  valid: {from: valid, topic: valid}
  named: {from: named, topic: named}
  both: {from: both, topic: both}
  pairs: {from: pairs, topic: pairs}
  bills: {from: bills, topic: bills}
"""


def shapes(text: str) -> dict[str, QueryShape]:
    pipeline = bind(parse(text, "shop.yaml"), "shop.yaml").pipeline
    analysis = analyse(pipeline)
    assert analysis.findings == []
    queries = plan(pipeline, analysis)
    return {name: shape_of(pipeline, analysis, query, ".", pipeline.bootstrap) for name, query in queries.items()}


def verdicts(was: str, now: str) -> dict[str, str]:
    """Of all queries that an edit changes, but for those that come and go."""
    assert was in FILE
    old, new = shapes(FILE), shapes(FILE.replace(was, now))
    compared = {name: compare(old[name], new[name], name) for name in old if name in new}
    return {name: worst(edits) for name, edits in compared.items() if edits}


NEW = "new checkpoint"
OF_ORDERS = ("orders", "totals", "both", "pairs")
"""Queries that read them."""
CASES = [
    ("nothing but form", "SELECT id, customer, amount", "select  id,  customer, amount", {}),
    ("a topic more", "[orders]", "[orders, more]", dict.fromkeys(OF_ORDERS, "safe")),
    ("another topic", "[orders]", "[others]", dict.fromkeys(OF_ORDERS, "refused")),
    ("another cursor", "cursor: id", "cursor: no", {"bills": "refused"}),
    (
        "another order",
        "orders UNION ALL SELECT id, at FROM refunds",
        "refunds UNION ALL SELECT id, at FROM orders",
        {"both": "refused"},
    ),
    ("another lookup", "path: names.csv", "path: people.csv", {"totals": "safe"}),
    ("another condition", "WHERE amount > 0", "WHERE amount > 10", {"orders": "safe", "totals": "safe"}),
    ("a column more", "id, customer, amount, at FROM", "*, _key FROM", {"orders": "safe", "totals": "safe"}),
    ("computed otherwise", "amount, at FROM", "2 * amount AS amount, at FROM", {"orders": "safe", "totals": NEW}),
    ("after the state", "SELECT totals.*, name", "SELECT totals.customer, name", {"totals": "safe"}),
    ("another window", "window(at, '1 hour')", "window(at, '2 hours')", {"totals": NEW}),
    ("another aggregate", "sum(amount) AS total", "sum(amount) AS total, count(*) AS n", {"totals": NEW}),
    ("an aggregate by another name", "sum(amount) AS total", "sum(amount) AS sum", {"totals": "safe"}),
    ("more of a join", "SELECT o.id, o.amount", "SELECT o.id, o.amount, o.at", {"pairs": NEW}),
    ("another delay", "1 minute}\n  refunds", "2 minutes}\n  refunds", dict.fromkeys(OF_ORDERS, "safe")),
    (
        "another type",
        "amount DOUBLE",
        "amount DECIMAL(12,2)",
        {"orders": "safe", "totals": NEW, "both": "safe", "pairs": NEW},
    ),
    ("a field more", "customer BIGINT, ", "customer BIGINT, more STRING, ", dict.fromkeys(OF_ORDERS, "safe")),
    ("another sink", "topic: valid", "topic: checked", {"orders": "safe"}),
    ("a sink more", "sinks:\n", "sinks:\n  more: {from: both, topic: x}\n", {"both": "safe"}),
]


@pytest.mark.parametrize(("was", "now", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_verdicts(was: str, now: str, expected: dict[str, str]) -> None:
    assert verdicts(was, now) == expected


def test_messages() -> None:
    old, new = shapes(FILE), shapes(FILE.replace("sum(amount)", "max(amount)").replace("[orders]", "[others]"))

    edits = [(edit.verdict, edit.message, edit.path) for edit in compare(old["totals"], new["totals"], "totals")]

    assert edits == [
        ("refused", "it read orders, and reads others now", ("sources", "orders", "topic")),
        ("new checkpoint", "its state was made of: SUM(amount)", ("steps", "totals")),
    ]


def made(seed: int) -> QueryShape:
    """Any shape. Drawn at once: parts of parts would take longer to draw than to compare."""
    random = Random(seed)

    def some(*choices: str, most: int = 2) -> list[str]:
        return random.sample(choices, random.randint(0, most))

    def source() -> SourceShape:
        return SourceShape(
            kind=random.choice(["topics", "stream of json"]),
            place=tuple(some("x", "y", "z") or ["x"]),
            bootstrap=random.choice("mn"),
            decoding=random.choice(["json", "string"]),
            columns={name: random.choice(["INT", "STRING"]) for name in some("a", "b", "c")},
            watermark_column=random.choice(["", "at"]),
            watermark_delay=random.choice(["1s", "2s"]),
            cursor=random.choice(["", "id"]),
            expect=tuple(some("p", "q", most=1)),
        )

    def step() -> StepShape:
        columns = {name: random.choice("ab") for name in some("a", "b", "c")}
        return StepShape(
            text=random.choice("tu"),
            state=tuple(some("g", "h", most=1)),
            columns=random.choice([None, columns]),
            frame=random.choice("fg"),
            expect=tuple(some("p", "q", most=1)),
        )

    return QueryShape(
        drive=random.choice(["stream", "incremental"]),
        sources={name: source() for name in some("a", "b", "c") or ["a"]},
        lookups={name: source() for name in some("l", "m")},
        streamed={name: step() for name in some("s", "t")},
        batched={name: step() for name in some("u", "v")},
        output_mode=random.choice(["append", "update"]),
        sinks={name: random.choice("xy") for name in some("k", "l")},
    )


def edited(shape: QueryShape, seed: int) -> QueryShape:
    """One part of it is another's."""
    part = Random(seed).choice(["drive", "sources", "lookups", "streamed", "batched", "output_mode", "sinks"])
    return replace(shape, **{part: getattr(made(seed), part)})


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
@settings(deadline=None)
def test_a_note_is_read_as_it_was_written(seed: int) -> None:
    shape = made(seed)

    assert QueryShape.from_json(json.loads(json.dumps(shape.to_json()))) == shape
    assert compare(shape, shape, "s") == []


@given(SEEDS, SEEDS)
@settings(deadline=None)
def test_no_difference_goes_unsaid(seed: int, edit: int) -> None:
    """And the places of another source, or state of another kind, are never taken over."""
    old = made(seed)
    new = edited(old, edit)

    edits = compare(old, new, "s")

    assert bool(edits) == (old != new)
    if old.state != new.state or len(old.sources) != len(new.sources):
        assert worst(edits) != "safe"
    pairs = zip(old.sources.values(), new.sources.values(), strict=False)
    if any(was.kind != now.kind or not set(was.place) <= set(now.place) for was, now in pairs):
        assert worst(edits) != "safe"


@given(SEEDS, SEEDS)
@settings(deadline=None)
def test_what_is_done_batch_by_batch_is_safe_to_edit(seed: int, edit: int) -> None:
    """And makes nothing else any safer."""
    old, other = made(seed), made(edit)
    new = edited(old, edit)

    def by_batch(shape: QueryShape) -> QueryShape:
        return replace(shape, batched=other.batched, sinks=other.sinks, lookups=other.lookups)

    assert worst(compare(old, by_batch(old), "s")) == "safe"
    assert worst(compare(old, by_batch(new), "s")) == worst(compare(old, new, "s"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    for name, shape in shapes(FILE).items():
        place = tmp_path / "checkpoints" / "shop" / name
        place.mkdir(parents=True)
        (place / "shape.json").write_text(json.dumps(shape.to_json()))
    file.write_text(FILE.replace("sum(amount)", "max(amount)").replace("topic: pairs}", "topic: pairs2}"))

    assert run(["pipeline", "validate", str(file), "--against-checkpoint"]) == 1

    output = capsys.readouterr()
    assert sorted(output.out.splitlines()) == [
        "bills: unchanged",
        "both: unchanged",
        "orders: unchanged",
        "pairs: safe",
        "refunds: unchanged",
        "totals: new checkpoint",
    ]
    assert output.err == (
        f'{file}:26:3: safe: query "pairs": it wrote to topic pairs; what it wrote stays there\n'
        f'{file}:15:3: new checkpoint: query "totals": its state was made of: SUM(amount); give "totals" in steps '
        "another name and it begins anew\n"
    )

    assert run(["pipeline", "validate", str(file), "--against-checkpoint", "--json"]) == 1
    verdicts = {each["query"]: each["verdict"] for each in json.loads(capsys.readouterr().out)}
    assert verdicts["totals"] == "new checkpoint"
