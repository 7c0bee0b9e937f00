"""The sink for Delta tables, without Delta's jars.

Executors write Parquet, the driver commits with the `deltalake` package. The commit contains (sink, batch) as an
application transaction, and a batch that the table already has is skipped: so a batch is in the table once, however
often it is written. Files of attempts that were never committed belong to no version of the table; `vacuum` removes
them. With a `key`, rows are not appended but merged (`delta_merge`); with `history`, as versions (`delta_history`).

Many batches make many small files. After every hundredth batch (option `optimizeEvery`) they are combined, in a
separate commit that changes no rows. The replaced files stay for readers of older versions until the table is vacuumed.
The option `vacuumHours` vacuums after each such commit: it removes files that have been out of use for that long.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.pipelines.sinks import delta_history, delta_merge
from penstock.pipelines.sinks.columns import arrow_schema, check_columns
from penstock.pipelines.sinks.destination import Destination, Sink, has_batch
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.sinks.histories import beginning, shaped
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.sink_formats import VALID_FROM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


OPTIMIZE_EVERY = "optimizeEvery"
"""Option: combine small files after this many batches; 0: never."""
VACUUM_HOURS = "vacuumHours"
"""Option: after combining, remove files that no version of the last so many hours needs. Default: remove none."""
MERGE_SCHEMA = "mergeSchema"
"""Option: "true" adds columns to the table that rows have and it lacks. On for rows of sources with `add-columns`."""
_OPTIMIZE_EVERY = 100
_CHECK = "delta.constraints."
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
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction

        to = self.destination
        shape = shaped(frame) if to.history else frame
        table = self._table(shape)
        written = table.transaction_version(self.destination.identity)
        if written is not None and has_batch(written, batch, to):
            return
        if self._adds_columns:
            _add_columns(shape, table)
        check_columns(arrow_schema(shape), pa.schema(table.schema().to_arrow()), self.destination.sink)
        commit = CommitProperties(app_transactions=[Transaction(self.destination.identity, batch)])
        self._prepare(frame)
        if to.key:
            self._merge(table, frame, commit)
        else:
            partition_by = list(table.metadata().partition_columns)  # also if the file names others
            actions = list(self._files(frame, partition_by, _rules(table, frame.columns, to.sink)))
            table.create_write_transaction(actions, "append", table.schema(), partition_by, commit_properties=commit)
        if self._optimize_every and (batch + 1) % self._optimize_every == 0:
            table.update_incremental()
            table.optimize.compact()
            if self._vacuum_hours >= 0:
                table.vacuum(self._vacuum_hours, dry_run=False, enforce_retention_duration=False)

    def _merge(self, table: Any, frame: DataFrame, commit: Any) -> None:
        to = self.destination
        delta_merge.check_key(frame.columns, to.key, to.sink)
        if to.history:
            new = beginning(frame, to.history_time, datetime.now(UTC)).persist()
            rows, key = delta_history.changed_versions(table, new, to), (*to.key, VALID_FROM)
        else:
            new = rows = delta_merge.last_of_each_key(frame, to.key)
            key = to.key
        try:
            delta_merge.merge(table, rows, key, to, self._stages, self._storage, commit)
        finally:
            new.unpersist()

    def _table(self, frame: DataFrame) -> Any:
        from deltalake import DeltaTable

        to = self.destination
        if not DeltaTable.is_deltatable(to.path, self._storage or None):
            DeltaTable.create(
                to.path,
                arrow_schema(frame),
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

    def _files(self, frame: DataFrame, partition_by: list[str], rules: Mapping[str, str]) -> Iterator[Any]:
        """Write the files, and move them into the table's directory."""
        from deltalake.transaction import AddAction
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        path = self.destination.path
        files = Files(frame.sparkSession, path)
        staged = f"{self._stages}/{uuid.uuid4().hex}"
        broken = Observation()
        if rules:
            holds = (f.coalesce(f.expr(f"({rule})"), f.lit(False)) for rule in rules.values())
            frame = frame.observe(broken, *(f.count_if(~each).alias(str(n)) for n, each in enumerate(holds)))
        writer = frame.write.mode("overwrite").option("timeZone", "UTC")  # of times in the names of partitions
        there = [name for name in partition_by if name in frame.columns]
        (writer.partitionBy(*there) if there else writer).parquet(staged)
        for number, name in enumerate(rules):
            if count := broken.get.get(str(number)):
                raise PipelineFailed(f'sink "{self.destination.sink}": {count} rows break {name} of the table')
        root = files.qualified(staged)
        for each in sorted(files.under(staged)):
            place, _, name = each.removeprefix(root + "/").rpartition("/")
            if name.startswith(("_", ".")):
                continue
            target = f"{place}/{name}" if place else name
            size = files.size(each)
            files.move(each, f"{path}/{target}")
            values = dict.fromkeys(partition_by) | dict(_partition(part) for part in place.split("/") if part)
            yield AddAction(target, size, values, time.time_ns() // 1_000_000, True, "{}")
        files.delete(staged)


def _rules(table: Any, columns: Sequence[str], sink: str) -> dict[str, str]:
    """What every row of the table must satisfy, by its name: the writer has to check it."""
    rules = {}
    for field in table.schema().fields:
        if not field.nullable:
            if field.name not in columns:
                raise PipelineFailed(f'sink "{sink}": column "{field.name}" of the table is NOT NULL, and is missing')
            rules[f"NOT NULL of {field.name}"] = f"`{field.name.replace('`', '``')}` IS NOT NULL"
    for name, text in table.metadata().configuration.items():
        if name.startswith(_CHECK):
            rules[f"the constraint {name.removeprefix(_CHECK)} ({text})"] = text
    return rules


def _partition(directory: str) -> tuple[str, str | None]:
    name, _, value = directory.partition("=")
    return unquote(name), None if value == _NO_VALUE else unquote(value)


def _add_columns(frame: DataFrame, table: Any) -> None:
    """In a separate commit, before the rows that have them."""
    from deltalake import Schema

    there = {field.name for field in table.schema().fields}
    more = [field for field in Schema.from_arrow(arrow_schema(frame)).fields if field.name not in there]
    if more:
        table.alter.add_columns(more)
        table.update_incremental()
