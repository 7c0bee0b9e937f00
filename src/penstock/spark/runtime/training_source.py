"""A Python source and sink of a few rows, which make Java load what those of topics make it load (`class_training`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

_ROWS = 10


class TrainingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock-class-training"

    def schema(self) -> str:
        return "key BINARY, value BINARY, topic STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Reader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _Writer()


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"offset": _ROWS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        values = [
            b'{"id": %d, "at": "2026-01-01T00:0%d:00Z", "tags": ["a", "b"]}' % (number, number)
            for number in range(_ROWS)
        ]
        keys = pa.array([b"k"] * _ROWS, pa.binary())
        yield pa.RecordBatch.from_arrays(
            [keys, pa.array(values, pa.binary()), pa.array(["t"] * _ROWS)], names=["key", "value", "topic"]
        )


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was written."""
