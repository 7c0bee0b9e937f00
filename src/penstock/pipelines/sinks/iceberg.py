"""The sink for Iceberg tables, without Iceberg's jars.

Executors write the data files, the driver commits them with the `pyiceberg` package. The commit also sets a property of
the table, `penstock.batch.<sink>`, to the number of the batch, and a batch that the property already has is skipped. So
a batch is in the table once, however often it is written, also after its snapshot has expired. Files of attempts that
were never committed belong to no snapshot.

The commit demands that the table is as the batch found it. If another writer was faster, nothing is committed and the
batch is repeated. (pyiceberg would repeat the commit alone. The other writer may be this very sink in a process that
was taken for dead, and the batch would be in the table twice.)

With a `key`, a row replaces the row with the same key. The files whose statistics allow one of the keys are searched
for them, and those that have one are written anew, without the replaced rows, in the same commit. Spark joins the rows,
so the size of a batch is limited by disks only. With `history` the versions of a key are replaced (`histories`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.columns import arrow_schema, check_columns
from penstock.pipelines.sinks.delta_merge import check_key, last_of_each_key
from penstock.pipelines.sinks.destination import Destination, Sink, SinkUnavailable, has_batch
from penstock.pipelines.sinks.histories import beginning, shaped, versions
from penstock.pipelines.sinks.iceberg_files import FILE, TableFiles
from penstock.pipelines.sinks.shaping import having
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.secrets import redacted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CATALOG = "catalog"
"""Option: the name of the catalog; the other options, or pyiceberg's own configuration, say where it is."""
MERGE_SCHEMA = "mergeSchema"
"""Option: "true" adds columns to the table that rows have and it lacks. On for rows of sources with `add-columns`."""
PROPERTY = "penstock.batch."
_RETRIES = "commit.retry.num-retries"
_WITH_RANGES = ("byte", "short", "integer", "long", "string", "date")
"""Types of keys whose smallest and largest values are compared with the statistics of files."""


