"""Finds all errors of a pipeline file, in all of its environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from penstock.pipelines.check.checks import check
from penstock.pipelines.spec import loading
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import Pipeline
from penstock.pipelines.spec.problems import PipelineInvalid, Problem, in_order

_NAMED = ("sources", "steps", "sinks")


def validate(file: str, environment: str | None = None, given: Mapping[str, str] | None = None) -> list[Problem]:
    """In order. Without an environment: the errors of the file itself and of each of its environments."""
    try:
        document = loading.read(file)
        names = loading.environments(document) if environment is None else [environment]
        problems: list[Problem] = []
        for name in names:
            try:
                problems += problems_of(loading.bind(document, file, name, given))
            except PipelineInvalid as invalid:
                problems += invalid.problems
        return in_order(problems)
    except PipelineInvalid as invalid:
        return invalid.problems


def problems_of(loaded: Loaded) -> list[Problem]:
    """Errors of single fields, and of fields in combination. A part with invalid fields gets no further errors."""
    invalid_parts = {problem.path[:2] for problem in loaded.problems}
    broken = {str(key[1]) for key in loaded.places.keys if len(key) == 2 and key[0] in _NAMED and key in invalid_parts}
    problems = list(loaded.problems)
    by_cause: dict[tuple[str, str], list[Problem]] = {}
    for finding in check(loaded.pipeline, loaded.directory, broken):
        if finding.path[:2] not in invalid_parts:
            key = loaded.places.keys.get(finding.path) if finding.at_key else None
            location = key or loaded.places.find(finding.path, finding.index)
            problem = Problem(finding.message, finding.path, location, loaded.file, finding.severity)
            if finding.cause:
                by_cause.setdefault((finding.cause, finding.message), []).append(problem)
            else:
                problems.append(problem)
    return in_order([*problems, *map(_as_one, by_cause.values())])


def _as_one(same: list[Problem]) -> Problem:
    """The first of several problems with one cause; it names the lines of the others."""
    first, *others = in_order(same)
    lines = sorted({each.location.line for each in others if each.location is not None})
    if not lines:
        return first
    numbers = ", ".join(map(str, lines))
    return replace(first, message=f"{first.message} (also in line{'s' if len(lines) > 1 else ''} {numbers})")


def pipeline_files(directory: str) -> tuple[list[str], list[str]]:
    """The pipelines below a directory, and the YAML files that are none."""
    found: list[str] = []
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        found += (os.path.join(place, name) for name in sorted(names) if name.endswith((".yaml", ".yml")))
    pipelines = [file for file in found if is_pipeline(file)]
    return pipelines, [file for file in found if file not in pipelines]


def is_pipeline(file: str) -> bool:
    """Whether it is meant as one: it has sources or sinks. A file that is not YAML is judged by its lines."""
    try:
        return bool({"sources", "sinks"} & set(loading.read(file).entries))
    except PipelineInvalid:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return any(line.startswith(("sources:", "sinks:")) for line in opened)


def load_checked(
    file: str, environment: str | None = None, given: Mapping[str, str] | None = None
) -> tuple[Loaded, list[Problem]]:
    """A pipeline that can run, and its warnings; PipelineInvalid if it cannot run."""
    loaded = loading.bind(loading.read(file), file, environment, given)
    problems = problems_of(loaded)
    if any(problem.severity == "error" for problem in problems):
        raise PipelineInvalid(problems)
    return loaded, problems


def check_made(pipeline: Pipeline, directory: str = ".") -> list[Problem]:
    """For a pipeline that was made in Python: problems have the path to a field instead of a position in a file."""
    return in_order(
        Problem(finding.message, finding.path, None, "", finding.severity) for finding in check(pipeline, directory)
    )
