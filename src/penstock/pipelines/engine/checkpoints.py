"""Stores beside each checkpoint the shape of the query that writes it, and compares it later.

`run` reads the stored shape before a query starts; if the checkpoint does not fit the query's present form, the query
does not start. `validate --against-checkpoint` reports the same, for all queries at once, before anything runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.checkpoint_edits import Edit, Verdict, compare, worst
from penstock.pipelines.check.checkpoint_shape import NOTE, VERSION, QueryShape, shape_of
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import Pipeline
from penstock.pipelines.spec.paths import resolve
from penstock.pipelines.spec.problems import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReadNote = Callable[[str], Any]
"""Of a path; None if there is no such note."""


@dataclass(frozen=True, slots=True)
class Comparison:
    query: str
    edits: list[Edit]
    found: bool = True
    """Whether there is a checkpoint with a note."""

    @property
    def verdict(self) -> Verdict:
        return worst(self.edits)


def checkpoint_of(pipeline: Pipeline, directory: str, query: str) -> str:
    return f"{resolve(pipeline.checkpoints, directory).rstrip('/')}/{pipeline.name}/{query}"


def guard(files: Files, checkpoint: str, query: str, shape: QueryShape, loaded: Loaded) -> None:
    """Before a query starts: PipelineFailed if the checkpoint does not fit it; otherwise stores the query's shape."""
    before = _shape(noted(files)(f"{checkpoint}/{NOTE}"))
    if before is not None:
        for edit in compare(before, shape, query):
            if edit.verdict != "safe":
                raise PipelineFailed(edit_message(loaded, query, edit))
    if before != shape:
        files.write_note(f"{checkpoint}/{NOTE}", shape.to_json())


def next_batch(files: Files, checkpoint: str) -> int:
    """The number of the batch that a query begins or repeats when it starts."""
    streamed = (name for name in files.names(f"{checkpoint}/commits") if name.isdecimal())
    whole = (name.removesuffix(".done") for name in files.names(f"{checkpoint}/runs") if name.endswith(".done"))
    return max(map(int, (*streamed, *whole)), default=-1) + 1


def against_checkpoints(loaded: Loaded, read: ReadNote) -> Iterator[Comparison]:
    """Compares every query of a valid pipeline."""
    pipeline, directory = loaded.pipeline, loaded.directory
    analysis = analyse(pipeline, directory)
    for name, query in plan(pipeline, analysis).items():
        before = _shape(read(f"{checkpoint_of(pipeline, directory, name)}/{NOTE}"))
        after = shape_of(pipeline, analysis, query, directory, pipeline.cluster)
        yield Comparison(name, compare(before, after, name) if before is not None else [], before is not None)


def edit_message(loaded: Loaded, query: str, edit: Edit) -> str:
    """One line: the position in the file, the effect of the edit, and what to do."""
    at = loaded.places.find(edit.path)
    place = loaded.file if at is None else f"{loaded.file}:{at.line}:{at.column}"
    section = "sources" if query in loaded.pipeline.sources else "steps"
    ways: dict[Verdict, str] = {
        "safe": "",
        "new checkpoint": f'; give "{query}" in {section} another name and it begins anew',
        "refused": f'; undo the edit, or give "{query}" in {section} another name and it begins anew',
    }
    return f'{place}: {edit.verdict}: query "{query}": {edit.message}{ways[edit.verdict]}'


def noted(files: Files) -> ReadNote:
    def read(path: str) -> Any:
        place, _, name = path.rpartition("/")
        return files.read_note(path) if name in files.names(place) else None

    return read


def noted_here(path: str) -> Any:
    """On this machine, without Spark."""
    try:
        with open(path.removeprefix("file://"), encoding="utf-8") as opened:
            return json.load(opened)
    except FileNotFoundError:
        return None


def reader(pipeline: Pipeline, directory: str, session: Callable[[], SparkSession]) -> ReadNote:
    """For the checkpoints of a pipeline; starts Spark only if they are on another file system."""
    root = resolve(pipeline.checkpoints, directory)
    if "://" not in root or root.startswith("file://"):
        return noted_here
    return noted(Files(session(), root))


def _shape(made: Any) -> QueryShape | None:
    """A shape stored by a later version cannot be compared; Spark will report what does not fit."""
    return QueryShape.from_json(made) if made is not None and made["version"] == VERSION else None
