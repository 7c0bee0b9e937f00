"""Problems of a pipeline: what is wrong, where, and what to do.

    orders.yaml:12:3: error: unknown field "topc" of a source; did you mean "topic"?

Every check collects problems and continues, so that one run shows all of them, in the order of the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.client.errors import ClientError

Path = tuple[str | int, ...]
"""From the top of the file: ("steps", "valid", "expect", 0, "that")."""


class Location(NamedTuple):
    """Both count from 1, as in editors."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    message: str
    path: Path = ()
    location: Location | None = None
    """None for pipelines that were made in Python."""
    file: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        if self.location is None:
            where = ".".join(map(str, self.path)) or "pipeline"
            return f"{self.file + ': ' if self.file else ''}{where}: {self.severity}: {self.message}"
        return f"{self.file}:{self.location.line}:{self.location.column}: {self.severity}: {self.message}"


class PipelineInvalid(ClientError):
    """A pipeline that cannot run; `problems` has the reasons, sorted by their positions in the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))


class PipelineFailed(ClientError):
    """A valid pipeline that could not run to its end."""


class StepFailed(PipelineFailed):
    """A step could not be planned: Spark refuses its SQL, or its function has raised an exception."""


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sorted and without duplicates: an error in the base of a file is an error in each of its environments."""
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (problem.file, problem.location or Location(0, 0), tuple(map(str, problem.path))),
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the likely name, or else all that exist."""
    names = sorted(set(known))
    lowered = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{lowered[close[0]]}"?'
    if not names:
        return "there are none"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"there {'is' if len(names) == 1 else 'are'} {shown}"
