"""`validate` and Spark agree: Spark refuses the mistakes of the table, and accepts what `validate` accepts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from penstock.pipelines.engine.analyzer import analyze
from penstock.pipelines.spec.documents import parse
from penstock.pipelines.spec.loading import bind
from penstock.pipelines.spec.problems import PipelineFailed
from pipelines.mistakes import MISTAKES
from pipelines.valid_sql import TABLES, VALID_SQL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def refusals(text: str, directory: Path, spark: SparkSession) -> list[str]:
    """What Spark has against a pipeline."""
    file = str(directory / "pipeline.yaml")
    loaded = bind(parse(text, file), file)
    try:
        return [problem.message for problem in analyze(loaded, spark).problems]
    except PipelineFailed as error:
        return [str(error)]


def test_spark_accepts_the_valid_sql(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    session = spark.newSession()
    for name, schema in TABLES.items():
        session.createDataFrame([], schema).createOrReplaceTempView(name)
    refused = {}
    for text in VALID_SQL:
        try:
            session.sql(text)
        except PySparkException as error:
            refused[text] = str(error).partition("\n")[0]

    assert refused == {}


@pytest.mark.soak  # each plans a pipeline, and starts its queries
@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.spark])
def test_spark_refuses_a_mistake(name: str, spark: SparkSession, tmp_path: Path) -> None:
    assert refusals(MISTAKES[name].mistaken, tmp_path, spark) != []


@pytest.mark.soak
@pytest.mark.parametrize("name", MISTAKES)
def test_spark_accepts_the_mended_file(name: str, spark: SparkSession, tmp_path: Path) -> None:
    assert refusals(MISTAKES[name].mended, tmp_path, spark) == []


@pytest.mark.soak  # half a minute: it asks Spark about every function
def test_the_tables_are_those_of_spark(spark: SparkSession) -> None:
    generator = _generator()
    found = json.loads(generator.written(generator.tables(spark.newSession())))

    assert found == json.loads(generator.FILE.read_text(encoding="utf-8"))


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_sql", ROOT / "docs" / "spark_sql.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
