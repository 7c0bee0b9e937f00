"""The tests of the pipeline in docs/howto/pipeline.md pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from documentation import blocks_of
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.fixtures import run_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "pipeline.md"


@pytest.mark.soak
def test_the_pipeline_does_what_its_tests_say(spark: SparkSession, tmp_path: Path) -> None:
    (text,) = [text for language, text in blocks_of(PAGE) if language == "yaml"]
    (tmp_path / "fuel.yaml").write_text(text)
    loaded, warnings = load_checked(str(tmp_path / "fuel.yaml"))
    assert warnings == []
    assert [result.differences for result in run_tests(loaded, spark)] == [[]]
