"""Checkpoints and what they are for: each has a note beside it of the query that writes it.

`run` looks at the note before a query starts: if the query has become one that the checkpoint does not fit, it does not
start. `validate --against-checkpoint` says the same, and of all queries at once, before anybody runs anything.
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
    """Before a query starts: PipelineFailed if the checkpoint is not for it; otherwise it is, from now on."""
    before = _shape(noted(files)(f"{checkpoint}/{NOTE}"))
    if before is not None:
        for edit in compare(before, shape, query):
            if edit.verdict != "safe":
                raise PipelineFailed(told(loaded, query, edit))
    if before != shape:
        files.write_note(f"{checkpoint}/{NOTE}", shape.to_json())


def against_checkpoints(loaded: Loaded, read: ReadNote) -> Iterator[Comparison]:
    """Of every query of a pipeline that is valid."""
    pipeline, directory = loaded.pipeline, loaded.directory
    analysis = analyse(pipeline, directory)
    for name, query in plan(pipeline, analysis).items():
        before = _shape(read(f"{checkpoint_of(pipeline, directory, name)}/{NOTE}"))
        after = shape_of(pipeline, analysis, query, directory, pipeline.bootstrap)
        yield Comparison(name, compare(before, after, name) if before is not None else [], before is not None)


def told(loaded: Loaded, query: str, edit: Edit) -> str:
    """One line: the place in the file, what the edit does, and the way out."""
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
    """For the checkpoints of a pipeline; Spark is only started where they are on another file system."""
    root = resolve(pipeline.checkpoints, directory)
    if "://" not in root or root.startswith("file://"):
        return noted_here
    return noted(Files(session(), root))


def _shape(made: Any) -> QueryShape | None:
    """What a later version has noted cannot be compared, and Spark will say what does not fit."""
    return QueryShape.from_json(made) if made is not None and made["version"] == VERSION else None
