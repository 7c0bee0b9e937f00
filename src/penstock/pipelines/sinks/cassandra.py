"""The sink for tables of Cassandra and compatible servers.

Every row is an upsert by the table's primary key, so a repeated batch writes the same rows. A batch does not appear at
once: readers see rows as they are written. Executors write, many statements at a time.

Rows are sent as JSON, which the server converts to the types of the table. Each row has a write time: that of the
batch, and within it the order of the rows. So of rows with the same key the last one wins, in whatever order they
arrive, and a late write by a task of a killed driver is older than what came after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable, judged
from penstock.pipelines.sinks.merging import quoted_path
from penstock.pipelines.sinks.shaping import as_json, in_order_by
from penstock.pipelines.sinks.tasks import Receipt, Task, run_tasks
from penstock.pipelines.spec.problems import PipelineFailed, nearest
from penstock.pipelines.spec.sink_formats import option_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OPTIONS = option_names("cassandra")
_TIMES = "yyyy-MM-dd HH:mm:ss.SSSXX"
_CONCURRENCY = 100
_CONNECT_S = 10.0


class CassandraSink(Sink):
    wants_origin = True

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        for name in destination.options:
            if name not in OPTIONS:
                raise PipelineFailed(f'sink "{destination.sink}": no option "{name}"; {nearest(name, OPTIONS)}')
        if destination.table.count(".") != 1:
            raise PipelineFailed(f'sink "{destination.sink}": "table" is keyspace.table, not {destination.table}')
        self._key: tuple[str, ...] = ()

    def write(self, frame: DataFrame, batch: int) -> Sequence[Refused]:
        from pyspark.sql import functions as f

        to = self.destination
        if not self._key:
            self._key = self._primary_key(frame)
        origin = f.col(ORIGIN) if ORIGIN in frame.columns else f.lit(None).cast("string")
        rows = in_order_by(frame, self._key).select(_document(frame).alias("document"), origin.alias(ORIGIN))
        began_us = time.time_ns() // 1000
        receipts = run_tasks(rows, partial(upsert, to.options, to.sink, to.table, began_us))
        return judged([each for receipt in receipts for each in receipt.refused], to)

    def _primary_key(self, frame: DataFrame) -> tuple[str, ...]:
        to = self.destination
        keyspace, _, name = to.table.partition(".")
        with reached(to.sink), connected(to.options, schema=True) as session:
            space = session.cluster.metadata.keyspaces.get(keyspace)
            table = space.tables.get(name) if space is not None else None
        if table is None:
            raise PipelineFailed(f'sink "{to.sink}": there is no table {to.table}; create it first')
        for column in frame.columns:
            if column != ORIGIN and column not in table.columns:
                hint = f'{nearest(column, table.columns)}; add it to the table, or choose "columns"'
                raise PipelineFailed(f'sink "{to.sink}": table {to.table} has no column "{column}"; {hint}')
        key = tuple(column.name for column in table.primary_key)
        for column in key:
            if column not in frame.columns:
                raise PipelineFailed(f'sink "{to.sink}": column "{column}" of the primary key is missing')
        return key


def upsert(
    options: Mapping[str, str], sink: str, table: str, began_us: int, task: Task, batches: Iterator[pa.RecordBatch]
) -> Receipt:
    """Runs in an executor."""
    driver: Any = import_module("cassandra")
    concurrent: Any = import_module("cassandra.concurrent")
    receipt = Receipt()
    with reached(sink), connected(options) as session:
        # Columns that the rows lack stay as they are; columns that are NULL in a row become NULL.
        statement = session.prepare(f"INSERT INTO {quoted_path(table)} JSON ? DEFAULT UNSET USING TIMESTAMP ?")
        for batch in batches:
            documents, origins = (column.to_pylist() for column in batch.columns)
            arguments = [(text, began_us + receipt.rows + number) for number, text in enumerate(documents)]
            outcomes = concurrent.execute_concurrent_with_args(
                session, statement, arguments, concurrency=_CONCURRENCY, raise_on_first_error=False
            )
            for (written, error), origin in zip(outcomes, origins, strict=True):
                if isinstance(error, driver.InvalidRequest):
                    receipt.refuse(_said(error), origin)
                elif not written:
                    raise error
            receipt.rows += batch.num_rows
    return receipt


@contextmanager
def connected(options: Mapping[str, str], *, schema: bool = False) -> Iterator[Any]:
    """`schema`: load the tables' metadata; a connection that only writes does not wait for it."""
    driver, auth, clusters, policies = (
        import_module(name) for name in ("cassandra", "cassandra.auth", "cassandra.cluster", "cassandra.policies")
    )
    near = options.get("datacenter")
    profile = clusters.ExecutionProfile(
        load_balancing_policy=policies.DCAwareRoundRobinPolicy(near) if near else policies.RoundRobinPolicy(),
        consistency_level=driver.ConsistencyLevel.name_to_value[options.get("consistency", "LOCAL_QUORUM").upper()],
        request_timeout=60.0,
    )
    user = options.get("username")
    cluster = clusters.Cluster(
        [each.strip() for each in options.get("hosts", "127.0.0.1").split(",")],
        port=int(options.get("port", "9042")),
        auth_provider=auth.PlainTextAuthProvider(user, options.get("password", "")) if user else None,
        execution_profiles={clusters.EXEC_PROFILE_DEFAULT: profile},
        schema_metadata_enabled=schema,
        token_metadata_enabled=schema,
        connect_timeout=_CONNECT_S,
        control_connection_timeout=_CONNECT_S,
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


@contextmanager
def reached(sink: str) -> Iterator[None]:
    driver: Any = import_module("cassandra")
    clusters: Any = import_module("cassandra.cluster")
    try:
        yield
    except (clusters.NoHostAvailable, driver.OperationTimedOut, driver.RequestExecutionException) as error:
        said = _said(error)
        if "AuthenticationFailed" in str(error):  # the error of each host is within
            raise PipelineFailed(f'sink "{sink}": Cassandra: {said}') from error
        raise SinkUnavailable(f'sink "{sink}": Cassandra: {said}') from error
    except driver.DriverException as error:
        raise PipelineFailed(f'sink "{sink}": Cassandra: {_said(error)}') from error


def _document(frame: DataFrame) -> Any:
    """Column names as the table spells them, whatever their case."""
    from pyspark.sql import functions as f

    named = frame.select(
        *(f.col(f"`{name}`").alias(f'"{name}"' if name != name.lower() else name) for name in frame.columns)
    )
    return as_json(named, times=_TIMES, binary="0x")


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())
