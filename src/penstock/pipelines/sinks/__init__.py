"""Where rows go that do not go to topics.

A sink of another package is an entry point of the group `penstock.sinks`, named as its format:

    [project.entry-points."penstock.sinks"]
    mongo = "penstock_mongo:MongoSink"

It is a `Sink`, made with a `Destination`; `destination` says what it promises, and `penstock.testing.sinks` tests it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.pipelines.engine.encoding import columns_written
from penstock.pipelines.engine.tables import beside
from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable
from penstock.pipelines.spec.model import FormatSink
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.secrets import plain
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "GROUP",
    "ORIGIN",
    "SINKS",
    "Destination",
    "Kind",
    "Refused",
    "Sink",
    "SinkUnavailable",
    "open_sink",
    "selected",
]

GROUP = "penstock.sinks"


@dataclass(frozen=True, slots=True)
class Kind:
    """A format that Penstock brings a sink for, and what a file must say of it."""

    home: str
    """`module:class`, imported when it is used."""
    needs: tuple[str, ...] = ()
    """Fields of the file."""
    takes: tuple[str, ...] = ()
    """Fields that have a meaning for it, beside those that all sinks have."""
    package: str = ""
    """Of Python, that must be there."""
    extra: str = ""
    """How it is installed."""
    origin_or_key: bool = False
    """Rows without a record of their own need a key."""


_FILES = Kind("files:FileSink", needs=("path",), takes=("path", "partition_by", "roll_bytes", "roll_every"))

_ANY = Kind("spark:SparkSink", takes=("path", "partition_by"))

SINKS = {
    **dict.fromkeys(("parquet", "json", "csv", "orc", "text"), _FILES),
    "console": Kind("spark:ConsoleSink"),
    "delta": Kind("delta:DeltaSink", ("path",), ("path", "partition_by"), "deltalake", "pipelines"),
    "postgres": Kind("postgres:PostgresSink", ("table",), ("table", "key", "on_error"), "psycopg", "postgres"),
    "cassandra": Kind("cassandra:CassandraSink", ("table",), ("table", "on_error"), "cassandra", "cassandra"),
    "elasticsearch": Kind(
        "elasticsearch:ElasticsearchSink",
        ("table",),
        ("table", "key", "on_error"),
        "elasticsearch",
        "elasticsearch",
        origin_or_key=True,
    ),
    "snowflake": Kind("snowflake:SnowflakeSink", ("table",), ("table", "key"), "snowflake.connector", "snowflake"),
}


def missing_package(format: str) -> str:  # noqa: A002  # as files call it
    """What to install before a sink can be used, if anything."""
    kind = SINKS.get(format)
    if kind is None or not kind.package or _installed(kind.package):
        return ""
    return f'{format} needs the package {kind.package.partition(".")[0]}; pip install "penstock[{kind.extra}]"'


def open_sink(
    sink: FormatSink,
    name: str,
    pipeline: str,
    query: str,
    directory: str,
    *,
    checkpoint: str = "",
    refusals: bool = False,
) -> Sink:
    destination = Destination(
        pipeline,
        query,
        name,
        beside(sink.path, directory) if sink.path else "",
        sink.partition_by,
        plain(sink.options),
        format=sink.format,
        table=sink.table,
        key=sink.key,
        refusals=refusals,
        roll_bytes=sink.roll_bytes,
        roll_seconds=sink.roll_every.seconds if sink.roll_every is not None else None,
        checkpoint=checkpoint,
    )
    for found in entry_points(group=GROUP, name=sink.format):
        made: Sink = found.load()(destination)
        return made
    if missing := missing_package(sink.format):
        raise PipelineFailed(f'sink "{name}": {missing}')
    module, _, own = SINKS.get(sink.format, _ANY).home.partition(":")
    opened: Sink = getattr(import_module(f"{__name__}.{module}"), own)(destination)
    return opened


def selected(shown: DataFrame, sink: FormatSink, whole: DataFrame | None = None) -> DataFrame:
    """The columns that are written, of a table as sinks see it, and where each row's record is, if the whole knows."""
    from pyspark.sql import functions as f

    names = [f"`{name}`" for name in sink.columns or columns_written(shown)]
    if whole is None or SOURCE_ROW not in whole.columns:
        return shown.select(*names)
    return whole.select(*names, origin_of(f.col(SOURCE_ROW)).alias(ORIGIN))


def origin_of(record: Column) -> Column:
    """`topic-partition-offset`; NULL for a row that stems from no topic."""
    from pyspark.sql import functions as f

    return f.concat(record["topic"], f.lit("-"), record["partition"], f.lit("-"), record["offset"])


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of what it is a part of
        return False
