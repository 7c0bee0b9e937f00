"""Which queries a pipeline becomes, and what SQL is understood to do."""

from __future__ import annotations

from textwrap import dedent

import pytest

from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.operate import graph
from penstock.pipelines.spec import sql
from penstock.pipelines.spec.documents import parse
from penstock.pipelines.spec.loading import bind

FILE = """\
name: shop
sources:
  orders:
    topic: orders
    value: {format: json, schema: "id BIGINT, customer BIGINT, amount DOUBLE, at TIMESTAMP"}
    watermark: {column: at, delay: 1 minute}
  customers: {format: csv, mode: lookup, path: customers.csv, schema: "id BIGINT, name STRING"}
  refunds:
    topic: [refunds, returns]
    value: {format: json, schema: "id BIGINT, at TIMESTAMP"}
    on_error: drop
steps:
  named: {sql: "SELECT o.id, o.at, amount, name FROM orders o JOIN customers c ON o.customer = c.id"}
  valid:
    sql: SELECT id, at, amount, name FROM named WHERE amount < 1000
    expect: [{that: amount > 0}, {that: id > 0, otherwise: keep}]
  totals: {sql: "SELECT window.start AS start, sum(amount) AS total FROM valid GROUP BY window(at, '1 hour')"}
  large: {sql: SELECT * FROM totals WHERE total > 100}
  pairs: {sql: "SELECT orders.id FROM orders JOIN refunds ON orders.id = refunds.id"}
  copies: {sql: SELECT id FROM checked}
sinks:
  valid: {from: valid, topic: valid}
  large: {from: Large, topic: large}
  pairs: {from: pairs, format: parquet, path: out}
  copies: {from: copies, topic_expression: "concat('c', id)", delivery: at-least-once}
"""
CHECKED = "  checked: {topic: valid, value: {format: json, schema: id BIGINT}, on_error: fail}\n"


def shop() -> str:
    return FILE.replace("steps:\n", CHECKED + "steps:\n")


def test_queries() -> None:
    pipeline = bind(parse(shop(), "shop.yaml"), "shop.yaml").pipeline
    analysis = analyse(pipeline)
    queries = plan(pipeline, analysis)

    assert analysis.findings == []
    assert list(queries) == ["orders", "pairs", "totals", "checked"]
    assert queries["orders"].tables == ("customers", "named", "valid")
    assert queries["orders"].sinks == ("valid",)
    assert queries["orders"].dead_letters == 2  # what does not decode, and amounts that are none
    assert queries["totals"].upstream == ("orders", "customers", "named", "valid")
    assert queries["totals"].tables == ("large",)
    assert (queries["totals"].output_mode, queries["totals"].dead_letters) == ("append", 0)
    assert queries["pairs"].upstream == ("orders", "refunds")
    assert queries["checked"].after == ("orders",)
    assert analysis.tables["valid"].multiplies


def test_pictures() -> None:
    pipeline = bind(parse(shop(), "shop.yaml"), "shop.yaml").pipeline
    analysis = analyse(pipeline)
    queries = plan(pipeline, analysis)

    assert graph.tree(pipeline, analysis, queries) == dedent(
        """\
        shop
        ├── query orders (foreachBatch)
        │   foreachBatch because "customers" is read anew for every batch
        │   foreachBatch because "valid" makes several rows of one record, and dead letters
        │   orders: topic orders, json
        │   ├── named (with customers)
        │   │   └── valid
        │   │       ├── expects id > 0, else keep
        │   │       ├── expects amount > 0, else dead-letter
        │   │       ├── => valid: topic valid
        │   │       └── => dead letters: topic shop.dead-letters
        │   └── => dead letters: topic shop.dead-letters
        │   customers: lookup of csv customers.csv
        ├── query pairs (foreachBatch)
        │   foreachBatch because sink "pairs" is not a topic
        │   orders: topic orders, json
        │   refunds: topic refunds, returns, json
        │   └── pairs (with orders)
        │       └── => pairs: parquet out
        ├── query totals (one plan)
        │   orders: topic orders, json
        │   └── named (with customers)
        │       └── valid
        │           ├── expects id > 0, else keep
        │           ├── expects amount > 0, else dead-letter
        │           └── totals
        │               └── large
        │                   └── => large: topic large
        │   customers: lookup of csv customers.csv
        └── query checked (one plan; after orders)
            checked: topic valid, json
            └── copies
                └── => copies: topic by concat('c', id), at-least-once"""
    )
    drawn = graph.mermaid(pipeline, analysis, queries)
    assert drawn.startswith("flowchart LR\n")
    assert '  subgraph query_checked["query checked (one plan; after orders)"]' in drawn.splitlines()
    assert "  orders -.-> dead_letters" in drawn.splitlines()


