"""`penstock pipeline test`: runs the tests of one or several files in one Spark session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.output import fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded


class FileTests(NamedTuple):
    file: str
    loaded: Loaded
    names: tuple[str, ...]
    """The tests to run."""


def chosen(arguments: Sequence[str], load: Callable[[str], Loaded]) -> list[FileTests]:
    """The arguments are files and names of tests: what exists, or ends as files of pipelines do, is a file."""
    files = [each for each in arguments if each.endswith((".yaml", ".yml")) or os.path.exists(each)]
    if not files:
        fail(f"{arguments[0]}: no such file")
    names = [each for each in arguments if each not in files]
    loaded = {file: load(file) for file in dict.fromkeys(files)}
    known = {file: [test.name for test in each.pipeline.tests] for file, each in loaded.items()}
    for name in names:
        if not any(name in tests for tests in known.values()):
            there = ", ".join(test for tests in known.values() for test in tests)
            fail(f"{', '.join(loaded)} has no test {name!r}, only: {there or 'none'}")
    return [
        FileTests(file, each, tuple(test for test in known[file] if not names or test in names))
        for file, each in loaded.items()
    ]


def shared_settings(pipelines: Iterable[Loaded]) -> dict[str, str]:
    """Of the Spark session that all of them use."""
    settings: dict[str, str] = {}
    by: dict[str, str] = {}
    for loaded in pipelines:
        for name, value in loaded.pipeline.spark.items():
            if settings.setdefault(name, value) != value:
                fail(f"{by[name]} and {loaded.file} set {name} differently: they cannot share a Spark session")
            by.setdefault(name, loaded.file)
    return settings


def tested(wanted: Sequence[FileTests], session: SparkSession) -> bool:
    """Whether all passed."""
    from penstock.pipelines.engine.fixtures import run_together

    passed = failed = 0
    tests = [(each.loaded, test) for each in wanted for test in each.loaded.pipeline.tests if test.name in each.names]
    results = run_together(tests, session)
    for file in wanted:
        if len(wanted) > 1:
            print(file.file)
        for result in islice(results, len(file.names)):
            passed, failed = passed + (not result.differences), failed + bool(result.differences)
            print(f"{'FAILED' if result.differences else 'passed'}  {result.name}", flush=True)
            for difference in result.differences:
                print(f"        {difference}")
    print(f"{passed} passed, {failed} failed")
    return not failed
