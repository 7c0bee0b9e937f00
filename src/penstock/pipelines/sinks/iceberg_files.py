"""Writes and reads the data files of an Iceberg table in executors, with `pyiceberg`.

A task writes the rows of its partition in files of a limited size, and reports them to the driver, which commits them.
To read, the driver plans which files are needed, and each task reads some of them, one after the other. So a task holds
the rows of one file at a time; how much memory that takes with its columns decoded has not been measured.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.tasks import Receipt, Task, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FILE = "__file"
"""A column of rows that were read: the file that has the row."""
_FILE_BYTES = 64 * 1024 * 1024
_READERS_MAX = 64


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table as tasks need it. It is pickled into each of them, so it has no snapshots."""

    metadata: Any
    io: Any

    @classmethod
    def of(cls, table: Any) -> TableFiles:
        nothing: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
        return cls(table.metadata.model_copy(update={**nothing, "current_snapshot_id": None}), table.io)

    @property
    def schema(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.metadata.schema(), include_field_ids=False)

    def write(self, rows: DataFrame) -> list[Any]:
        """The data files, to be committed."""
        receipts = run_tasks(rows, partial(_write, self))
        return [_unpacked(each) for receipt in receipts for each in receipt.made]

    def read(self, session: SparkSession, scans: Sequence[Any], columns: Sequence[str]) -> DataFrame:
        """These columns of the rows in files, which are given as `plan_files` returns them, and the file of each."""
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StringType, StructField, StructType

        packed = session.createDataFrame([(_packed(each),) for each in scans], "scan string")
        known = from_arrow_schema(self.schema)
        fields = [StructField(name, known[name].dataType) for name in columns]
        result = StructType([*fields, StructField(FILE, StringType())])
        tasks = packed.repartition(min(len(scans), _READERS_MAX))
        return tasks.mapInArrow(partial(_read, self, tuple(columns), result), result)


def _write(files: TableFiles, task: Task, batches: Iterator[pa.RecordBatch]) -> Receipt:
    """Runs in an executor."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files  # the public `write_file` makes no partitions

    receipt = Receipt()
    for rows in _gathered(batches):
        receipt.rows += rows.num_rows
        made = _dataframe_to_data_files(files.metadata, _fitted(rows, files.schema), files.io)
        receipt.made.extend(map(_packed, made))
    return receipt


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about the size of a file."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= _FILE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _read(
    files: TableFiles, columns: tuple[str, ...], result: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in an executor."""
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(result, timezone="UTC")
    scan = ArrowScan(files.metadata, files.io, files.metadata.schema().select(*columns), AlwaysTrue())
    for batch in batches:
        for packed in batch.column(0).to_pylist():
            one = _unpacked(packed)
            for found in scan.to_record_batches([one]):
                rows = pa.Table.from_batches([found])
                rows = rows.append_column(FILE, pa.repeat(pa.scalar(one.file.file_path), found.num_rows))
                yield from _fitted(rows, schema).to_batches()


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """In the columns of the schema; those that the rows lack are NULL."""
    import pyarrow as pa

    there = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _packed(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpacked(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
