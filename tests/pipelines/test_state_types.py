"""Which types of columns are types of the state."""

from __future__ import annotations

import pytest

from penstock.pipelines.check.checkpoint_edits import compare, worst
from pipelines.test_against_checkpoint import shapes

FILE = """\
name: shop
sources:
  orders:
    topic: [orders]
    value: {{format: json, schema: "id BIGINT, customer STRING, amount {kind}, tags ARRAY<{tag}>{more}"}}
  names: {{format: csv, mode: lookup, path: n.csv, schema: "name STRING, rate {rate}"}}
steps:
  valid: {{sql: "{valid}"}}
  totals: {{sql: "{totals}", output: update}}
sinks:
  totals: {{from: totals, topic: totals}}
"""
SAFE, NEW = "safe", "new checkpoint"
PLAIN = "SELECT * FROM orders"


@pytest.mark.parametrize(
    ("valid", "totals", "verdict"),
    [
        (PLAIN, "SELECT customer, sum(amount) AS t FROM valid GROUP BY customer", NEW),
        (
            "SELECT customer, amount * 2 AS v FROM orders",
            "SELECT customer, sum(v) AS t FROM valid GROUP BY customer",
            NEW,
        ),
        ("SELECT customer, amount AS v FROM orders", "SELECT customer, max(v) AS t FROM valid GROUP BY customer", NEW),
        ("SELECT amount AS v, v AS w FROM orders", "SELECT sum(w) AS t FROM valid", NEW),
        ("SELECT o.amount v FROM orders o JOIN names ON name = customer", "SELECT sum(v) AS t FROM valid", NEW),
        ("WITH x AS (SELECT amount AS v FROM orders) SELECT v FROM x", "SELECT sum(v) AS t FROM valid", NEW),
        ("SELECT v FROM (SELECT amount AS v FROM orders)", "SELECT sum(v) AS t FROM valid", NEW),
        (PLAIN, "SELECT DISTINCT amount FROM valid", NEW),
        (PLAIN, "SELECT amount, count(*) AS n FROM valid GROUP BY 1", NEW),
        (PLAIN, "SELECT amount AS a, count(*) AS n FROM valid GROUP BY a", NEW),
        (PLAIN, "SELECT customer, count(amount) AS n FROM valid GROUP BY customer", SAFE),
        (PLAIN, "SELECT customer, sum(CAST(amount AS DOUBLE)) AS t FROM valid GROUP BY customer", SAFE),
        (PLAIN, "SELECT customer, max(amount > 3) AS t FROM valid GROUP BY customer", SAFE),
        ("SELECT customer, id FROM orders WHERE amount > 3", "SELECT sum(id) AS amounts FROM valid", SAFE),
    ],
)
def test_another_type_of_a_column(valid: str, totals: str, verdict: str) -> None:
    def made(kind: str) -> str:
        return FILE.format(kind=kind, valid=valid, totals=totals, tag="STRING", more="", rate="DOUBLE")

    old, new = (shapes(made(kind))["totals"] for kind in ("DOUBLE", "DECIMAL(12,2)"))

    assert worst(compare(old, new, "totals")) == verdict
    assert worst(compare(old, old, "totals")) == SAFE


@pytest.mark.parametrize(
    ("valid", "totals", "edit", "verdict"),
    [
        (PLAIN, "SELECT DISTINCT * FROM valid", {"more": ", more STRING"}, NEW),
        (PLAIN, "SELECT DISTINCT id, customer FROM valid", {"more": ", more STRING"}, SAFE),
        (PLAIN, "SELECT sum(id) AS t FROM valid", {"more": ", more STRING"}, SAFE),
        (
            "SELECT tag FROM orders LATERAL VIEW explode(tags) AS tag",
            "SELECT max(tag) AS t FROM valid",
            {"tag": "INT"},
            NEW,
        ),
        ("SELECT explode(tags) AS tag FROM orders", "SELECT max(tag) AS t FROM valid", {"tag": "INT"}, NEW),
        (
            "SELECT amount, rate FROM orders JOIN names ON name = customer",
            "SELECT sum(amount * rate) AS t FROM valid",
            {"rate": "FLOAT"},
            NEW,
        ),
        (
            "SELECT amount, rate FROM orders JOIN names ON name = customer",
            "SELECT sum(amount) AS t FROM valid",
            {"rate": "FLOAT"},
            SAFE,
        ),
    ],
)
def test_other_edits(valid: str, totals: str, edit: dict[str, str], verdict: str) -> None:
    common = {"kind": "DOUBLE", "tag": "STRING", "more": "", "rate": "DOUBLE"}
    old, new = (shapes(FILE.format(valid=valid, totals=totals, **{**common, **each}))["totals"] for each in ({}, edit))

    assert worst(compare(old, new, "totals")) == verdict
