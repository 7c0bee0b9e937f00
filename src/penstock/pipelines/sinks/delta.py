"""The sink for Delta tables, without Delta's jars.

Executors write Parquet, the driver commits with the `deltalake` package. The commit contains (sink, batch) as an
application transaction, and a batch that the table already has is skipped: so a batch is in the table once, however
often it is written. Files of attempts that were never committed belong to no version of the table; `vacuum` removes
them. With a `key`, rows are not appended but merged (`delta_merge`).

Many batches make many small files. After every hundredth batch (option `optimizeEvery`) they are combined, in a
separate commit that changes no rows. The replaced files stay for readers of older versions until the table is vacuumed.
The option `vacuumHours` vacuums after each such commit: it removes files that have been out of use for that long.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.pipelines.sinks import delta_merge
from penstock.pipelines.sinks.destination import Destination, Sink
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.problems import PipelineFailed, nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


OPTIMIZE_EVERY = "optimizeEvery"
"""Option: combine small files after this many batches; 0: never."""
VACUUM_HOURS = "vacuumHours"
"""Option: after combining, remove files that no version of the last so many hours needs. Default: remove none."""
MERGE_SCHEMA = "mergeSchema"
"""Option: "true" adds columns to the table that rows have and it lacks. On for rows of sources with `add-columns`."""
_OPTIMIZE_EVERY = 100
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class DeltaSink(Sink):
    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        own = (OPTIMIZE_EVERY, VACUUM_HOURS, MERGE_SCHEMA)
        self._storage = {name: value for name, value in destination.options.items() if name not in own}
        self._optimize_every = int(destination.options.get(OPTIMIZE_EVERY, _OPTIMIZE_EVERY))
        self._vacuum_hours = int(destination.options.get(VACUUM_HOURS, -1))
        self._adds_columns = destination.options.get(MERGE_SCHEMA, "false").lower() == "true"
        self._stages = f"{destination.path}/_penstock/{destination.short_identity}"
        self._cleared = False

    def write(self, frame: DataFrame, batch: int) -> None:
        from deltalake import CommitProperties, Transaction

        table = self._table(frame)
        written = table.transaction_version(self.destination.identity)
        if written is not None and written >= batch:
            return
        if self._adds_columns:
            _add_columns(frame, table)
        _check_columns(frame, table, self.destination.sink)
        commit = CommitProperties(app_transactions=[Transaction(self.destination.identity, batch)])
        self._prepare(frame)
        if self.destination.key:
            to = self.destination
            delta_merge.check_key(frame.columns, to.key, to.sink)
            delta_merge.merge(table, frame, to.key, _arrow_schema(frame), to.path, self._stages, self._storage, commit)
        else:
            partition_by = list(self.destination.partition_by)
            actions = list(self._files(frame, partition_by))
            table.create_write_transaction(actions, "append", table.schema(), partition_by, commit_properties=commit)
        if self._optimize_every and (batch + 1) % self._optimize_every == 0:
            table.update_incremental()
            table.optimize.compact()
            if self._vacuum_hours >= 0:
                table.vacuum(self._vacuum_hours, dry_run=False, enforce_retention_duration=False)

    def _table(self, frame: DataFrame) -> Any:
        from deltalake import DeltaTable

        to = self.destination
        if not DeltaTable.is_deltatable(to.path, self._storage or None):
            DeltaTable.create(
                to.path,
                _arrow_schema(frame),
                mode="ignore",
                partition_by=list(to.partition_by) or None,
                storage_options=self._storage or None,
            )
        return DeltaTable(to.path, storage_options=self._storage or None)

    def _prepare(self, frame: DataFrame) -> None:
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if not self._cleared:
            Files(frame.sparkSession, self.destination.path).delete(self._stages)  # left by attempts that were killed
            self._cleared = True

    def _files(self, frame: DataFrame, partition_by: list[str]) -> Iterator[Any]:
        """Write the files, and move them into the table's directory."""
        from deltalake.transaction import AddAction

        path = self.destination.path
        files = Files(frame.sparkSession, path)
        staged = f"{self._stages}/{uuid.uuid4().hex}"
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


def _add_columns(frame: DataFrame, table: Any) -> None:
    """In a separate commit, before the rows that have them."""
    from deltalake import Schema

    there = {field.name for field in table.schema().fields}
    more = [field for field in Schema.from_arrow(_arrow_schema(frame)).fields if field.name not in there]
    if more:
        table.alter.add_columns(more)
        table.update_incremental()


def _check_columns(frame: DataFrame, table: Any, sink: str) -> None:
    """The table's files are read with its schema, so they must be written with it."""
    import pyarrow as pa

    there = pa.schema(table.schema().to_arrow())
    for field in _arrow_schema(frame):
        if field.name not in there.names:
            way_out = 'add it to the table, choose "columns", or set the option mergeSchema'
            hint = f"{nearest(field.name, there.names)}; {way_out}"
            raise PipelineFailed(f'sink "{sink}": the table has no column "{field.name}"; {hint}')
        kind = there.field(field.name).type
        if _plain(kind) != _plain(field.type):
            hint = f'it is {field.type} here; CAST it in a step, or write to another "path"'
            raise PipelineFailed(f'sink "{sink}": column "{field.name}" of the table is {kind}, {hint}')


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    """Every column is nullable: later rows may have fewer columns."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    nullable = StructType([StructField(field.name, field.dataType) for field in frame.schema.fields])
    return to_arrow_schema(nullable, timezone="UTC")


def _plain(kind: pa.DataType) -> str:
    """Without differences in the notation of a type: names of items, nullability."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {_plain(each.type)}' for each in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")