TABLES = {
    "orders": ("id", "amount", "items", "a", "at", "customer", "_key"),
    "customers": ("id", "name"),
    "totals": ("window", "total"),
    "anything": None,
}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT o.id, a.b, amount * 2 AS twice, twice + 1 AS more FROM orders o",
        "SELECT transform(items, x -> x + amount) AS y FROM orders",
        "SELECT item FROM orders LATERAL VIEW explode(items) e AS item WHERE item > 3 AND e.item < 5",
        "SELECT window.start, window.end AS e, count(*) AS n FROM orders GROUP BY window(at, '5 minutes')",
        "SELECT t.window.start AS s, o.id FROM totals t JOIN orders o ON t.window = window(o.at, '1 hour')",
        "SELECT session_window.start AS s, customer FROM orders GROUP BY session_window(at, '5 minutes'), customer",
        "SELECT id FROM orders WHERE id IN (SELECT id FROM customers WHERE name = orders.a)",
        "WITH x AS (SELECT id AS i FROM orders) SELECT i, x.i AS j FROM x",
        "SELECT nobody.knows, what FROM anything",
        "SELECT * EXCEPT (amount), amount AS cost FROM orders ORDER BY cost",
        "SELECT count(*) AS n, customer AS c FROM orders GROUP BY c HAVING n > 1",
        "SELECT posexplode(items) AS (position, item), ID FROM Orders",
        "SELECT o.* FROM orders AS o LEFT ANTI JOIN customers AS c ON o.customer = c.id",
        "SELECT CASE WHEN amount > 1 THEN 'large' ELSE 'small' END AS size, current_date() AS today FROM orders",
        "SELECT id FROM orders UNION ALL SELECT id FROM customers",
    ],
)
def test_columns_that_are_there(text: str) -> None:
    assert list(sql.unknown_columns(sql.parse_query(text), TABLES)) == []


@pytest.mark.parametrize(
    ("text", "loses", "stateful"),
    [
        ("SELECT id FROM orders WHERE id > 0", "", False),
        ("SELECT o.id, item FROM orders o LATERAL VIEW explode(items) e AS item", "", False),
        ("SELECT DISTINCT id FROM orders", "it aggregates or takes away duplicates", True),
        ("SELECT max(id) AS m FROM orders", "it aggregates or takes away duplicates", True),
        ("SELECT id FROM orders UNION ALL SELECT id FROM orders", "it is a UNION, EXCEPT or INTERSECT", False),
        ("SELECT id FROM orders UNION SELECT id FROM orders", "it is a UNION, EXCEPT or INTERSECT", True),
        ("WITH x AS (SELECT * FROM orders) SELECT id FROM x", "it has a WITH", False),
        ("SELECT id FROM (SELECT * FROM orders)", "it reads from a subquery", False),
        ("SELECT id FROM orders LIMIT 3", "it has a LIMIT", False),
        ("SELECT rank() OVER (ORDER BY id) AS r FROM orders", "it has a window function (OVER)", False),
    ],
)
def test_what_keeps_the_source_row(text: str, loses: str, stateful: bool) -> None:
    query = sql.parse_query(text)

    assert (query.loses_row, query.stateful) == (loses, stateful)


@pytest.mark.parametrize(
    ("text", "carried"),
    [
        ("SELECT id FROM orders", "SELECT id , `orders`.`__source` FROM orders"),
        ("SELECT * FROM orders", "SELECT * FROM orders"),
        (
            "SELECT c.*, o.id FROM customers c JOIN orders o",
            "SELECT c.*, o.id , `o`.`__source` FROM customers c JOIN orders o",
        ),
        (
            "SELECT extract(hour FROM at) AS h, 'a FROM b' AS t FROM orders",
            "SELECT extract(hour FROM at) AS h, 'a FROM b' AS t , `orders`.`__source` FROM orders",
        ),
        (
            "SELECT window(at, '1 day') AS w FROM Orders",
            "SELECT window(at, '1 day') AS w , `Orders`.`__source` FROM Orders",
        ),
    ],
)
def test_the_source_row_is_carried_along(text: str, carried: str) -> None:
    assert sql.carrying(sql.parse_query(text), "orders") == carried
