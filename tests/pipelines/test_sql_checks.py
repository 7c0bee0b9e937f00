"""What Spark accepts, `validate` accepts; and its tables are of the Spark that is installed."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from penstock.pipelines.check import column_types, sql_checks
from penstock.pipelines.check.sql_checks import Rules
from penstock.pipelines.check.validate import validate
from penstock.pipelines.spec import options, spark_sql, sql
from penstock.pipelines.spec.sink_formats import option_names
from pipelines.valid_sql import TABLES, VALID_SQL

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULE = re.compile(r"^The module `(\S+)` is beside the file:\n\n```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^```ya?ml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", VALID_SQL)
def test_valid_sql_is_accepted(text: str) -> None:
    typed = {name: column_types._ddl(schema) for name, schema in TABLES.items()}
    query = sql.parse_query(text)

    assert list(sql_checks.complaints(query, typed, Rules())) == []
    assert list(sql.unknown_columns(query, {name: tuple(types) for name, types in typed.items()})) == []


def test_all_columns_of_the_tables_have_types() -> None:
    typed = {name: column_types._ddl(schema) for name, schema in TABLES.items()}

    assert [name for types in typed.values() for name, kind in types.items() if kind is None] == []
    assert str(typed["orders"]["level"]) == "INT"


def test_types_follow_queries() -> None:
    typed = {name: column_types._ddl(schema) for name, schema in TABLES.items()}
    text = (
        "SELECT id, amount * 2 AS a, count(*) AS n, max(struct(at, id)).at AS last, window "
        "FROM orders GROUP BY 1, 2, window(at, '1 day')"
    )

    output = sql_checks.output_of(sql.parse_query(text), typed)

    assert output is not None
    assert [(name, str(kind)) for name, kind in output] == [
        ("id", "BIGINT"),
        ("a", "DOUBLE"),
        ("n", "BIGINT"),
        ("last", "TIMESTAMP"),
        ("window", "STRUCT"),
    ]


@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        ("door > 3", "cannot compare door (STRUCT) with 3 (INT); name one of its fields: door.open, door.opened_by"),
        ("tags = 3", "cannot compare tags (ARRAY) with 3 (INT); name one of its elements: tags[...]"),
        ("3 < codes", "cannot compare 3 (INT) with codes (MAP); name one of its values: codes[...]"),
        ("door + 3 > 1", "door (STRUCT) + 3 (INT) is not possible; name one of its fields: door.open, door.opened_by"),
        ("tags = codes", "cannot compare tags (ARRAY) with codes (MAP); CAST one of them"),
    ],
)
def test_parts_are_named_instead_of_what_has_parts(condition: str, instead: str) -> None:
    schema = "door STRUCT<open: INT, opened_by: STRING>, tags ARRAY<INT>, codes MAP<STRING, INT>"
    query = sql.parse_query(f"SELECT 1 AS x FROM ovens WHERE {condition}")
    found = [each.message for each in sql_checks.complaints(query, {"ovens": column_types._ddl(schema)}, Rules())]
    assert found == [instead]


def test_settings_that_leave_less_certain() -> None:
    query = sql.parse_query("SELECT my_function(paid = 1) AS x FROM orders")
    typed = {name: column_types._ddl(schema) for name, schema in TABLES.items()}

    assert len(list(sql_checks.complaints(query, typed, Rules()))) == 2
    assert list(sql_checks.complaints(query, typed, Rules(ansi=False, more_functions=True))) == []


def test_tables_are_of_the_installed_spark() -> None:
    assert spark_sql.version() == importlib.metadata.version("pyspark")


@pytest.mark.parametrize(
    "page", [str(page.relative_to(ROOT)) for page in PAGES if "sources:" in page.read_text(encoding="utf-8")]
)
def test_pipelines_in_pages(page: str, tmp_path: Path) -> None:
    """Whole ones: other snippets show a part."""
    shown = (ROOT / page).read_text(encoding="utf-8")
    for name, module in MODULE.findall(shown):
        (tmp_path / name).write_text(module, encoding="utf-8")
    for number, text in enumerate(YAML.findall(shown)):
        if text.startswith("name:") and "sinks:" in text:
            file = tmp_path / f"{number}.yaml"
            file.write_text(text, encoding="utf-8")
            assert [str(problem) for problem in validate(str(file))] == []


def test_options_of_topics_are_those_of_the_source_and_the_sink() -> None:
    from penstock.spark.sink import options as sink
    from penstock.spark.source import kafka_settings
    from penstock.spark.source import options as source

    names = {name for name in options.TOPIC_SOURCE.names if not name.startswith("kafka.")}
    assert names == set(source.OPTIONS)
    consumer = kafka_settings._HEEDED | kafka_settings._NEEDLESS | set(kafka_settings._REFUSED)
    assert set(options.CONSUMER_SETTINGS) == consumer
    assert set(options.SINK_NAMES) == set(sink.OPTIONS) - {"sinkNames"}  # which the engine sets
    producer = sink._HEEDED | sink._NEEDLESS | set(sink._REFUSED) | set(sink._LEVELS)
    assert set(options.PRODUCER_SETTINGS) == producer


def test_options_of_postgres_are_those_of_libpq() -> None:
    pq = pytest.importorskip("psycopg.pq")
    libpq = {each.keyword.decode() for each in pq.Conninfo.get_defaults()}

    assert libpq <= set(option_names("postgres"))
