"""The sink for PostgreSQL tables.

Executors COPY the rows of a batch, as text, into a staging table for the batch. The driver merges that into the table
in one transaction, which also stores (sink, batch) in `penstock_batches`. So a batch is in the table once, completely
or not at all, and a killed process leaves at most a staging table, which the next start drops.

A merge writes all rows at once. If the server refuses one of them, the merge is repeated row by row, in the same
transaction. The refused rows are reported, and stored with the batch, so that they are reported again if the batch is
repeated.

With `history` all versions of a row stay (`HistoryMerge`); then a row that the server refuses fails the batch.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable, has_batch, judged
from penstock.pipelines.sinks.merging import (
    ATTEMPT,
    PARTITION,
    REASON,
    ROW,
    HistoryMerge,
    Merge,
    listed,
    quoted,
    quoted_path,
)
from penstock.pipelines.sinks.shaping import as_text
from penstock.pipelines.sinks.tasks import Receipt, Task, run_tasks
from penstock.pipelines.spec.problems import PipelineFailed, nearest
from penstock.pipelines.spec.sink_formats import HISTORY, IS_CURRENT, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

BATCHES = "penstock_batches"
"""The table that records the written batches, beside the sink's table."""
DSN = "dsn"
"""Option: a connection string; all others are libpq's: host, user, password, sslmode, ..."""

_STAGE = "penstock_stage"
_CONNECT_S = 10
_LOCK = 0x70656E73746F636B  # for processes that create tables: IF NOT EXISTS is not safe for two at a time
_TYPES = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "binary": "bytea",
    "array": "jsonb",
    "map": "jsonb",
    "struct": "jsonb",
}
_AWAY = ("08", "40", "53", "57")
"""Classes of temporary errors: connections, conflicts, resources, operator intervention."""
_WAYS_OUT = {
    "3F000": "; create it: CREATE SCHEMA",
    "42P10": '; create a unique index over the columns of "key"',  # ON CONFLICT without an index
}
"""What to do, by SQLSTATE."""
_FOR_A_WHILE = ("the database system is", "too many", "remaining connection slots", "terminating connection")


