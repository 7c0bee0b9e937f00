"""Files with something wrong in them, and all that is said of each."""

from __future__ import annotations

from textwrap import dedent

START = """\
name: orders
sources:
  orders:
    topic: orders
    value: {format: json, schema: "id BIGINT, amount DOUBLE, at TIMESTAMP"}
"""
END = "sinks: {out: {from: orders, topic: copies}}\n"


def case(text: str, *problems: str, start: str = START, end: str = "") -> tuple[str, list[str]]:
    return start + dedent(text) + end, list(problems)


CASES: dict[str, tuple[str, list[str]]] = {
    "empty": ("", ['1:1: error: the file is empty; it begins with "name: ..."']),
    "a list": ("- a\n", ['1:1: error: a pipeline is a mapping of fields; it begins with "name: ..."']),
    "not YAML": (
        "name: [a\nb: c\n",
        ["2:2: error: not YAML: while parsing a flow sequence expected ',' or ']', but got ':'"],
    ),
    "tabs": (
        "name: a\nsources:\n\tx: 1\n",
        ["3:1: error: not YAML: while scanning for the next token found character '\\t' that cannot start any token"],
    ),
    "two documents": (
        "name: a\n---\nname: b\n",
        ["2:1: error: not YAML: expected a single document in the stream but found another document"],
    ),
    "a key twice": (
        "name: a\nname: b\n",
        ['2:1: error: "name" is given twice, first in line 1; remove one'],
    ),
    "an alias of itself": (
        "name: a\nsources: &s\n  x: *s\n",
        ["2:10: error: an alias that contains itself; write it out"],
    ),
    "nearest field": case(
        "souces: {}\n",
        '6:1: error: unknown field "souces" of a pipeline; did you mean "sources"?',
        end=END,
    ),
    "text without quotes between braces": case(
        "steps: {a: {sql: SELECT id, amount FROM orders}}\n",
        '6:29: error: unknown field "amount FROM orders" of a step; if it is a part of the text before it: between '
        "braces, text with commas needs quotes",
        end=END,
    ),
    "several at once, in order": (
        dedent("""\
        name: "a b"
        sources:
          one: {topik: x}
          two:
            topic: x
            max_records: many
            key: [string]
            watermark: {column: at}
        sinks:
          out: {from: two, topic: y, delivery: exactly-twice}
        trigger: soon
        """),
        [
            '1:7: error: "a b" cannot be a name: letters, digits, ".", "_" and "-" only, as it is part of paths',
            '3:9: error: unknown field "topik" of a source; did you mean "topic"?',
            '6:18: error: a whole number is needed here, not "many"',
            "7:10: error: a list is not one of string, bytes",
            '8:5: error: a watermark needs the field "delay"',
            '10:40: error: "exactly-twice" is not one of exactly-once, at-least-once; did you mean "exactly-once"?',
            '11:10: error: "soon" is not a length of time such as 500ms, 10s, 5 minutes or 1h30m',
        ],
    ),
    "no name": (
        "sources: {a: {topic: x}}\nsinks: {b: {from: a, topic: y}}\n",
        ['1:1: error: a pipeline needs the field "name"'],
    ),
    "nothing to do": (
        "name: a\n",
        ["1:1: error: a pipeline needs at least one of sinks", "1:1: error: a pipeline needs at least one of sources"],
    ),
    "field without value": case(
        "steps:\n  a:\n    sql:\n", '8:5: error: "sql" has no value; write one, or remove the field', end=END
    ),
    "scalar for a mapping": case("sinks: {out: orders}\n", '6:14: error: a sink is a mapping of fields, not "orders"'),
    "neither sql nor python": case(
        "steps: {a: {}}\n",
        '6:9: error: a step has either "sql" or "python"',
        '6:9: warning: nothing reads "a"',
        end=END,
    ),
    "unknown table": case(
        "steps:\n  a: {sql: SELECT * FROM oders}\n",
        '7:26: error: no source or step "oders"; did you mean "orders"?',
        end="sinks: {out: {from: a, topic: copies}}\n",
    ),
    "unknown column": case(
        """\
        steps:
          large:
            sql: |
              SELECT id,
                     amont * 2 AS twice
              FROM orders
        sinks: {out: {from: large, topic: copies, key: idd}}
        """,
        '10:14: error: no column "amont"; did you mean "amount"?',
        '12:48: error: no column "idd"; did you mean "id"?',
    ),
    "column after a parameter": case(
        """\
        parameters: {table: orders}
        steps:
          large: {sql: "SELECT ${table}.id, nope FROM ${table}"}
        sinks: {out: {from: large, topic: copies}}
        """,
        '8:37: error: no column "nope"; there are _headers, _key, _offset, _partition, _timestamp, _topic, amount, at, '
        "id, orders",
    ),
    "not SQL": case(
        "steps:\n  a:\n    sql: |\n      SELECT id x y\n      FROM orders\n",
        '9:19: error: not SQL: unexpected token near "y"',
        end=END.replace("from: orders", "from: a"),
    ),
    "not a query": case(
        "steps: {a: {sql: DROP TABLE orders}}\n",
        "6:18: error: a query is needed here (SELECT ...), not DROP",
        end=END.replace("from: orders", "from: a"),
    ),
    "two queries": case(
        "steps: {a: {sql: SELECT 1; SELECT 2}}\n",
        "6:27: error: one query is needed here, not several statements",
        end=END.replace("from: orders", "from: a"),
    ),
    "circle": case(
        "steps:\n  a: {sql: SELECT * FROM b}\n  b: {sql: SELECT * FROM a}\n",
        "7:3: error: steps go round in a circle: a -> b -> a",
        end=END,
    ),
    "name twice": case(
        "steps: {Orders: {sql: SELECT 1 AS one}}\n",
        '6:9: error: "Orders" is there already, in sources; case makes no difference',
        '6:9: warning: nothing reads "Orders"',
        end=END,
    ),
    "unused": case("steps: {a: {sql: SELECT * FROM orders}}\n", '6:9: warning: nothing reads "a"', end=END),
    "dead letters of an aggregate": case(
        """\
        steps:
          totals:
            sql: SELECT id, sum(amount) AS total FROM orders GROUP BY id
            expect:
              - that: total > 0
                otherwise: dead-letter
        sinks: {out: {from: totals, topic: totals}}
        """,
        "11:20: error: rows of this table cannot become dead letters: it aggregates or takes away duplicates; put the "
        'expectation on an earlier step, or say "otherwise: drop"',
    ),
    "dead letters of a function": case(
        """\
        steps:
          scored: {python: "json:dumps", from: orders, expect: [{that: score > 0}]}
        sinks: {out: {from: scored, topic: totals}}
        """,
        "7:57: error: rows of this table cannot become dead letters: it is a function without "
        '"keeps_source_row: true"; put the expectation on an earlier step, or say "otherwise: drop"',
    ),
    "OVER a stream": case(
        """\
        steps: {ranked: {sql: "SELECT id, rank() OVER (ORDER BY amount) AS r FROM orders"}}
        sinks: {out: {from: ranked, topic: ranks}}
        """,
        "6:24: error: over a stream, a window function (OVER) would see the rows of one batch only; use a window in "
        "GROUP BY",
    ),
    "function": case(
        """\
        steps:
          a: {python: nowhere, from: orders}
          b: {python: "no_such_module:f", from: [orders, ordrs]}
        sinks: {x: {from: a, topic: a}, y: {from: b, topic: b}}
        """,
        '7:15: error: "nowhere" is not a function; write module:function',
        '8:15: error: no module "no_such_module", neither beside this file nor installed',
        '8:50: error: no source or step "ordrs"; did you mean "orders"?',
    ),
    "schema": (
        dedent("""\
        name: a
        sources:
          one: {topic: x, value: {format: json, schema: "id BIGINT, id INT"}}
          two: {topic: x, value: {format: json}}
          three: {topic: x, value: {format: avro, schema: "{"}}
          four: {topic: x, value: {format: avro, schema_file: missing.avsc}}
          five: {topic: x, value: {schema: a INT}}
          six: {topic: x, evolution: fail, starting_offsets: soon}
          seven: {topic: "a/b"}
        sinks:
          a: {from: one, topic: a}
          b: {from: two, topic: a}
          c: {from: three, topic: a}
          d: {from: four, topic: a}
          e: {from: five, topic: a}
          f: {from: six, topic: a}
          g: {from: seven, topic: a}
        """),
        [
            '3:50: error: column "id" is there twice',
            '4:19: error: json needs a "schema", or a "schema_file" beside this file',
            "5:53: error: an Avro schema is JSON: Expecting property name enclosed in double quotes",
            "6:55: error: missing.avsc: No such file or directory",
            '7:36: error: string has no schema; did you mean "format: json"?',
            '8:30: error: "evolution" is for json, and avro with a registry, not string',
            '8:54: error: "soon" is not earliest, latest, or JSON such as {"orders": {"0": 23}}',
            '9:18: error: "a/b" cannot be a topic: letters, digits, ".", "_" and "-" only, at most 249',
        ],
    ),
    "formats": (
        dedent("""\
        name: a
        sources:
          one: {format: csv}
          two: {format: jdbc, mode: incremental}
          three: {format: rate, mode: lookup}
          four: {format: penstock}
        sinks:
          a: {from: one, format: delta}
          b: {from: two, format: parquet, path: /x}
          c: {from: three, format: parquet, path: /x}
          d: {from: four, format: kafka}
        """),
        [
            '3:3: error: csv needs a "path"',
            '3:3: error: a stream of csv files needs a "schema": id BIGINT, at TIMESTAMP, ...',
            '4:29: error: "cursor" and "mode: incremental" need each other',
            '6:18: error: for topics write "topic: ..." instead of "format: penstock"',
            '8:3: error: delta needs a "path"',
            '10:13: error: "three" has lookups only; give a source "mode: snapshot"',
            '10:43: error: sink "b" writes to this path, too; each needs its own',
            '11:27: error: for topics write "topic: ..." instead of "format: kafka"',
        ],
    ),
    "parameters": (
        dedent("""\
        name: a
        parameters:
          needed: {type: int}
          wrong: {type: int, default: ten}
          kind: {type: integer, default: 1}
        sources: {one: {topic: "${topc}", max_records: "${needed}"}}
        sinks: {a: {from: one, topic: "x-${}"}}
        """),
        [
            '3:3: error: parameter "needed" has no value; give it a default, or --set needed=...',
            '4:31: error: parameter "wrong": "ten" is not of type int',
            '5:16: error: "integer" is not one of string, int, float, bool; did you mean "int"?',
            '6:25: error: no parameter "topc"; there are none',
            '7:34: error: no parameter ""; write $${ where ${ is meant',
        ],
    ),
    "environments": case(
        """\
        environments:
          prod: {parameters: {x: 1}, sorces: {}}
          test: {name: other, sources: {orders: {max_records: lots}}}
          dev: fast
        """,
        '7:26: error: no parameter "x"; there are none',
        '7:30: error: unknown field "sorces" of a pipeline; did you mean "sources"?',
        '8:10: error: "name" is the same in all environments',
        '8:55: error: a whole number is needed here, not "lots"',
        "9:3: error: an environment is a mapping of what differs in it",
        end=END,
    ),
    "secrets": case(
        """\
        sinks:
          out: {from: orders, topic: "${secret:env:TOPIC}"}
          other: {from: orders, topic: a, options: {p: "${secret:vault:x}"}}
        """,
        "7:30: error: a secret can only stand in options",
        "8:48: error: ${secret:vault:x} is not a secret; write ${secret:env:NAME} or ${secret:file:PATH}",
    ),
    "queries": case(
        "queries: {oders: {trigger: 1s}, orders: {after: [totals]}}\n",
        '6:11: error: no query "oders"; did you mean "orders"?',
        '6:50: error: no other query "totals"; there is orders',
        end=END,
    ),
    "tests": case(
        "tests: [{name: t, given: {oders: []}, expect: {ot: []}}]\n",
        '6:27: error: no source "oders"; did you mean "orders"?',
        '6:48: error: no sink "ot"; did you mean "out"?',
        end=END,
    ),
    "databases": case(
        """\
        steps:
          each: {sql: "SELECT id, explode(sequence(1, id)) AS part FROM orders"}
          sums: {sql: "SELECT id, count(*) AS n FROM orders GROUP BY id"}
        sinks:
          a: {from: orders, format: postgres, key: idd}
          b: {from: each, format: elasticsearch, table: parts}
          c: {from: sums, format: postgres, table: sums, key: id, on_error: dead-letter}
          d: {from: orders, format: parquet, path: /d, table: orders, roll_bytes: 0}
          e: {from: orders, format: postgress}
        """,
        '10:3: error: postgres needs a "table"',
        '10:44: error: no column "idd"; did you mean "id"?',
        "11:3: error: the records of this table do not identify its rows: a record can make several; "
        'name columns that do in "key"',
        "12:69: error: rows of this table cannot become dead letters: it aggregates or takes away duplicates; "
        "choose another",
        '13:55: error: "table" has no meaning for parquet',
        "13:75: error: files cannot be smaller than a byte",
        '14:29: error: neither Penstock nor Spark has a format "postgress"; did you mean "postgres"?',
    ),
}
