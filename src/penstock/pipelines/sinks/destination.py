"""The contract of a sink: its constructor argument, its methods and its errors.

A sink writes batches. A batch has a number and may be written any number of times: after a failure it is written again,
perhaps by another process and in other partitions, and the destination must look as if it had been written once. The
batches of a sink are sequential: when one is written, all before it are written.

There are four kinds of failure:

- The destination refuses a row: the batch continues, and the row is returned as `Refused`.
- The destination is unavailable: `SinkUnavailable`; the batch is retried until it is available.
- The destination cannot take the batch however often it is tried, for example without the table: `PipelineFailed`,
  which ends the run.
- Anything else: any other exception; the pipeline's `restart` limits the retries.
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
"""An additional column, which is not written: the position of the row's record, as `topic-partition-offset`. Only sinks
that want it get it, and only if each row comes from one record."""

REFUSED_MAX = 10_000
"""Per batch. If more are refused, the rows are not the cause."""


@dataclass(frozen=True, slots=True)
class Destination:
    """What a sink gets once, when its query starts."""

    pipeline: str
    query: str
    sink: str
    path: str = ""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """With revealed secrets: never show them."""
    format: str = ""
    table: str = ""
    key: tuple[str, ...] = ()
    """Columns by which a row replaces an earlier one."""
    history: bool = False
    """Keep the earlier versions of a row."""
    history_time: str = ""
    """The column with the time of a version; empty: when it is written."""
    refusals: bool = False
    """Whether single rows may be refused; otherwise the first refused row fails the batch."""
    roll_bytes: int | None = None
    roll_seconds: float | None = None
    checkpoint: str = ""
    """The identity of the checkpoint that numbers the batches: a new one counts from 0 again."""

    @property
    def identity(self) -> str:
        """The same for the same sink of the same pipeline in every run, as long as the checkpoint exists."""
        return ".".join(filter(None, (self.pipeline, self.query, self.sink, self.checkpoint)))

    @property
    def short_identity(self) -> str:
        """The same in twelve characters, for names with a length limit."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the destination refused."""

    reason: str
    origin: str = ""


class SinkUnavailable(PipelineFailed):
    """The destination is unavailable. The batch is written when it is back."""


class Sink(ABC):
    """One sink of one query. It is created on the driver, and lives as long as the query runs."""

    wants_origin: ClassVar[bool] = False
    """Whether rows should have the column `__origin`."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination

    @abstractmethod
    def write(self, frame: DataFrame, batch: int) -> Sequence[Refused] | None:
        """Write the whole batch, or raise an exception; may be called for the same batch any number of times. Returns
        the refused rows each time."""

    def idle(self) -> None:  # noqa: B027  # most have nothing to do
        """Called about once a second, from another thread than `write`; it may do work that is due."""

    def close(self) -> None:  # noqa: B027  # the same
        """The query ends without a failure. It is not called after a failure."""


def has_batch(last: int, batch: int, destination: Destination) -> bool:
    """Whether a batch is written, where `last` is the last one that is. The batches before the last one were finished,
    so only an older checkpoint has them again, perhaps with other rows: an exception."""
    if batch < last:
        raise PipelineFailed(
            f'sink "{destination.sink}": the checkpoint is older than what is written: batch {batch} comes after '
            f"{last} was written; restore the checkpoint, or give the source or step another name to write it again"
        )
    return batch == last


def judged(refused: Sequence[Refused], destination: Destination) -> Sequence[Refused]:
    """Returns them, if rows may be refused; otherwise, or if there are too many, raises an exception."""
    if refused and (not destination.refusals or len(refused) > REFUSED_MAX):
        rows = "a row is" if len(refused) == 1 else f"{len(refused)} rows are"
        raise PipelineFailed(f'sink "{destination.sink}": {rows} refused: {refused[0].reason}')
    return refused
