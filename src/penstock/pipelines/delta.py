"""Delta tables without Delta's jars: executors write Parquet, the driver commits with the `deltalake` package.

The commit carries (sink, batch) as an application's transaction, and a batch that the table has already is passed over:
so a batch is in the table once, however often it is written. Files of attempts that never came to a commit belong to no
version of the table; `vacuum` removes them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.pipelines.files import Files
from penstock.pipelines.problems import PipelineFailed, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipelines.sinks import Destination

OPTIMIZE_EVERY = "optimizeEvery"
"""Option: after so many batches small files are put together; 0: never."""
_OPTIMIZE_EVERY = 100
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class DeltaSink:
    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._storage = {name: value for name, value in destination.options.items() if name != OPTIMIZE_EVERY}
        self._optimize_every = int(destination.options.get(OPTIMIZE_EVERY, _OPTIMIZE_EVERY))
        self._batches = 0

    def write(self, frame: DataFrame, batch: int) -> None:
        from deltalake import CommitProperties, Transaction

        table = self._table(frame)
        written = table.transaction_version(self._destination.identity)
        if written is not None and written >= batch:
            return
        _check_columns(frame, [field.name for field in table.schema().fields], self._destination.sink)
        partition_by = list(self._destination.partition_by)
        actions = list(self._files(frame, partition_by))
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by,
            commit_properties=CommitProperties(app_transactions=[Transaction(self._destination.identity, batch)]),
        )
        self._batches += 1
        if self._optimize_every and self._batches % self._optimize_every == 0:
            table.update_incremental()
            table.optimize.compact()

    def _table(self, frame: DataFrame) -> Any:
        from deltalake import DeltaTable
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType

        to = self._destination
        if not DeltaTable.is_deltatable(to.path, self._storage or None):
            nullable = StructType([StructField(field.name, field.dataType) for field in frame.schema.fields])
            schema = to_arrow_schema(nullable, timezone="UTC")
            DeltaTable.create(
                to.path,
                schema,
                mode="ignore",
                partition_by=list(to.partition_by) or None,
                storage_options=self._storage or None,
            )
        return DeltaTable(to.path, storage_options=self._storage or None)

    def _files(self, frame: DataFrame, partition_by: list[str]) -> Iterator[Any]:
        """Written, and moved to where the table has its files."""
        from deltalake.transaction import AddAction

        session, path = frame.sparkSession, self._destination.path
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        files = Files(session, path)
        staged = f"{path}/_penstock/{uuid.uuid4().hex}"
        writer = frame.write.mode("overwrite")
        (writer.partitionBy(*partition_by) if partition_by else writer).parquet(staged)
        root = files.qualified(staged)
        for each in sorted(files.under(staged)):
            place, _, name = each.removeprefix(root + "/").rpartition("/")
            if name.startswith(("_", ".")):
                continue
            target = f"{place}/{name}" if place else name
            size = files.size(each)
            files.move(each, f"{path}/{target}")
            values = dict(_partition(part) for part in place.split("/") if part)
            yield AddAction(target, size, values, time.time_ns() // 1_000_000, True, "{}")
        files.delete(staged)


def _partition(directory: str) -> tuple[str, str | None]:
    name, _, value = directory.partition("=")
    return unquote(name), None if value == _NO_VALUE else unquote(value)


def _check_columns(frame: DataFrame, there: list[str], sink: str) -> None:
    for name in frame.columns:
        if name not in there:
            hint = f'{nearest(name, there)}; add it to the table, or choose "columns"'
            raise PipelineFailed(f'sink "{sink}": the table has no column "{name}"; {hint}')
