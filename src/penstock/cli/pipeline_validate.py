"""`penstock pipeline validate` with `--analyze` and `--against-checkpoint`: the checks that may need Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.cli.output import note, print_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded


def analyzed(loaded: Loaded, session: SparkSession, json: bool) -> bool:
    """Whether Spark can run the pipeline. Prints problems, and the types of all tables."""
    from penstock.pipelines.engine.analyzer import analyze

    found = analyze(loaded, session)
    if json:
        problems = [{"path": list(each.path), "message": each.message} for each in found.problems]
        print_json({"problems": problems, "tables": found.types})
        return not found.problems
    for problem in found.problems:
        note(str(problem))
    for name, columns in found.types.items():
        print(f"{name}: {columns}")
    errors = len(found.problems)
    print(f"{loaded.file}: {errors} error{'s' if errors != 1 else ''}" if errors else f"{loaded.file}: valid in Spark")
    return not errors


def compared(loaded: Loaded, session: Callable[[], SparkSession], json: bool) -> bool:
    """Whether all queries can continue from their checkpoints."""
    from penstock.pipelines.engine.checkpoints import against_checkpoints, reader, told

    found: list[dict[str, Any]] = []
    fine = True
    for comparison in against_checkpoints(loaded, reader(loaded.pipeline, loaded.directory, session)):
        query = comparison.query
        fine = fine and comparison.verdict == "safe"
        for edit in comparison.edits:
            found.append({"query": query, "verdict": edit.verdict, "message": edit.message, "path": list(edit.path)})
            if not json:
                note(told(loaded, query, edit))
        if not json:
            state = comparison.verdict if comparison.edits else "unchanged" if comparison.found else "no checkpoint yet"
            print(f"{query}: {state}")
    if json:
        print_json(found)
    return fine
