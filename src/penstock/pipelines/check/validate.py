"""Finds all errors of a pipeline file, in all of its environments."""

from __future__ import annotations

from collections.abc import Mapping

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
    told = {problem.path[:2] for problem in loaded.problems}
    broken = {str(key[1]) for key in loaded.places.keys if len(key) == 2 and key[0] in _NAMED and key in told}
    problems = list(loaded.problems)
    for finding in check(loaded.pipeline, loaded.directory, broken):
        if finding.path[:2] not in told:
            location = loaded.places.find(finding.path, finding.index)
            problems.append(Problem(finding.message, finding.path, location, loaded.file, finding.severity))
    return in_order(problems)


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