class PostgresSink(Sink):
    wants_origin = True

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._connection = connection_of(destination.options)
        self._schema = destination.table.rpartition(".")[0]
        self._target = quoted_path(destination.table)
        self._batches = self._named(BATCHES)
        self._stages = f"{_STAGE}_{destination.short_identity}_"
        self._prepared = False

    def write(self, frame: DataFrame, batch: int) -> Sequence[Refused]:
        import psycopg

        columns = [name for name in frame.columns if name != ORIGIN]
        with reached(self.destination.sink), connected(self._connection) as server:
            if not self._prepared:
                self._prepare(server, frame)
            written = self._written(server, batch)
            if written is not None:
                return judged(written, self.destination)
            expressions = self._expressions(server, columns)
            stage = self._named(f"{self._stages}{uuid.uuid4().hex[:8]}")
            staged = [*columns, *([ORIGIN] if ORIGIN in frame.columns else [])]
            _create_stage(server, stage, staged)
            try:
                copy = partial(_copy, self._connection, self.destination.sink, stage)
                receipts = run_tasks(as_text(frame.select(*_ticked(staged))), copy)
                return self._merge(server, stage, expressions, receipts, batch)
            finally:
                with suppress(psycopg.OperationalError):  # the server became unavailable; the next start drops it
                    server.execute(f"DROP TABLE IF EXISTS {stage}")

    # -- The tables.

    def _prepare(self, server: Any, frame: DataFrame) -> None:
        with server.transaction():
            server.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            server.execute(
                f"CREATE TABLE IF NOT EXISTS {self._batches} (sink text PRIMARY KEY, batch bigint NOT NULL, "
                "refused jsonb NOT NULL, written_at timestamptz NOT NULL DEFAULT now())"
            )
            if _oid(server, self._target) is None:
                server.execute(self._create(frame))
            stale = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
            for (name,) in server.execute(stale, [self._stages.replace("_", r"\_") + "%"]).fetchall():
                server.execute(f"DROP TABLE IF EXISTS {self._named(name)}")
        self._prepared = True

    def _create(self, frame: DataFrame) -> str:
        fields = [field for field in frame.schema.fields if field.name != ORIGIN]
        columns = [f"{quoted(field.name)} {_type(field.dataType)}" for field in fields]
        names = self.destination.key
        if self.destination.history:
            columns += [
                f"{VALID_FROM} timestamptz NOT NULL",
                f"{VALID_TO} timestamptz",
                f"{IS_CURRENT} boolean NOT NULL",
            ]
            names = (*names, VALID_FROM)
        key = [f"PRIMARY KEY ({listed(names)})"] if names else []
        return f"CREATE TABLE {self._target} ({', '.join([*columns, *key])})"

    def _expressions(self, server: Any, columns: list[str]) -> dict[str, str]:
        """The expressions that convert the staged text of each column to a value of the table."""
        found = server.execute(
            "SELECT a.attname, format_type(a.atttypid, -1), t.typcategory = 'A' FROM pg_attribute a "
            "JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped",
            [_oid(server, self._target)],
        ).fetchall()
        kinds = {name: (kind, array) for name, kind, array in found}
        for name in [*columns, *(HISTORY if self.destination.history else ())]:
            if name not in kinds:
                raise PipelineFailed(
                    f'sink "{self.destination.sink}": table {self.destination.table} has no column "{name}"; '
                    f'{nearest(name, kinds)}; add it to the table, or choose "columns"'
                )
        return {name: _expression(name, *kinds[name]) for name in columns}

    def _named(self, name: str) -> str:
        return quoted_path(f"{self._schema}.{name}") if self._schema else quoted(name)

    # -- The batch.

    def _written(self, server: Any, batch: int) -> list[Refused] | None:
        """The refused rows of the batch, if it is written; None if not."""
        found = server.execute(
            f"SELECT batch, refused FROM {self._batches} WHERE sink = %s", [self.destination.identity]
        ).fetchone()
        if found is None or not has_batch(found[0], batch, self.destination):
            return None
        return [Refused(**each) for each in found[1]]

    def _merge(
        self, server: Any, stage: str, expressions: Mapping[str, str], receipts: list[Receipt], batch: int
    ) -> Sequence[Refused]:
        refused = [each for receipt in receipts for each in receipt.refused]
        tasks = [(receipt.partition, receipt.attempt) for receipt in receipts]
        merge = Merge(self._target, stage, expressions, self.destination.key, tasks)
        with server.transaction():
            # First of all: this waits for a merge of the same batch by a process that may be dead, and then knows its
            # result.
            noted = server.execute(
                f"INSERT INTO {self._batches} AS b (sink, batch, refused) VALUES (%s, %s, '[]') ON CONFLICT (sink) DO "
                "UPDATE SET batch = EXCLUDED.batch, refused = '[]', written_at = now() WHERE b.batch < EXCLUDED.batch",
                [self.destination.identity, batch],
            )
            if noted.rowcount:
                refused += self._merge_rows(server, merge) if tasks else []
                judged(refused, self.destination)
                server.execute(
                    f"UPDATE {self._batches} SET refused = %s WHERE sink = %s",
                    [json.dumps([asdict(each) for each in refused]), self.destination.identity],
                )
        return refused

    def _merge_rows(self, server: Any, merge: Merge) -> list[Refused]:
        from psycopg import DataError, IntegrityError

        if self.destination.history:
            for statement in HistoryMerge(merge, self.destination.history_time).statements:
                server.execute(statement)
            return []
        try:
            with server.transaction():
                server.execute(merge.all_at_once)
            return []
        except (DataError, IntegrityError):
            server.execute(merge.row_by_row)
        rows = server.execute(
            f"SELECT r.{REASON}, to_jsonb(r)->>'{ORIGIN}' FROM {merge.stage} r WHERE {REASON} IS NOT NULL"
        )
        return [Refused(reason, origin or "") for reason, origin in rows.fetchall()]


def connection_of(options: Mapping[str, str]) -> dict[str, str]:
    """The options in psycopg's form."""
    given = {name: value for name, value in options.items() if name != DSN}
    return {"connect_timeout": str(_CONNECT_S), **given, "conninfo": options.get(DSN, "")}


@contextmanager
def connected(connection: Mapping[str, Any]) -> Iterator[Any]:
    """Every statement is its own transaction, unless the caller starts one."""
    import psycopg

    with psycopg.connect(**connection, autocommit=True) as server:
        yield server


@contextmanager
def reached(sink: str) -> Iterator[None]:
    """Converts errors of the server: unavailable, or refused."""
    import psycopg

    try:
        yield
    except psycopg.OperationalError as error:
        said = " ".join(str(error).split())
        if _says_no(error.sqlstate, said):
            raise PipelineFailed(f'sink "{sink}": {said}') from error
        raise SinkUnavailable(f'sink "{sink}": PostgreSQL: {said}') from error
    except psycopg.Error as error:
        way_out = _WAYS_OUT.get(error.sqlstate or "", "")
        raise PipelineFailed(f'sink "{sink}": {_said(error)}{way_out}') from error


