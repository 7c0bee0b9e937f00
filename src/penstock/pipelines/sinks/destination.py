"""What a sink is told, and what it answers.

A sink writes batches. A batch has a number and may come any number of times: after a failure it is written again, by
another process perhaps and in other partitions, and the destination must look as if it had been written once. Batches
of a sink come one after the other: when one comes, those before it are written.

Three things can go wrong, and they are told apart:

- a row that the destination does not take: the batch goes on, and the row is returned as `Refused`;
- a destination that is not there: `SinkUnavailable`, and the batch is tried again until it is;
- anything else, such as a table that does not exist: any other exception, and the pipeline's `restart` says how often.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.pipelines.spec.problems import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = "__origin"
"""A column beside those that are written: where the row's record is, as `topic-partition-offset`. Only sinks that want
it get it, and only where rows have one record each."""

REFUSED_MAX = 10_000
"""In a batch. Beyond this it is not the rows that are wrong."""


@dataclass(frozen=True, slots=True)
class Destination:
    """What a sink is told once, when its query starts."""

    pipeline: str
    query: str
    sink: str
    path: str = ""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Secrets revealed: not to be shown."""
    format: str = ""
    table: str = ""
    key: tuple[str, ...] = ()
    """Columns by which a row takes the place of an earlier one."""
    refusals: bool = False
    """Whether rows may be refused one by one; if not, the first that is fails the batch."""
    roll_bytes: int | None = None
    roll_seconds: float | None = None
    checkpoint: str = ""
    """The identity of the checkpoint that numbers the batches: a new one counts from 0 again."""

    @property
    def identity(self) -> str:
        """The same for the same sink of the same pipeline, run after run, as long as the checkpoint lives."""
        return ".".join(filter(None, (self.pipeline, self.query, self.sink, self.checkpoint)))

    @property
    def short_identity(self) -> str:
        """The same in twelve letters, for names that have limits."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the destination did not take."""

    reason: str
    origin: str = ""


class SinkUnavailable(PipelineFailed):
    """The destination is not there now. The batch is written when it is back."""


class Sink(ABC):
    """One sink of one query. It is made on the driver, and lives as long as the query runs."""

    wants_origin: ClassVar[bool] = False
    """Whether rows are to have the column `__origin`."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination

    @abstractmethod
    def write(self, frame: DataFrame, batch: int) -> Sequence[Refused] | None:
        """All of it, or an exception; of the same batch any number of times. Rows that were refused are told each
        time."""

    def idle(self) -> None:  # noqa: B027  # most have nothing to do
        """Called about once a second, from another thread than `write`; it may do what is due."""

    def close(self) -> None:  # noqa: B027  # the same
        """The query ends in good order. After a failure nobody calls this."""


def judged(refused: Sequence[Refused], destination: Destination) -> Sequence[Refused]:
    """As they are, if rows may be refused; if not, or if there are too many, an exception."""
    if refused and (not destination.refusals or len(refused) > REFUSED_MAX):
        rows = "a row is" if len(refused) == 1 else f"{len(refused)} rows are"
        raise PipelineFailed(f'sink "{destination.sink}": {rows} refused: {refused[0].reason}')
    return refused
