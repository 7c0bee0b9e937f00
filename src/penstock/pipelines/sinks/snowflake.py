"""The sink for Snowflake tables.

Executors PUT the rows of a batch, as Parquet files, on a stage. The driver COPYs them into a staging table and merges
that into the table in one transaction, which also stores (sink, batch) in `penstock_batches`. So a batch is in the
table once, completely or not at all, and a killed process leaves at most files on the stage and a staging table, which
the next start removes. A row that Snowflake refuses fails the batch.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.destination import Destination, Sink, SinkUnavailable, has_batch
from penstock.pipelines.sinks.merging import ATTEMPT, PARTITION, ROW, quoted
from penstock.pipelines.sinks.shaping import as_text
from penstock.pipelines.sinks.tasks import Receipt, Task, run_tasks
from penstock.pipelines.spec.problems import PipelineFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

BATCHES = "PENSTOCK_BATCHES"
STAGE = "PENSTOCK_STAGE"
_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "BIGINT",
    "short": "BIGINT",
    "integer": "BIGINT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "FLOAT",
    "date": "DATE",
    "timestamp": "TIMESTAMP_TZ",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "binary": "BINARY",
    "array": "VARIANT",
    "map": "VARIANT",
    "struct": "VARIANT",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SnowflakeSink(Sink):
    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        space = destination.table.rpartition(".")[0]
        self._target = path_of(destination.table)
        beside = f"{space}." if space else ""
        self._batches = path_of(f"{beside}{BATCHES}")
        self._stage = path_of(f"{beside}{STAGE}")
        self._staged = path_of(f"{beside}{STAGE}_{destination.short_identity}")
        self._files = f"@{self._stage}/{destination.short_identity}/"
        self._prepared = False

    def write(self, frame: DataFrame, batch: int) -> None:
        to = self.destination
        with reached(to.sink), connected(to.options) as server:
            if not self._prepared:
                self._prepare(server, frame)
            if has_batch(self._last(server), batch, to):
                return
            place = f"{self._files}{batch}-{uuid.uuid4().hex[:8]}/"
            columns = [f"C{number}" for number in range(len(frame.columns))]
            receipts = run_tasks(as_text(frame).toDF(*columns), partial(put, to.options, to.sink, place))
            self._merge(server, frame, place, [(each.partition, each.attempt) for each in receipts if each.rows], batch)
            server.execute(f"REMOVE {place}")

    def _prepare(self, server: Any, frame: DataFrame) -> None:
        columns = [f"{name_of(field.name)} {_type(field.dataType)}" for field in frame.schema.fields]
        server.execute(f"CREATE STAGE IF NOT EXISTS {self._stage}")
        server.execute(f"CREATE TABLE IF NOT EXISTS {self._batches} (SINK VARCHAR, BATCH BIGINT)")
        server.execute(f"CREATE TABLE IF NOT EXISTS {self._target} ({', '.join(columns)})")
        server.execute(f"REMOVE {self._files}")
        self._prepared = True

    def _last(self, server: Any) -> int:
        found = server.execute(
            f"SELECT MAX(BATCH) FROM {self._batches} WHERE SINK = %s", [self.destination.identity]
        ).fetchone()
        return -1 if found is None or found[0] is None else int(found[0])

    def _merge(self, server: Any, frame: DataFrame, place: str, tasks: list[tuple[int, int]], batch: int) -> None:
        staged = self._staged
        names = [f"C{number}" for number in range(len(frame.columns))]
        columns = ", ".join(f"{name} VARCHAR" for name in names)
        marks = f"{PARTITION} BIGINT, {ATTEMPT} BIGINT, {ROW} BIGINT"
        server.execute(f"CREATE OR REPLACE TRANSIENT TABLE {staged} ({marks}, {columns})")
        if tasks:
            parquet = "FILE_FORMAT = (TYPE = PARQUET) MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE"
            server.execute(f"COPY INTO {staged} FROM {place} {parquet}")
        server.execute("BEGIN")
        try:
            server.execute(f"DELETE FROM {self._batches} WHERE SINK = %s", [self.destination.identity])
            server.execute(
                f"INSERT INTO {self._batches} (SINK, BATCH) VALUES (%s, %s)", [self.destination.identity, batch]
            )
            if tasks:
                server.execute(merge_statement(self._target, staged, frame.schema.fields, self.destination.key, tasks))
            server.execute("COMMIT")
        except BaseException:
            server.execute("ROLLBACK")
            raise
        server.execute(f"DROP TABLE {staged}")


def merge_statement(
    target: str, staged: str, fields: list[StructField], key: tuple[str, ...], tasks: list[tuple[int, int]]
) -> str:
    """Of the attempts at a partition the one with a receipt counts; of rows with the same key the last one wins."""
    values = {name_of(field.name): _value(f"C{number}", field.dataType) for number, field in enumerate(fields)}
    selected = ", ".join(f"{value} AS {name}" for name, value in values.items())
    names = ", ".join(values)
    answered = " OR ".join(f"({PARTITION} = {partition} AND {ATTEMPT} = {attempt})" for partition, attempt in tasks)
    if not key:
        return f"INSERT INTO {target} ({names}) SELECT {selected} FROM {staged} WHERE {answered}"
    keys = [name_of(each) for each in key]
    places = [f"C{[field.name for field in fields].index(each)}" for each in key]
    last = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(places)} ORDER BY {PARTITION} DESC, {ROW} DESC) = 1"
    rows = f"SELECT {selected} FROM {staged} WHERE {answered} QUALIFY {last}"
    same = " AND ".join(f"t.{name} = s.{name}" for name in keys)
    changes = ", ".join(f"{name} = s.{name}" for name in values if name not in keys)
    update = f"WHEN MATCHED THEN UPDATE SET {changes} " if changes else ""
    added = ", ".join(f"s.{name}" for name in values)
    return (
        f"MERGE INTO {target} t USING ({rows}) s ON {same} {update}"
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({added})"
    )


def put(options: Mapping[str, str], sink: str, place: str, task: Task, batches: Iterator[pa.RecordBatch]) -> Receipt:
    """Runs in an executor: writes the rows of a partition as one file that no other attempt writes."""
    import pyarrow as pa
    from pyarrow import parquet

    receipt = Receipt()
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        file = f"{directory}/{task.partition}-{task.attempt}.parquet"
        writer: Any = None
        for batch in batches:
            marks = [
                pa.repeat(pa.scalar(task.partition), batch.num_rows),
                pa.repeat(pa.scalar(task.attempt), batch.num_rows),
                pa.array(range(receipt.rows, receipt.rows + batch.num_rows)),
            ]
            rows = pa.table([*marks, *batch.columns], names=[PARTITION, ATTEMPT, ROW, *batch.schema.names])
            writer = writer or parquet.ParquetWriter(file, rows.schema)
            writer.write_table(rows)
            receipt.rows += batch.num_rows
        if writer is not None:
            writer.close()
            with reached(sink), connected(options) as server:
                server.execute(f"PUT 'file://{file}' {place} AUTO_COMPRESS = FALSE")
    return receipt


@contextmanager
def connected(options: Mapping[str, str]) -> Iterator[Any]:
    """A cursor."""
    connector: Any = import_module("snowflake.connector")
    with connector.connect(**options) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def reached(sink: str) -> Iterator[None]:
    errors: Any = import_module("snowflake.connector.errors")
    try:
        yield
    except (errors.OperationalError, errors.InterfaceError, errors.ServiceUnavailableError) as error:
        raise SinkUnavailable(f'sink "{sink}": Snowflake: {" ".join(str(error).split())}') from error
    except errors.Error as error:
        raise PipelineFailed(f'sink "{sink}": Snowflake: {" ".join(str(error).split())}') from error


def name_of(name: str) -> str:
    """The name under which an unquoted identifier, the usual form, finds it."""
    return quoted(name.upper() if _PLAIN_NAME.fullmatch(name) else name)


def path_of(path: str) -> str:
    return ".".join(map(name_of, path.split(".")))


def _type(kind: DataType) -> str:
    name = kind.typeName()
    return kind.simpleString().replace("decimal", "NUMBER") if name == "decimal" else _TYPES.get(name, "VARCHAR")


def _value(column: str, kind: DataType) -> str:
    """The expression for the staged text; Snowflake itself converts numbers, dates and the like."""
    made = _TYPES.get(kind.typeName())
    if made == "VARIANT":
        return f"PARSE_JSON({column})"
    if made == "BINARY":
        return f"TO_BINARY(SUBSTR({column}, 3), 'HEX')"
    return f"CAST({column} AS {_type(kind)})"
