"""Mistakes that people make in pipelines, each with what `validate` says of it, and with the same file mended.

`§` marks the place: a mistake is the file with `wrong` in it, its valid counterpart the file with `right` in it.
"""

# ruff: noqa: E501  # a table

from __future__ import annotations

from dataclasses import dataclass

ORDERS = """\
name: shop
sources:
  orders:
    topic: orders
    value: {format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, paid BOOLEAN, at TIMESTAMP, tags ARRAY<STRING>"}
    watermark: {column: at, delay: 10 minutes}
"""
REFUNDS = """\
  refunds:
    topic: refunds
    value: {format: json, schema: "order_id BIGINT, amount DOUBLE, since TIMESTAMP"}
"""
SINK = "sinks: {out: {from: out, topic: copies}}\n"
COPY = "sinks: {out: {from: orders, topic: copies}}\n"


@dataclass(frozen=True, slots=True)
class Mistake:
    text: str
    wrong: str
    right: str
    says: str
    """Line, column and message; nothing else is said."""
    spark: bool = False
    """Whether Spark's own analysis refuses it, too."""

    @property
    def mistaken(self) -> str:
        return self.text.replace("§", self.wrong)

    @property
    def mended(self) -> str:
        return self.text.replace("§", self.right)


def sql(wrong: str, right: str, says: str, *, text: str = "§", start: str = ORDERS, spark: bool = True) -> Mistake:
    """In the SQL of the step `out`."""
    return Mistake(f"{start}steps:\n  out:\n    sql: |\n      {text}\n{SINK}", wrong, right, says, spark)


def whole(text: str, wrong: str, right: str, says: str, *, start: str = ORDERS, spark: bool = False) -> Mistake:
    """In what follows the sources."""
    return Mistake(start + text, wrong, right, says, spark)


HOURS = "SELECT window.start AS hour, count(*) AS n FROM orders GROUP BY §"
COUNTS = "SELECT § FROM orders GROUP BY customer, window(at, '1 hour')"
JOIN = "SELECT o.id, r.amount FROM orders o § AS r ON §"
REFUNDED = "SELECT o.id, r.since FROM orders o §"
TEST = """\
tests:
  - name: one
    given:
      orders:
        - §
"""
EXPECT = """\
tests:
  - name: one
    given: {orders: [{value: {id: 1, amount: 2}}]}
    expect:
      out:
        - §
"""

