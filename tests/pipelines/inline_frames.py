"""Rows in partitions, in the place of a DataFrame: what executors do is done here, in this process. For sinks whose
work is with a server, so that it can be tested without Spark. Values are text already, as `as_text` would make them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, StructField, StructType

from penstock.pipelines.sinks import SinkUnavailable
from penstock.pipelines.sinks.tasks import Receipt, Task

_attempts = itertools.count(100)


class InlineFrame:
    def __init__(
        self, schema: Mapping[str, DataType], *partitions: list[tuple[Any, ...]], names: list[str] | None = None
    ) -> None:
        self.schema = StructType([StructField(name, kind) for name, kind in schema.items()])
        self.columns: list[str] = names or self.schema.names
        self.partitions = partitions

    def select(self, *names: str) -> InlineFrame:
        assert [name.strip("`") for name in names] == self.columns
        return self

    def toDF(self, *names: str) -> InlineFrame:  # noqa: N802  # as Spark calls it
        kinds = {field.name: field.dataType for field in self.schema.fields}
        return InlineFrame(kinds, *self.partitions, names=list(names))

    def batches(self, rows: list[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
        """Of two rows each."""
        for first in range(0, len(rows), 2):
            columns = zip(*rows[first : first + 2], strict=True)
            arrays = [pa.array(column, pa.string()) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=self.columns)


def run_inline(frame: InlineFrame, write: Callable[[Task, Iterator[pa.RecordBatch]], Receipt]) -> list[Receipt]:
    """Each partition twice, as Spark does when an executor is lost: only the second receipt counts."""
    receipts = []
    for number, rows in enumerate(frame.partitions):
        for _ in range(2):
            task = Task(number, next(_attempts))
            receipt = write(task, frame.batches(rows))
            if receipt.unavailable:
                raise SinkUnavailable(receipt.unavailable)
        receipt.partition, receipt.attempt = task.partition, task.attempt
        receipts.append(receipt)
    return receipts


def inline(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """The sinks of a module take such frames."""
    monkeypatch.setattr(f"{module}.run_tasks", run_inline)
    monkeypatch.setattr(f"{module}.as_text", lambda frame: frame, raising=False)
