"""A session is ready at once: Python found, time in UTC, logs quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_a_python_task_runs_in_the_interpreter_of_the_driver(spark: SparkSession) -> None:
    import sys

    from pyspark.sql.functions import udf

    interpreter = udf(lambda _: __import__("sys").executable)
    assert {row[0] for row in spark.range(4).select(interpreter("id")).collect()} == {sys.executable}
