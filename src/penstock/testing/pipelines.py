"""Tests of pipelines in pytest: rows in, rows and dead letters out, on Spark and without a broker.

def test_large_orders(penstock_pipeline):
    orders = penstock_pipeline("orders.yaml", minimum="10")
    orders.check()                              # the tests in its file

    written = orders.run({"orders": [{"key": "a", "value": {"id": 1, "amount": 2000}}]})

    assert written.sinks["large"] == [...]
    assert written.dead_letters == []
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.pipelines.check.validate import check_made, load_checked
from penstock.pipelines.engine.fixtures import Given, PipelineOutput, pipeline_output, run_tests
from penstock.pipelines.spec.binding import Places
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import Pipeline
from penstock.pipelines.spec.problems import PipelineInvalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PipelineUnderTest:
    """A pipeline to test; raises PipelineInvalid if it could not run."""

    def __init__(
        self,
        session: SparkSession,
        pipeline: str | os.PathLike[str] | Pipeline,
        environment: str | None = None,
        parameters: dict[str, str] | None = None,
    ) -> None:
        self._session = session
        if isinstance(pipeline, Pipeline):
            problems = check_made(pipeline)
            if any(problem.severity == "error" for problem in problems):
                raise PipelineInvalid(problems)
            self._loaded = Loaded(pipeline, Places(), os.path.join(os.getcwd(), pipeline.name), environment)
        else:
            self._loaded, _ = load_checked(os.fspath(pipeline), environment, parameters)

    def run(self, given: Given) -> PipelineOutput:
        """Return what the pipeline would write.

        `given` has the rows of each source, in the format of a pipeline file's tests: one batch, or a list of several,
        between which watermarks advance.
        """
        return pipeline_output(self._loaded, self._session, given)

    def check(self, *names: str) -> None:
        """Run the tests of its file, all or these; AssertionError lists all differences."""
        failed = [
            f"{result.name}: {difference}"
            for result in run_tests(self._loaded, self._session, names)
            for difference in result.differences
        ]
        if failed:
            raise AssertionError("\n".join(failed))
