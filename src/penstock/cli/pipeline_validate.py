"""`penstock pipeline validate`: several files, directories, and with `--analyze` and `--against-checkpoint` the checks
that may need Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.cli.output import fail, note, print_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded
    from penstock.pipelines.spec.problems import Problem


@dataclass(slots=True)
class Named:
    pipelines: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """YAML files in directories that are no pipelines."""


def named_files(names: Iterable[str]) -> Named:
    """The files that are named, and the pipelines in directories that are."""
    from penstock.pipelines.check.validate import pipeline_files

    found = Named()
    for name in names:
        if not os.path.isdir(name):
            found.pipelines.append(name)
            continue
        pipelines, others = pipeline_files(name)
        if not pipelines:
            fail(f"{name}: no pipeline in this directory or below; a pipeline is a .yaml file with sources and sinks")
        found.pipelines += pipelines
        found.skipped += others
    found.pipelines = list(dict.fromkeys(found.pipelines))
    return found


def validated(files: Named, env: str | None, settings: Mapping[str, str], json: bool) -> bool:
    """Whether all files are valid. Prints their problems, a line for each file, and the sum of several."""
    from penstock.pipelines.check.validate import validate

    by_file = {file: validate(file, env, settings) for file in files.pipelines}
    wrong = {file: sum(each.severity == "error" for each in problems) for file, problems in by_file.items()}
    bad = sum(1 for count in wrong.values() if count)
    if json:
        print_json([_machine(problem) for problems in by_file.values() for problem in problems])
        return not bad
    for file in files.skipped:
        note(f"{file}: not a pipeline (it has neither sources nor sinks), skipped")
    for file, problems in by_file.items():
        for problem in problems:
            note(str(problem))
        print(f"{file}: {_errors(wrong[file])}" if wrong[file] else f"{file}: valid")
    if len(by_file) > 1:
        said = f", {bad} with errors ({_errors(sum(wrong.values()))})" if bad else ", all valid"
        print(f"{len(by_file)} pipelines{said}")
    return not bad


def _errors(count: int) -> str:
    return f"{count} error{'s' if count != 1 else ''}"


def analyzed(loaded: Loaded, session: SparkSession, json: bool) -> bool:
    """Whether Spark can run the pipeline. Prints problems, and the types of all tables."""
    from penstock.pipelines.engine.analyzer import analyze

    found = analyze(loaded, session)
    if json:
        problems = [{"path": list(each.path), "message": each.message} for each in found.problems]
        print_json({"problems": problems, "tables": found.types, "batch_by_batch": found.not_one_plan})
        return not found.problems
    for problem in found.problems:
        note(str(problem))
    for name, columns in found.types.items():
        print(f"{name}: {columns}")
    for query, reason in found.not_one_plan.items():
        print(f'query "{query}" will be planned batch by batch: {reason}')
    errors = len(found.problems)
    print(f"{loaded.file}: {errors} error{'s' if errors != 1 else ''}" if errors else f"{loaded.file}: valid in Spark")
    return not errors


def compared(loaded: Loaded, session: Callable[[], SparkSession], json: bool) -> bool:
    """Whether all queries can continue from their checkpoints."""
    from penstock.pipelines.engine.checkpoints import against_checkpoints, edit_message, reader

    found: list[dict[str, Any]] = []
    fine = True
    for comparison in against_checkpoints(loaded, reader(loaded.pipeline, loaded.directory, session)):
        query = comparison.query
        fine = fine and comparison.verdict == "safe"
        for edit in comparison.edits:
            found.append({"query": query, "verdict": edit.verdict, "message": edit.message, "path": list(edit.path)})
            if not json:
                note(edit_message(loaded, query, edit))
        if not json:
            state = comparison.verdict if comparison.edits else "unchanged" if comparison.found else "no checkpoint yet"
            print(f"{query}: {state}")
    if json:
        print_json(found)
    return fine


def _machine(problem: Problem) -> dict[str, object]:
    line, column = problem.location or (None, None)
    return {
        "file": problem.file,
        "line": line,
        "column": column,
        "severity": problem.severity,
        "path": list(problem.path),
        "message": problem.message,
    }