def _said(error: psycopg.Error) -> str:
    """In one line, without the statement, which is ours and not the user's."""
    parts = (error.diag.message_primary, error.diag.message_detail, error.diag.message_hint)
    return " ".join("; ".join(part for part in parts if part).split()) or " ".join(str(error).split())


def _says_no(state: str | None, said: str) -> bool:
    """Whether a reachable server refuses permanently. A failed login has no SQLSTATE; only its text tells."""
    if state is not None:
        return state[:2] not in _AWAY
    return "FATAL" in said and not any(each in said for each in _FOR_A_WHILE)


def _copy(
    connection: Mapping[str, Any], sink: str, stage: str, task: Task, batches: Iterator[pa.RecordBatch]
) -> Receipt:
    """Runs in an executor: the rows of a partition, in one transaction."""
    receipt = Receipt()
    first = next(batches, None)
    if first is None:
        return receipt
    names = listed([PARTITION, ATTEMPT, ROW, *first.schema.names])
    copying = f"COPY {stage} ({names}) FROM STDIN (FORMAT csv)"
    with reached(sink), connected(connection) as server, server.cursor() as cursor, cursor.copy(copying) as copy:
        for batch in chain([first], batches):
            copy.write(csv_of(batch, task, receipt))
    return receipt


def csv_of(batch: pa.RecordBatch, task: Task, receipt: Receipt) -> bytes:
    """Rows, preceded by the task's marks; NULL is empty, an empty text is "". Rows with a character that PostgreSQL
    does not support are refused here, because the server would refuse all rows."""
    import pyarrow as pa
    from pyarrow import csv

    written = pa.table(
        [
            pa.repeat(pa.scalar(task.partition), batch.num_rows),
            pa.repeat(pa.scalar(task.attempt), batch.num_rows),
            pa.array(range(receipt.rows, receipt.rows + batch.num_rows)),
            *batch.columns,
        ],
        names=[PARTITION, ATTEMPT, ROW, *batch.schema.names],
    )
    text = _csv(csv, written)
    if b"\0" in text:
        text = _csv(csv, _without_zeros(written, receipt))
    receipt.rows += batch.num_rows
    return text


def _csv(csv: Any, table: pa.Table) -> bytes:
    out = io.BytesIO()
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, quoting_style="needed"))
    return out.getvalue()


def _without_zeros(table: pa.Table, receipt: Receipt) -> pa.Table:
    import pyarrow as pa

    kept = []
    for row in table.to_pylist():
        bad = next((name for name, value in row.items() if isinstance(value, str) and "\0" in value), None)
        kept.append(bad is None)
        if bad is not None:
            receipt.refuse(f'column "{bad}" has a character of code 0, which PostgreSQL has not', row.get(ORIGIN))
    return table.filter(pa.array(kept))


def _create_stage(server: Any, stage: str, columns: list[str]) -> None:
    texts = ", ".join(f"{quoted(name)} text" for name in columns)
    marks = f"{PARTITION} bigint, {ATTEMPT} bigint, {ROW} bigint, {REASON} text"
    server.execute(f"CREATE UNLOGGED TABLE {stage} ({marks}{', ' if texts else ''}{texts})")


def _oid(server: Any, target: str) -> Any:
    return server.execute("SELECT to_regclass(%s)::oid", [target]).fetchone()[0]


def _expression(name: str, kind: str, array: bool) -> str:
    """`kind` has no length: a cast would truncate text where an assignment raises an error."""
    column = f"r.{quoted(name)}"
    if array:
        item = "decode(item, 'base64')" if kind == "bytea[]" else "item"  # JSON has bytes in base 64
        items = f"SELECT {item} FROM jsonb_array_elements_text({column}::jsonb) item"
        return f"CASE WHEN {column} IS NOT NULL THEN ARRAY({items})::{kind} END"
    return f"{column}::{kind}"


def _type(kind: DataType) -> str:
    name = kind.typeName()
    return kind.simpleString().replace("decimal", "numeric") if name == "decimal" else _TYPES.get(name, "text")


def _ticked(names: list[str]) -> list[str]:
    return [f"`{name.replace('`', '``')}`" for name in names]
