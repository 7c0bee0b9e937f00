"""Where rows go that do not go to topics.

A sink of another package is an entry point of the group `penstock.sinks`, named as its format:

    [project.entry-points."penstock.sinks"]
    mongo = "penstock_mongo:MongoSink"

It is called with a `Destination` and must be such that writing the same batch twice leaves what writing it once does:
after a failure a batch is written again, with the same number, and perhaps in other partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from penstock.pipelines.delta import DeltaSink
from penstock.pipelines.encoding import columns_written
from penstock.pipelines.files import write_files
from penstock.pipelines.model import FormatSink
from penstock.pipelines.secrets import plain
from penstock.pipelines.tables import beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "penstock.sinks"
FILES = ("parquet", "json", "csv", "orc", "text")


@dataclass(frozen=True, slots=True)
class Destination:
    """What a sink is told once, when its query starts."""

    pipeline: str
    query: str
    sink: str
    path: str = ""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Secrets revealed: not to be shown."""

    @property
    def identity(self) -> str:
        """The same for the same sink of the same pipeline, run after run."""
        return f"{self.pipeline}.{self.query}.{self.sink}"


class BatchSink(Protocol):
    """Made with a Destination."""

    def write(self, frame: DataFrame, batch: int) -> None:
        """All of it, or an exception; of the same batch any number of times."""


def open_sink(sink: FormatSink, name: str, pipeline: str, query: str, directory: str) -> BatchSink:
    path = beside(sink.path, directory) if sink.path else ""
    destination = Destination(pipeline, query, name, path, sink.partition_by, plain(sink.options))
    for found in entry_points(group=GROUP, name=sink.format):
        made: BatchSink = found.load()(destination)
        return made
    if sink.format == "console":
        return ConsoleSink(destination)
    if sink.format == "delta":
        return DeltaSink(destination)
    if sink.format in FILES:
        return FileSink(destination, sink.format)
    return SparkSink(destination, sink.format)


def selected(frame: DataFrame, sink: FormatSink) -> DataFrame:
    return frame.select(*(f"`{name}`" for name in sink.columns or columns_written(frame)))


class ConsoleSink:
    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._rows = int(destination.options.get("numRows", 20))
        self._whole = destination.options.get("truncate", "false").lower() == "false"

    def write(self, frame: DataFrame, batch: int) -> None:
        print(f"{self._destination.sink}, batch {batch}", flush=True)
        frame.show(self._rows, truncate=not self._whole)


class FileSink:
    """Files of a batch have its number in their names, so that a batch that is written again replaces itself."""

    def __init__(self, destination: Destination, kind: str) -> None:
        self._destination = destination
        self._kind = kind
        self._may_repeat = True  # only the first batch after a start can have been written before

    def write(self, frame: DataFrame, batch: int) -> None:
        to = self._destination
        name = f"part-{to.query}-{to.sink}-{batch:09d}"
        write_files(frame, self._kind, to.path, name, to.partition_by, to.options, replace=self._may_repeat)
        self._may_repeat = False


class SparkSink:
    """A format of Spark's or of the user's jars, appended to. What comes of writing a batch twice is its own affair."""

    def __init__(self, destination: Destination, kind: str) -> None:
        self._destination = destination
        self._kind = kind

    def write(self, frame: DataFrame, batch: int) -> None:
        writer = frame.write.format(self._kind).mode("append").options(**self._destination.options)
        if self._destination.partition_by:
            writer = writer.partitionBy(*self._destination.partition_by)
        writer.save(self._destination.path or None)