MISTAKES: dict[str, Mistake] = {
    # -- Functions.
    "function misspelt": sql(
        "SUMM(amount)", "SUM(amount)", 'X', text="SELECT customer, § AS total FROM orders GROUP BY customer, window(at, '1 hour')"
    ),
    "function of another database": sql("getdate()", "now()", "X", text="SELECT id, § AS today FROM orders"),
    "too many arguments": sql("lower(customer, 'de')", "lower(customer)", "X", text="SELECT § AS name FROM orders"),
    "too few arguments": sql("date_add(at)", "date_add(at, 1)", "X", text="SELECT § AS day FROM orders"),
    "no arguments": sql("max()", "max(amount)", "X", text=COUNTS.replace("§", "§ AS most")),
    "function in a condition of a source": Mistake(
        ORDERS + "    expect: [{that: §}]\n" + COPY, "lenght(customer) > 0", "length(customer) > 0", "X", True
    ),
    "function in a key": whole("sinks: {out: {from: orders, topic: a, key: §}}\n", "uper(customer)", "upper(customer)", "X", spark=True),
    "function of arrays": sql("explode(customer)", "explode(tags)", "X", text="SELECT id, § AS tag FROM orders"),
    "function of times": sql("year(amount)", "year(at)", "X", text="SELECT § AS y FROM orders"),
    "sum of a truth": sql("sum(paid)", "count_if(paid)", "X", text=COUNTS.replace("§", "§ AS n")),
    # -- Intervals and windows.
    "interval of a window": sql("'1 minit'", "'1 minute'", "X", text=HOURS.replace("§", "window(at, §)")),
    "interval without a number": sql("'minute'", "'1 minute'", "X", text=HOURS.replace("§", "window(at, §)")),
    "interval without a space": sql("'5minutes'", "'5 minutes'", "X", text=HOURS.replace("§", "window(at, §)")),
    "interval without a unit": sql("'5'", "'5 minutes'", "X", text=HOURS.replace("§", "window(at, §)")),
    "window of a month": sql("'1 month'", "'30 days'", "X", text=HOURS.replace("§", "window(at, §)")),
    "slide longer than the window": sql("'1 hour', '2 hours'", "'2 hours', '1 hour'", "X", text=HOURS.replace("§", "window(at, §)")),
    "session without a unit": sql(
        "'30'", "'30 minutes'", "X", text="SELECT session_window.start AS s, count(*) AS n FROM orders GROUP BY session_window(at, §)"
    ),
    "interval literal": sql("INTERVAL 5 minits", "INTERVAL 5 minutes", "X", text="SELECT at + § AS later FROM orders"),
    "window of a number": sql("amount", "at", "X", text=HOURS.replace("§", "window(§, '1 hour')")),
    "window of text": sql("customer", "at", "X", text=HOURS.replace("§", "window(§, '1 hour')")),
    "field of a window": sql("window.begin", "window.start", "X", text=COUNTS.replace("§", "§ AS since, count(*) AS n")),
    # -- Columns.
    "column misspelt": sql("custmer", "customer", "X", text="SELECT id, § FROM orders"),
    "column of another table": sql("r.id", "r.order_id", "X", text="SELECT o.id FROM orders o JOIN refunds r ON o.id = §", start=ORDERS + REFUNDS),
    "column of both tables": sql(
        "amount", "o.amount", "X", text="SELECT id, § FROM orders o JOIN refunds r ON o.id = r.order_id", start=ORDERS + REFUNDS
    ),
    "field of a scalar": sql("customer.name", "customer", "X", text="SELECT id, § AS name FROM orders"),
    "two results of one name": sql("customer AS id", "customer", "X", text="SELECT id, § FROM orders", spark=False),
    "column misspelt, used later": whole(
        "steps:\n  one: {sql: 'SELECT id, § FROM orders'}\n  two: {sql: 'SELECT id, customer FROM one WHERE customer IS NOT NULL'}\n"
        "sinks: {out: {from: two, topic: copies, key: customer}}\n",
        "custmer", "customer", "X", spark=True,
    ),
    "schema misspelt, used often": Mistake(
        ORDERS.replace("customer STRING", "§ STRING")
        + "steps:\n  one: {sql: 'SELECT id, customer FROM orders'}\n  two: {sql: 'SELECT upper(customer) AS c FROM orders'}\n"
        "sinks:\n  one: {from: one, topic: one}\n  two: {from: two, topic: two}\n  all: {from: orders, topic: all, key: customer}\n",
        "custmer", "customer", "X", True,
    ),
    "table misspelt, used later": whole(
        "steps:\n  one: {sql: 'SELECT id, customer FROM §'}\n  two: {sql: 'SELECT id, customer FROM one'}\n"
        "sinks: {out: {from: two, topic: copies}}\n",
        "oders", "orders", "X",
    ),
    # -- Aggregates.
    "column not grouped": sql("customer, amount", "customer, max(amount) AS amount", "X", text=COUNTS.replace("§", "§, count(*) AS n")),
    "two columns not grouped": sql("id, amount", "max(id) AS id, max(amount) AS amount", "X", text=COUNTS.replace("§", "§, count(*) AS n")),
    "no GROUP BY": whole(
        "steps:\n  out:\n    output: update\n    sql: SELECT customer, count(*) AS n FROM orders§\n" + SINK, "", " GROUP BY customer", "X", spark=True
    ),
    "star with GROUP BY": sql("*", "customer, count(*) AS n", "X", text=COUNTS),
    "aggregate in WHERE": sql("WHERE sum(amount) > 10", "WHERE amount > 10", "X", text="SELECT customer, count(*) AS n FROM orders § GROUP BY customer, window(at, '1 hour')"),
    "aggregate in GROUP BY": sql("max(id)", "id", "X", text="SELECT count(*) AS n FROM orders GROUP BY §, window(at, '1 hour')"),
    "aggregate of an aggregate": sql("max(sum(amount))", "sum(amount)", "X", text=COUNTS.replace("§", "§ AS n")),
    "aggregate in an expectation": Mistake(ORDERS + "    expect: [{that: §, otherwise: drop}]\n" + COPY, "sum(amount) > 0", "amount > 0", "X", True),
    "aggregate in a key": whole("sinks: {out: {from: orders, topic: a, key: §}}\n", "max(customer)", "customer", "X", spark=True),
    "distinct over a stream": sql("count(DISTINCT id)", "approx_count_distinct(id)", "X", text=COUNTS.replace("§", "§ AS n")),
    # -- Types.
    "comparison with a truth": sql("paid = 1", "paid", "X", text="SELECT id FROM orders WHERE §"),
    "comparison of a time with a number": sql("at > 20260101", "at > '2026-01-01'", "X", text="SELECT id FROM orders WHERE §"),
    "comparison of an array": sql("tags = 'new'", "array_contains(tags, 'new')", "X", text="SELECT id FROM orders WHERE §", spark=True),
    "IN of other types": sql("paid IN (1, 2)", "id IN (1, 2)", "X", text="SELECT id FROM orders WHERE §"),
    "BETWEEN of other types": sql("at BETWEEN 1 AND 2", "id BETWEEN 1 AND 2", "X", text="SELECT id FROM orders WHERE §"),
    "sum of times": sql("at + at", "at - at", "X", text="SELECT id, § AS x FROM orders"),
    "number as a condition": sql("amount", "amount > 0", "X", text="SELECT id FROM orders WHERE §"),
    "join of other types": sql("o.paid", "o.id", "X", text="SELECT o.id FROM orders o JOIN refunds r ON § = r.order_id", start=ORDERS + REFUNDS),
    "type in CAST": sql("TEXT", "STRING", "X", text="SELECT CAST(id AS §) AS id FROM orders"),
    "type in CAST misspelt": sql("BIGNIT", "BIGINT", "X", text="SELECT CAST(id AS §) AS id FROM orders"),
    "type in a schema": Mistake(ORDERS.replace("amount DOUBLE", "amount §") + COPY, "DUBLE", "DOUBLE", "X", True),
    "type in a schema, nested": Mistake(ORDERS.replace("ARRAY<STRING>", "ARRAY<§>") + COPY, "STRNG", "STRING", "X", True),
    # -- Streams.
    "watermark of text": Mistake(ORDERS.replace("column: at", "column: §") + COPY, "customer", "at", "X"),
    "watermark of no column": Mistake(ORDERS.replace("column: at", "column: §") + COPY, "time", "at", "X"),
    "group without an end": sql("customer", "customer, window(at, '1 hour')", "X", text="SELECT customer, count(*) AS n FROM orders GROUP BY §"),
    "append without a watermark": Mistake(
        ORDERS.replace("    watermark: {column: at, delay: 10 minutes}\n", "")
        + f"steps:\n  out: {{output: §, sql: 'SELECT customer, count(*) AS n FROM orders GROUP BY customer'}}\n{SINK}",
        "append", "update", "X", True,
    ),
    "order of a stream": sql("ORDER BY n", "HAVING n > 1", "X", text="SELECT customer, count(*) AS n FROM orders GROUP BY customer, window(at, '1 hour') §"),
    "outer join without a bound": sql(
        "ON o.id = r.order_id", "ON o.id = r.order_id AND r.since BETWEEN o.at AND o.at + INTERVAL 1 HOUR", "X",
        text="SELECT o.id, r.since FROM orders o LEFT JOIN refunds r §",
        start=ORDERS + REFUNDS + "    watermark: {column: since, delay: 10 minutes}\n",
    ),
    "outer join without watermarks": sql(
        "LEFT JOIN", "JOIN", "X", text="SELECT o.id, r.since FROM orders o § refunds r ON o.id = r.order_id",
        start=ORDERS.replace("    watermark: {column: at, delay: 10 minutes}\n", "") + REFUNDS,
    ),
    "join without equal columns": sql("ON o.at < r.since", "ON o.id = r.order_id", "X", text="SELECT o.id, r.since FROM orders o JOIN refunds r §", start=ORDERS + REFUNDS),
    "sides of a union": sql("SELECT id FROM orders", "SELECT id, customer FROM orders", "X", text="SELECT id, customer FROM orders UNION ALL §", spark=True),
    # -- Sources and sinks.
    "bootstrap without a port": whole("bootstrap: §\n" + COPY, "kafka-1", "kafka-1:9092", "X"),
    "bootstrap with a wrong port": whole("bootstrap: §\n" + COPY, "kafka-1:9092, kafka-2:99092", "kafka-1:9092, kafka-2:9092", "X"),
    "bootstrap of a source": Mistake(ORDERS + "    bootstrap: §\n" + COPY, "kafka-1;9092", "kafka-1:9092", "X"),
    "option of a topic": Mistake(ORDERS + "    options: {§: 4}\n" + COPY, "minPartition", "minPartitions", "X"),
    "setting of a consumer": Mistake(ORDERS + "    options: {§: a}\n" + COPY, "kafka.grup.id", "kafka.group.id", "X"),
    "setting of a producer": whole("sinks: {out: {from: orders, topic: a, options: {§: zstd}}}\n", "kafka.compresion.type", "kafka.compression.type", "X"),
    "option of JSON": Mistake(ORDERS.replace("{format: json,", "{format: json, options: {§: yyyy},") + COPY, "timestampFromat", "timestampFormat", "X"),
    "format of a sink": whole("sinks: {out: {from: orders, format: §, path: /lake}}\n", "detla", "delta", "X"),
    "format of a source": Mistake("name: a\nsources: {a: {format: §, path: /a, schema: id INT}}\nsinks: {out: {from: a, topic: a}}\n", "parqet", "parquet", "X"),
    "format of nothing": whole("sinks: {out: {from: orders, format: §}}\n", "spreadsheet", "console", "X"),
    "option of postgres": whole("sinks: {out: {from: orders, format: postgres, table: t, key: id, options: {host: db, §: 5432}}}\n", "prot", "port", "X"),
    "sslmode of postgres": whole("sinks: {out: {from: orders, format: postgres, table: t, key: id, options: {sslmode: §}}}\n", "requre", "require", "X"),
    "option of cassandra": whole("sinks: {out: {from: orders, format: cassandra, table: k.t, options: {§: a}}}\n", "host", "hosts", "X"),
    "port of cassandra": whole("sinks: {out: {from: orders, format: cassandra, table: k.t, options: {port: §}}}\n", "default", "9042", "X"),
    "option of delta": whole("sinks: {out: {from: orders, format: delta, path: /a, options: {§: 10}}}\n", "optimiseEvery", "optimizeEvery", "X"),
    "truth of delta": whole("sinks: {out: {from: orders, format: delta, path: /a, options: {mergeSchema: §}}}\n", "on", "true", "X"),
    "option of csv": whole("sinks: {out: {from: orders, format: csv, path: /a, columns: [id], options: {§: 'true'}}}\n", "heeder", "header", "X"),
    "option of rate": Mistake("name: a\nsources: {a: {format: rate, options: {§: 5}}}\nsinks: {out: {from: a, topic: a}}\n", "rowPerSecond", "rowsPerSecond", "X"),
    "number of console": whole("sinks: {out: {from: orders, format: console, options: {numRows: §}}}\n", "many", "5", "X"),
    # -- Fields: one cause, one message.
    "field misspelt": whole("sinks: {out: {from: orders, §: copies}}\n", "topik", "topic", "X"),
    "field of a watermark": Mistake(ORDERS.replace("column: at", "§: at") + COPY, "colunm", "column", "X"),
    "source misspelt, tested": Mistake(ORDERS.replace("topic: orders", "§: orders") + COPY + TEST.replace("§", "{value: {id: 1}}"), "topc", "topic", "X"),
    # -- Tests.
    "unknown field of a row": whole(COPY + TEST, "{value: {id: 1, custmer: ann}}", "{value: {id: 1, customer: ann}}", "X"),
    "unknown field of a record": whole(COPY + TEST, "{value: {id: 1}, time: 5}", "{value: {id: 1}, timestamp: 5}", "X"),
    "row of a wrong type": whole(COPY + TEST, "{value: {id: one}}", "{value: {id: 1}}", "X"),
    "row without a needed field": whole(COPY + TEST, "{value: {amount: 1}}", "{value: {id: 1, amount: 1}}", "X"),
    "time of a record": whole(COPY + TEST, "{value: {id: 1}, timestamp: yesterday}", "{value: {id: 1}, timestamp: '2026-01-01T00:00:00Z'}", "X"),
    "expected field": whole(COPY + EXPECT, "{value: {id: 1, amout: 2}}", "{value: {id: 1, amount: 2}}", "X"),
    "expected part of a record": whole(COPY + EXPECT, "{vlaue: {id: 1}}", "{value: {id: 1}}", "X"),
    "expected type": whole(COPY + EXPECT, "{value: {id: '1'}}", "{value: {id: 1}}", "X"),
    "field of a dead letter": whole(
        COPY + "tests: [{name: one, given: {orders: [{value: x}]}, dead_letters: [{§: not JSON}]}]\n", "reson", "reason", "X"
    ),
}  # fmt: skip
