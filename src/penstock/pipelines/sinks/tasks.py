"""Writes rows in executors, as the tasks of one Spark job.

A task gets the rows of one partition as Arrow and returns a receipt. Spark may run a task twice (a lost executor, a
speculative copy). So what a task writes must either be the same twice, or be marked with the task's attempt and count
only if its receipt arrived: the driver gets one receipt for each partition that has rows.

The receipt also reports a server that cannot be reached. This is not a failure of the task: Spark would retry it at
once, several times, in vain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.destination import REFUSED_MAX, Refused, SinkUnavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Task:
    """The partition of the batch, and the attempt at it."""

    partition: int
    attempt: int


@dataclass(slots=True)
class Receipt:
    """The result of a partition."""

    partition: int = 0
    attempt: int = 0
    rows: int = 0
    refused: list[Refused] = field(default_factory=list)
    unavailable: str = ""
    made: list[str] = field(default_factory=list)
    """What the driver needs to know of what it wrote."""

    def refuse(self, reason: str, origin: str | None) -> None:
        if len(self.refused) <= REFUSED_MAX:  # one more than the limit shows that there are too many
            self.refused.append(Refused(reason, origin or ""))


Write = Callable[[Task, "Iterator[pa.RecordBatch]"], Receipt]
"""Runs in an executor, so it is pickled: it holds only plain values. SinkUnavailable has a meaning, see above."""


def run_tasks(frame: DataFrame, write: Write) -> list[Receipt]:
    """In the order of partitions. SinkUnavailable if a task reports it."""
    rows = frame.mapInArrow(lambda batches: _answer(write, batches), "receipt string").collect()
    receipts = sorted((_receipt(row.receipt) for row in rows), key=lambda receipt: receipt.partition)
    for receipt in receipts:
        if receipt.unavailable:
            raise SinkUnavailable(receipt.unavailable)
    return receipts


def _answer(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    task = Task(context.partitionId(), context.taskAttemptId())
    try:
        receipt = write(task, batches)
    except SinkUnavailable as error:
        receipt = Receipt(unavailable=str(error))
    receipt.partition, receipt.attempt = task.partition, task.attempt
    yield pa.RecordBatch.from_pydict({"receipt": [json.dumps(asdict(receipt))]})


def _receipt(text: str) -> Receipt:
    given = json.loads(text)
    return Receipt(**{**given, "refused": [Refused(**each) for each in given["refused"]]})
