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
UNMARKED = ORDERS.replace("    watermark: {column: at, delay: 10 minutes}\n", "") + REFUNDS
WITHIN = "AND r.since BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
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
        "SUMM(amount)", "SUM(amount)", '10:24: error: Spark has no function "summ"; did you mean "sum"?', text="SELECT customer, § AS total FROM orders GROUP BY customer, window(at, '1 hour')"
    ),
    "function of another database": sql("getdate()", "now()", '10:18: error: Spark has no function "getdate"; did you mean "date"?', text="SELECT id, § AS today FROM orders"),
    "too many arguments": sql("lower(customer, 'de')", "lower(customer)", "10:14: error: lower takes 1 argument, not 2", text="SELECT § AS name FROM orders"),
    "too few arguments": sql("date_add(at)", "date_add(at, 1)", "10:14: error: date_add takes 2 or 3 arguments, not 1", text="SELECT § AS day FROM orders"),
    "no arguments": sql("max()", "max(amount)", "10:14: error: max takes 1 argument, not 0", text=COUNTS.replace("§", "§ AS most")),
    "function in a condition of a source": Mistake(
        ORDERS + "    expect: [{that: §}]\n" + COPY, "lenght(customer) > 0", "length(customer) > 0", '7:21: error: Spark has no function "lenght"; did you mean "length"?', True
    ),
    "function in a key": whole("sinks: {out: {from: orders, topic: a, key: §}}\n", "uper(customer)", "upper(customer)", '7:44: error: Spark has no function "uper"; did you mean "upper"?', spark=True),
    "function of arrays": sql("explode(customer)", "explode(tags)", "10:26: error: explode takes ARRAY, MAP, not customer (STRING)", text="SELECT id, § AS tag FROM orders"),
    "function of times": sql("year(amount)", "year(at)", "10:19: error: year takes STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ, not amount (DOUBLE)", text="SELECT § AS y FROM orders"),
    "sum of a truth": sql("sum(paid)", "count_if(paid)", "10:18: error: sum takes STRING, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, TIMESTAMP, INTERVAL, not paid (BOOLEAN)", text=COUNTS.replace("§", "§ AS n")),
    # -- Intervals and windows.
    "interval of a window": sql("'1 minit'", "'1 minute'", '10:82: error: \'1 minit\' is not an interval: there is no unit "minit"; did you mean "minute"?', text=HOURS.replace("§", "window(at, §)")),
    "interval without a number": sql("'minute'", "'1 minute'", '10:82: error: \'minute\' is not an interval such as \'5 minutes\': "minute" is not a number', text=HOURS.replace("§", "window(at, §)")),
    "interval without a space": sql("'5minutes'", "'5 minutes'", '10:82: error: \'5minutes\' is not an interval such as \'5 minutes\': "5minutes" is not a number', text=HOURS.replace("§", "window(at, §)")),
    "interval without a unit": sql("'5'", "'5 minutes'", "10:82: error: '5' is not an interval such as '5 minutes': the unit is missing", text=HOURS.replace("§", "window(at, §)")),
    "window of a month": sql("'1 month'", "'30 days'", "10:82: error: '1 month' has no fixed length; say it in days", text=HOURS.replace("§", "window(at, §)")),
    "slide longer than the window": sql("'1 hour', '2 hours'", "'2 hours', '1 hour'", "10:92: error: windows that begin every '2 hours' cannot be '1 hour' long; swap the two", text=HOURS.replace("§", "window(at, §)")),
    "session without a unit": sql(
        "'30'", "'30 minutes'", "10:95: error: '30' is not an interval such as '5 minutes': the unit is missing", text="SELECT session_window.start AS s, count(*) AS n FROM orders GROUP BY session_window(at, §)",
        spark=False,  # it accepts it, and every row is lost
    ),
    "interval literal": sql("INTERVAL 5 minits", "INTERVAL 5 minutes", '10:30: error: there is no unit "minits"; did you mean "minute"?', text="SELECT at + § AS later FROM orders"),
    "window of a number": sql("amount", "at", "10:78: error: window needs a TIMESTAMP, not amount (DOUBLE)", text=HOURS.replace("§", "window(§, '1 hour')")),
    "window of text": sql("customer", "at", "10:78: error: window needs a TIMESTAMP, not customer (STRING); use the column of the watermark, or declare this one as TIMESTAMP", text=HOURS.replace("§", "window(§, '1 hour')")),
    "field of a window": sql("window.begin", "window.start", '10:21: error: "window" has no field "begin"; there are end, start', text=COUNTS.replace("§", "§ AS since, count(*) AS n")),
    # -- Columns.
    "column misspelt": sql("custmer", "customer", '10:18: error: no column "custmer"; did you mean "customer"?', text="SELECT id, § FROM orders"),
    "column of another table": sql("r.id", "r.order_id", '13:60: error: "r" has no column "id"; there are _headers, _key, _offset, _partition, _timestamp, _topic, amount, order_id, since', text=f"SELECT o.id FROM orders o JOIN refunds r ON o.id = § {WITHIN}", start=ORDERS + REFUNDS),
    "column of both tables": sql(
        "amount", "o.amount", '13:18: error: "amount" is a column of o and r; write o.amount or r.amount', text=f"SELECT id, § FROM orders o JOIN refunds r ON o.id = r.order_id {WITHIN}", start=ORDERS + REFUNDS
    ),
    "field of a scalar": sql("customer.name", "customer", '10:27: error: "customer" is STRING and has no field "name"', text="SELECT id, § AS name FROM orders"),
    "two results of one name": sql("customer AS id", "customer", '11:21: error: "out" has several columns "id"; rename all but one with AS', text="SELECT id, § FROM orders", spark=False),
    "column misspelt, used later": whole(
        "steps:\n  one: {sql: 'SELECT id, § FROM orders'}\n  two: {sql: 'SELECT id, customer FROM one WHERE customer IS NOT NULL'}\n"
        "sinks: {out: {from: two, topic: copies, key: customer}}\n",
        "custmer", "customer", '8:26: error: no column "custmer"; did you mean "customer"?', spark=True,
    ),
    "schema misspelt, used often": Mistake(
        ORDERS.replace("customer STRING", "§ STRING")
        + "steps:\n  one: {sql: 'SELECT id, customer FROM orders'}\n  two: {sql: 'SELECT upper(customer) AS c FROM orders'}\n"
        "sinks:\n  one: {from: one, topic: one}\n  two: {from: two, topic: two}\n  all: {from: orders, topic: all, key: customer}\n",
        "custmer", "customer", '8:26: error: no column "customer"; did you mean "custmer"? (also in lines 9, 13)', True,
    ),
    "table misspelt, with an expectation": whole(
        "steps:\n  out: {sql: 'SELECT id FROM §', expect: [{that: id > 0}]}\n" + SINK,
        "oders", "orders", '8:30: error: no source or step "oders"; did you mean "orders"?',
    ),
    "table misspelt, used later": whole(
        "steps:\n  one: {sql: 'SELECT id, customer FROM §'}\n  two: {sql: 'SELECT id, customer FROM one'}\n"
        "sinks: {out: {from: two, topic: copies}}\n",
        "oders", "orders", '8:40: error: no source or step "oders"; did you mean "orders"?',
    ),
    # -- Aggregates.
    "column not grouped": sql("customer, amount", "customer, max(amount) AS amount", '10:24: error: "amount" is neither in GROUP BY nor inside an aggregate; add it to GROUP BY, or use max(amount)', text=COUNTS.replace("§", "§, count(*) AS n")),
    "two columns not grouped": sql("id, amount", "max(id) AS id, max(amount) AS amount", '10:14: error: "id", "amount" are neither in GROUP BY nor inside an aggregate; add them to GROUP BY, or use max(id)', text=COUNTS.replace("§", "§, count(*) AS n")),
    "no GROUP BY": whole(
        "steps:\n  out:\n    output: update\n    sql: SELECT customer, count(*) AS n FROM orders§\n" + SINK, "", " GROUP BY customer", '10:17: error: "customer" is neither in GROUP BY nor inside an aggregate; add GROUP BY customer, or use max(customer)', spark=True
    ),
    "star with GROUP BY": sql("*", "customer, count(*) AS n", "10:14: error: * selects columns that are neither in GROUP BY nor inside an aggregate; name the columns", text=COUNTS),
    "aggregate in WHERE": sql("WHERE sum(amount) > 10", "WHERE amount > 10", "10:56: error: an aggregate (sum) cannot stand in WHERE; use HAVING, or a step of its own", text="SELECT customer, count(*) AS n FROM orders § GROUP BY customer, window(at, '1 hour')"),
    "aggregate in GROUP BY": sql("max(id)", "id", "10:49: error: an aggregate (max) cannot stand in GROUP BY; compute it in a step of its own", text="SELECT count(*) AS n FROM orders GROUP BY §, window(at, '1 hour')"),
    "aggregate of an aggregate": sql("max(sum(amount))", "sum(amount)", "10:18: error: sum cannot stand inside max: aggregate in one step, and again in the next", text=COUNTS.replace("§", "§ AS n")),
    "aggregate in an expectation": Mistake(ORDERS + "    expect: [{that: §, otherwise: drop}]\n" + COPY, "sum(amount) > 0", "amount > 0", "7:21: error: an aggregate (sum) cannot stand here; compute it in a step with GROUP BY", True),
    "aggregate in a key": whole("sinks: {out: {from: orders, topic: a, key: §}}\n", "max(customer)", "customer", "7:44: error: an aggregate (max) cannot stand here; compute it in a step with GROUP BY", spark=True),
    "distinct over a stream": sql("count(DISTINCT id)", "approx_count_distinct(id)", "10:14: error: count(DISTINCT ...) does not work on streams; use approx_count_distinct", text=COUNTS.replace("§", "§ AS n")),
    # -- Types.
    "comparison with a truth": sql("paid = 1", "paid", "10:35: error: cannot compare paid (BOOLEAN) with 1 (INT); CAST one of them", text="SELECT id FROM orders WHERE §"),
    "comparison of a time with a number": sql("at > 20260101", "at > '2026-01-01'", "10:35: error: cannot compare at (TIMESTAMP) with 20260101 (INT); CAST one of them", text="SELECT id FROM orders WHERE §"),
    "comparison of a number with a text": sql("id = 'abc'", "id = '12'", "10:40: error: cannot compare id (BIGINT) with 'abc', which is no number", text="SELECT id FROM orders WHERE §", spark=False),
    "IN of texts": sql("amount IN ('1.5', 'two')", "amount IN ('1.5', '-2e3')", "10:53: error: cannot compare amount (DOUBLE) with 'two', which is no number", text="SELECT id FROM orders WHERE §", spark=False),
    "comparison of an array": sql("tags = 'new'", "array_contains(tags, 'new')", "10:35: error: cannot compare tags (ARRAY) with 'new' (STRING); name one of its elements: tags[...]", text="SELECT id FROM orders WHERE §", spark=True),
    "IN of other types": sql("paid IN (1, 2)", "id IN (1, 2)", "10:35: error: cannot compare paid (BOOLEAN) with 1 (INT); CAST one of them", text="SELECT id FROM orders WHERE §"),
    "BETWEEN of other types": sql("at BETWEEN 1 AND 2", "id BETWEEN 1 AND 2", "10:35: error: cannot compare at (TIMESTAMP) with 1 (INT); CAST one of them", text="SELECT id FROM orders WHERE §"),
    "sum of times": sql("at + at", "at - at", "10:18: error: at (TIMESTAMP) + at (TIMESTAMP) is not possible; CAST one of them", text="SELECT id, § AS x FROM orders"),
    "number as a condition": sql("amount", "amount > 0", "10:35: error: WHERE needs a condition, not amount (DOUBLE); compare it with something", text="SELECT id FROM orders WHERE §"),
    "join of other types": sql("o.paid", "o.id", "13:51: error: cannot compare o.paid (BOOLEAN) with r.order_id (BIGINT); CAST one of them", text=f"SELECT o.id FROM orders o JOIN refunds r ON § = r.order_id {WITHIN}", start=ORDERS + REFUNDS),
    "type in CAST": sql("TEXT", "STRING", '10:25: error: Spark has no type "TEXT"; did you mean "STRING"?', text="SELECT CAST(id AS §) AS id FROM orders"),
    "type in CAST misspelt": sql("BIGNIT", "BIGINT", '10:25: error: Spark has no type "BIGNIT"; did you mean "BIGINT"?', text="SELECT CAST(id AS §) AS id FROM orders", spark=False),
    "type in a schema": Mistake(ORDERS.replace("amount DOUBLE", "amount §") + COPY, "DUBLE", "DOUBLE", '5:80: error: column "amount": Spark has no type "DUBLE"; did you mean "DOUBLE"?'),
    "type in a schema, nested": Mistake(ORDERS.replace("ARRAY<STRING>", "ARRAY<§>") + COPY, "STRNG", "STRING", '5:127: error: column "tags": Spark has no type "STRNG"; did you mean "STRING"?'),
    # -- Streams.
    "watermark of text": Mistake(ORDERS.replace("column: at", "column: §") + COPY, "customer", "at", '6:25: error: a watermark needs a TIMESTAMP, and "customer" is STRING; declare it as TIMESTAMP in the schema'),
    "watermark of no column": Mistake(ORDERS.replace("column: at", "column: §") + COPY, "time", "at", '6:25: error: no column "time"; there are _headers, _key, _offset, _partition, _timestamp, _topic, amount, at, customer, id, paid, tags'),
    "group without an end": sql("customer", "customer, window(at, '1 hour')", '10:59: error: a group is written when it is complete, which needs a window over the column of the watermark in GROUP BY; add one, or say "output: update"', text="SELECT customer, count(*) AS n FROM orders GROUP BY §"),
    "append without a watermark": Mistake(
        ORDERS.replace("    watermark: {column: at, delay: 10 minutes}\n", "")
        + f"steps:\n  out: {{output: §, sql: 'SELECT customer, count(*) AS n FROM orders GROUP BY customer'}}\n{SINK}",
        "append", "update", '7:17: error: a group is written when it is complete, which needs a "watermark"; add one, or say "output: update"', True,
    ),
    "order of a stream": sql("ORDER BY n", "HAVING n > 1", '10:99: error: a stream has no end, so ORDER BY cannot sort it; remove it, or say "output: complete"', text="SELECT customer, count(*) AS n FROM orders GROUP BY customer, window(at, '1 hour') §"),
    "outer join without a bound": sql(
        "ON o.id = r.order_id", "ON o.id = r.order_id AND r.since BETWEEN o.at AND o.at + INTERVAL 1 HOUR", "14:65: error: LEFT OUTER JOIN of streams needs a bound in time, such as AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR: only then is it known that no partner will come",
        text="SELECT o.id, r.since FROM orders o LEFT JOIN refunds r §",
        start=ORDERS + REFUNDS + "    watermark: {column: since, delay: 10 minutes}\n",
    ),
    "outer join without watermarks": Mistake(
        f"{UNMARKED}§steps:\n  out:\n    sql: |\n      SELECT o.id, r.since FROM orders o LEFT JOIN refunds r ON o.id = r.order_id {WITHIN}\n{SINK}",
        "", "    watermark: {column: since, delay: 10 minutes}\n",
        '12:52: error: LEFT OUTER JOIN of streams needs a "watermark" (orders, refunds): only then is it known that no partner will come', True,
    ),
    "join without watermarks": Mistake(
        f"{UNMARKED}§steps:\n  out:\n    sql: |\n      SELECT o.id, r.since FROM orders o JOIN refunds r ON o.id = r.order_id {WITHIN}\n{SINK}",
        "", "    watermark: {column: since, delay: 10 minutes}\n",
        '12:47: warning: JOIN of streams needs a "watermark" (orders, refunds): Spark keeps every row otherwise',
    ),
    "join without a bound": sql(
        "ON o.id = r.order_id", f"ON o.id = r.order_id {WITHIN}", "13:60: warning: JOIN of streams needs a bound in time, such as AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR: Spark keeps every row otherwise",
        text="SELECT o.id, r.since FROM orders o JOIN refunds r §", start=ORDERS + REFUNDS, spark=False,
    ),
    "join without equal columns": sql("ON o.at < r.since", f"ON o.id = r.order_id {WITHIN}", "13:60: error: streams are joined by equal columns; write JOIN ... ON a.id = b.id", text="SELECT o.id, r.since FROM orders o JOIN refunds r §", start=ORDERS + REFUNDS, spark=False),
    "sides of a union": sql("SELECT id FROM orders", "SELECT id, customer FROM orders", "10:56: error: the sides of UNION have 2 and 1 columns; they need the same number", text="SELECT id, customer FROM orders UNION ALL §", spark=True),
    # -- Sources and sinks.
    "bootstrap without a port": whole("bootstrap: §\n" + COPY, "kafka-1", "kafka-1:9092", '7:12: error: "kafka-1" has no port; write host:port, such as kafka-1:9092'),
    "bootstrap with a wrong port": whole("bootstrap: §\n" + COPY, "kafka-1:9092, kafka-2:99092", "kafka-1:9092, kafka-2:9092", '7:26: error: "kafka-2:99092": a port is between 1 and 65535'),
    "bootstrap of a source": Mistake(ORDERS + "    bootstrap: §\n" + COPY, "kafka-1;9092", "kafka-1:9092", '7:16: error: "kafka-1;9092" has no port; write host:port, such as kafka-1:9092'),
    "option of a topic": Mistake(ORDERS + "    options: {§: 4}\n" + COPY, "minPartition", "minPartitions", '7:15: error: no option "minPartition" of a topic source; did you mean "minPartitions"?'),
    "setting of a consumer": Mistake(ORDERS + "    options: {§: a}\n" + COPY, "kafka.grup.id", "kafka.group.id", '7:15: error: no option "kafka.grup.id" of a topic source; did you mean "kafka.group.id"?'),
    "setting of a producer": whole("sinks: {out: {from: orders, topic: a, options: {§: zstd}}}\n", "kafka.compresion.type", "kafka.compression.type", '7:49: error: no option "kafka.compresion.type" of a topic sink; did you mean "kafka.compression.type"?'),
    "option of JSON": Mistake(ORDERS.replace("{format: json,", "{format: json, options: {§: yyyy},") + COPY, "timestampFromat", "timestampFormat", '5:37: error: no option "timestampFromat" of JSON; did you mean "timestampFormat"?'),
    "format of a sink": whole("sinks: {out: {from: orders, format: §, path: /lake}}\n", "detla", "delta", '7:37: error: neither Penstock nor Spark has a format "detla"; did you mean "delta"?'),
    "format of a source": Mistake("name: a\nsources: {a: {format: §, path: /a, schema: id INT}}\nsinks: {out: {from: a, topic: a}}\n", "parqet", "parquet", '2:23: error: neither Penstock nor Spark has a format "parqet"; did you mean "parquet"?'),
    "format of nothing": whole("sinks: {out: {from: orders, format: §}}\n", "spreadsheet", "console", '7:37: error: neither Penstock nor Spark has a format "spreadsheet"; if it is in a jar, name the jar in spark: {spark.jars: ...}'),
    "option of postgres": whole("sinks: {out: {from: orders, format: postgres, table: t, key: id, options: {host: db, §: 5432}}}\n", "prot", "port", '7:86: error: no option "prot" of postgres; did you mean "port"?'),
    "sslmode of postgres": whole("sinks: {out: {from: orders, format: postgres, table: t, key: id, options: {sslmode: §}}}\n", "requre", "require", '7:85: error: "sslmode" is one of disable, allow, prefer, require, verify-ca, verify-full, not "requre"; did you mean "require"?'),
    "option of cassandra": whole("sinks: {out: {from: orders, format: cassandra, table: k.t, options: {§: a}}}\n", "host", "hosts", '7:70: error: no option "host" of cassandra; did you mean "hosts"?'),
    "port of cassandra": whole("sinks: {out: {from: orders, format: cassandra, table: k.t, options: {port: §}}}\n", "default", "9042", '7:76: error: "port" is a whole number, not "default"'),
    "option of delta": whole("sinks: {out: {from: orders, format: delta, path: /a, options: {§: 10}}}\n", "optimiseEvery", "optimizeEvery", '7:64: error: no option "optimiseEvery" of delta; did you mean "optimizeEvery"?'),
    "truth of delta": whole("sinks: {out: {from: orders, format: delta, path: /a, options: {mergeSchema: §}}}\n", "on", "true", '7:77: error: "mergeSchema" is one of true, false, not "on"'),
    "history without a key": whole("sinks: {out: {from: orders, format: delta, path: /a, §history: true}}\n", "", "key: id, ", '7:63: error: "history" needs a "key": which rows are versions of the same'),
    "time of a history": whole("sinks: {out: {from: orders, format: delta, path: /a, key: id, history: true, history_time: §}}\n", "att", "at", '7:92: error: no column "att"; did you mean "at"?'),
    "time of no history": whole("sinks: {out: {from: orders, format: delta, path: /a, key: id, §history_time: at}}\n", "", "history: true, ", '7:77: error: "history_time" needs "history: true"'),
    "history that rows have": whole("steps: {out: {sql: 'SELECT id, at AS § FROM orders'}}\nsinks: {out: {from: out, format: delta, path: /a, key: id, history: true}}\n", "valid_from", "since", '8:69: error: "history" makes a column "valid_from", and rows have one; rename it'),
    "option of csv": whole("sinks: {out: {from: orders, format: csv, path: /a, columns: [id], options: {§: 'true'}}}\n", "heeder", "header", '7:77: error: no option "heeder" of csv; did you mean "header"?'),
    "option of rate": Mistake("name: a\nsources: {a: {format: rate, options: {§: 5}}}\nsinks: {out: {from: a, topic: a}}\n", "rowPerSecond", "rowsPerSecond", '2:39: error: no option "rowPerSecond" of rate; did you mean "rowsPerSecond"?'),
    "number of console": whole("sinks: {out: {from: orders, format: console, options: {numRows: §}}}\n", "many", "5", '7:65: error: "numRows" is a whole number, not "many"'),
    # -- Fields: one cause, one message.
    "field misspelt": whole("sinks: {out: {from: orders, §: copies}}\n", "topik", "topic", '7:29: error: unknown field "topik" of a sink; did you mean "topic"?'),
    "field of a watermark": Mistake(ORDERS.replace("column: at", "§: at") + COPY, "colunm", "column", '6:17: error: unknown field "colunm" of a watermark; did you mean "column"?'),
    "source misspelt, tested": Mistake(ORDERS.replace("topic: orders", "§: orders") + COPY + TEST.replace("§", "{value: {id: 1}}"), "topc", "topic", '4:5: error: unknown field "topc" of a source; did you mean "topic"?'),
    # -- Tests.
    "unknown field of a row": whole(COPY + TEST, "{value: {id: 1, custmer: ann}}", "{value: {id: 1, customer: ann}}", '12:27: error: the schema has no field "custmer"; did you mean "customer"?'),
    "unknown field of a record": whole(COPY + TEST, "{value: {id: 1}, time: 5}", "{value: {id: 1}, timestamp: 5}", '12:28: error: a record has no field "time"; did you mean "timestamp"?'),
    "row of a wrong type": whole(COPY + TEST, "{value: {id: one}}", "{value: {id: 1}}", '12:20: error: "id" is BIGINT, not "one": the record becomes a dead letter, and the test expects none'),
    "row without a needed field": whole(COPY + TEST, "{value: {amount: 1}}", "{value: {id: 1, amount: 1}}", '12:12: error: "id" is NOT NULL and missing: the record becomes a dead letter, and the test expects none'),
    "time of a record": whole(COPY + TEST, "{value: {id: 1}, timestamp: yesterday}", "{value: {id: 1}, timestamp: '2026-01-01T00:00:00Z'}", '12:28: error: timestamp "yesterday" is not like 2026-01-01T12:00:00Z, nor milliseconds'),
    "expected field": whole(COPY + EXPECT, "{value: {id: 1, amout: 2}}", "{value: {id: 1, amount: 2}}", '13:27: error: no column "amout" is written; did you mean "amount"?'),
    "expected part of a record": whole(COPY + EXPECT, "{vlaue: {id: 1}}", "{value: {id: 1}}", '13:12: error: a record that is written has no field "vlaue"; did you mean "value"?'),
    "expected type": whole(COPY + EXPECT, "{value: {id: '1'}}", "{value: {id: 1}}", '13:20: error: "id" is written as BIGINT, and "1" is none, so the test cannot pass'),
    "field of a dead letter": whole(
        COPY + "tests: [{name: one, given: {orders: [{value: x}]}, dead_letters: [{§: not JSON}]}]\n", "reson", "reason", '8:68: error: a dead letter has no field "reson"; did you mean "reason"?'
    ),
}  # fmt: skip