class IcebergSink(Sink):
    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        own = (CATALOG, MERGE_SCHEMA)
        self._options = {name: value for name, value in destination.options.items() if name not in own}
        self._adds_columns = destination.options.get(MERGE_SCHEMA, "false").lower() == "true"
        self._property = PROPERTY + destination.identity
        self._catalog: Any = None

    def write(self, frame: DataFrame, batch: int) -> None:
        to = self.destination
        schema = _storable(arrow_schema(shaped(frame) if to.history else frame))
        with _reached(to.sink):
            table = self._table(schema)
            if has_batch(int(table.properties.get(self._property, -1)), batch, to):
                return
            if self._adds_columns:
                with table.update_schema() as change:
                    change.union_by_name(schema)
            files = TableFiles.of(table)
            check_columns(schema, files.schema, to.sink)
            if not to.key:
                self._commit(table, [], files.write(self._arranged(frame, table)), batch)
                return
            check_key(frame.columns, to.key, to.sink)
            new = (
                beginning(frame, to.history_time, datetime.now(UTC)) if to.history else last_of_each_key(frame, to.key)
            )
            new.persist()
            try:
                self._replace(table, files, new, batch)
            finally:
                new.unpersist()

    def _table(self, schema: pa.Schema) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError

        to = self.destination
        if self._catalog is None:
            self._catalog = load_catalog(to.options.get(CATALOG), **self._options)
        try:
            return self._catalog.load_table(to.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            namespace = to.table.rpartition(".")[0]
            self._catalog.create_namespace_if_not_exists(namespace)
        try:
            creating = self._catalog.create_table_transaction(to.table, schema)
            with creating as creation, creation.update_spec() as partitions:
                for name in to.partition_by:
                    partitions.add_identity(name)
        except TableAlreadyExistsError:  # another process was faster
            pass
        return self._catalog.load_table(to.table)

    # -- The batch.

    def _replace(self, table: Any, files: TableFiles, new: DataFrame, batch: int) -> None:
        to, session = self.destination, new.sparkSession
        scans = list(table.scan(row_filter=_range(new, to.key)).plan_files())
        found: set[str] = set()
        if scans:
            with_key = having(files.read(session, scans, to.key), new, to.key, "left_semi")
            found = {row[0] for row in with_key.select(FILE).distinct().collect()}
        replaced = [scan for scan in scans if scan.file.file_path in found]
        there: DataFrame | None = None
        if replaced:
            there = files.read(session, replaced, [field.name for field in files.schema]).drop(FILE)
        rows = new
        if to.history:
            known = having(there, new, to.key, "left_semi") if there is not None else None
            rows = versions(known, new, to.key, to.history_time)
        if there is not None:
            kept = having(there, new, to.key, "left_anti")
            rows = kept.unionByName(rows, allowMissingColumns=True)
        made = files.write(self._arranged(rows, table))
        self._commit(table, [scan.file for scan in replaced], made, batch)

    def _arranged(self, frame: DataFrame, table: Any) -> DataFrame:
        """Rows of a partition of the table in one task, so that they are in one file."""
        from pyiceberg.transforms import IdentityTransform

        names = [
            table.schema().find_column_name(field.source_id)
            for field in table.spec().fields
            if isinstance(field.transform, IdentityTransform)
        ]
        there = [name for name in names if name in frame.columns]
        return frame.repartition(*_ticked(there)) if there else frame

    def _commit(self, table: Any, replaced: Sequence[Any], made: Sequence[Any], batch: int) -> None:
        if not made and not replaced:
            return
        table.metadata.properties[_RETRIES] = "0"  # in memory only
        with table.transaction() as transaction:
            producer = transaction.update_snapshot()
            with producer.overwrite() if replaced else producer.fast_append() as snapshot:
                for each in replaced:
                    snapshot.delete_data_file(each)
                for each in made:
                    snapshot.append_data_file(each)
            transaction.set_properties({self._property: str(batch)})


@contextmanager
def _reached(sink: str) -> Iterator[None]:
    """Converts errors of the catalog: unavailable, or refused."""
    import requests
    from pyiceberg import exceptions

    away = (
        requests.ConnectionError,
        requests.Timeout,
        exceptions.ServiceUnavailableError,
        exceptions.TooManyRequestsError,
        *_database_errors(),
    )
    refused = (
        exceptions.UnauthorizedError,
        exceptions.ForbiddenError,
        exceptions.BadRequestError,
        exceptions.OAuthError,
    )
    try:
        yield
    except exceptions.CommitFailedException as error:
        raise SinkUnavailable(f'sink "{sink}": another writer changed the table: {_line(error)}') from error
    except away as error:
        raise SinkUnavailable(f'sink "{sink}": Iceberg: {_line(error)}') from error
    except refused as error:
        raise PipelineFailed(f'sink "{sink}": Iceberg: {_line(error)}') from error


def _database_errors() -> tuple[type[Exception], ...]:
    """Of SQL catalogs, if their package is installed."""
    try:
        from sqlalchemy.exc import OperationalError
    except ImportError:
        return ()
    return (OperationalError,)


def _line(error: Exception) -> str:
    return " ".join(redacted(str(error)).split())[:300]


def _range(rows: DataFrame, key: Sequence[str]) -> Any:
    """What a file must have, by its statistics, to contain one of the keys."""
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, IsNull, LessThanOrEqual, Or
    from pyspark.sql import functions as f

    names = [name for name in key if rows.schema[name].dataType.typeName() in _WITH_RANGES]
    if not names:
        return AlwaysTrue()
    ranges = [
        each
        for name, column in zip(names, _ticked(names), strict=True)
        for each in (f.min(column), f.max(column), f.count(f.when(f.isnull(column), 1)))
    ]
    found = rows.agg(*ranges).collect()[0]
    wanted: Any = AlwaysTrue()
    for index, name in enumerate(names):
        smallest, largest, nulls = found[3 * index : 3 * index + 3]
        one: Any = IsNull(name)
        if smallest is not None:
            within = And(GreaterThanOrEqual(name, smallest), LessThanOrEqual(name, largest))
            one = Or(within, IsNull(name)) if nulls else within
        wanted = And(wanted, one)
    return wanted


def _storable(schema: pa.Schema) -> pa.Schema:
    """Iceberg's smallest integer has four bytes."""
    import pyarrow as pa

    small = (pa.int8(), pa.int16())
    return pa.schema([field.with_type(pa.int32()) if field.type in small else field for field in schema])


def _ticked(names: Sequence[str]) -> list[str]:
    return [f"`{name.replace('`', '``')}`" for name in names]
