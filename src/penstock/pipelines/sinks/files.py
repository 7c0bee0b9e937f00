"""The sink for files, on any file system that Hadoop supports: each batch appears in them once.

Beside the files that readers see there is a directory that readers of Spark and Hive ignore:

    _penstock/<sink>/open/__batch=7/...     rows of a batch, as Spark wrote them
    _penstock/<sink>/rolled/7.0/...         rows of several batches, in files of the requested size
    _penstock/<sink>/decided/7.0            which of these files to publish, and under which names

A batch is written, then decided, then published: its files are moved to where readers look. The decision is one small
file that exists or not. Before the decision nothing of the batch is visible, and a repeated write replaces what was
written. After the decision a repeated batch is skipped, and missing moves are made first. So after a kill at any point
each batch is published once or not yet. While files are moved, readers that list the directory may see some of them.

With `roll_bytes` or `roll_every` batches stay open until together they are large or old enough. Then they are rewritten
as few files, and these are published. A query that ends without a failure publishes all open batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipelines.sinks.destination import Destination, Sink, has_batch
from penstock.pipelines.sinks.hadoop_files import Files, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCH = "__batch"
_ENOUGH = 0.5
"""A fraction of the requested size: a batch whose files are at least that large is published as it was written."""


class FileSink(Sink):
    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._lock = threading.Lock()
        self._shelf: _Shelf | None = None

    def write(self, frame: DataFrame, batch: int) -> None:
        with self._lock:
            if self._shelf is None:
                self._shelf = _Shelf(self.destination, frame.sparkSession)
            self._shelf.write(frame, batch)

    def idle(self) -> None:
        if self._shelf is not None and self._lock.acquire(blocking=False):
            try:
                if self._shelf.due():
                    self._shelf.roll()
            finally:
                self._lock.release()

    def close(self) -> None:
        with self._lock:
            if self._shelf is not None:
                self._shelf.roll()


@dataclass(frozen=True, slots=True, order=True)
class _Decision:
    """The last decided batch, and the number of decisions for it: open batches are published later than they are
    decided."""

    batch: int
    turn: int

    @property
    def name(self) -> str:
        return f"{self.batch:012d}.{self.turn}"


class _Shelf:
    """The contents of a sink's hidden directory."""

    def __init__(self, destination: Destination, session: SparkSession) -> None:
        self._to = destination
        self._session = session
        self._files = Files(session, destination.path)
        self._root = f"{destination.path}/_penstock/{destination.sink}-{destination.short_identity}"
        self._last = _Decision(-1, 0)
        self._schema: StructType | None = None
        self._open: dict[int, int] = {}
        """Batches that are decided and not published, with their sizes."""
        self._open_since_ms: int | None = None
        self._recover()

    def write(self, frame: DataFrame, batch: int) -> None:
        if has_batch(self._last.batch, batch, self._to):
            return
        if self._schema is not None and self._schema != frame.schema:
            self.roll()  # rows of another schema do not go into the same files
        self._schema = frame.schema
        if self._written(frame, self._staged(batch)):
            self._open[batch] = sum(self._files.size(each) for each in self._rows_of(self._staged(batch)))
            self._open_since_ms = self._open_since_ms or _now_ms()
        if self.due():
            self.roll(batch)
        else:
            self._decide(_Decision(batch, 0))

    def due(self) -> bool:
        if not self._open:
            return False
        size, seconds = self._to.roll_bytes, self._to.roll_seconds
        if size is None and seconds is None:
            return True
        if size is not None and sum(self._open.values()) >= size:
            return True
        since = self._open_since_ms or 0
        return seconds is not None and _now_ms() - since >= seconds * 1000

    def roll(self, batch: int | None = None) -> None:
        """Publish the open batches; with `batch`, that one too, which is not decided yet."""
        if not self._open:
            return
        decision = _Decision(batch, 0) if batch is not None else _Decision(self._last.batch, self._last.turn + 1)
        made = self._rewritten(decision) if self._worth_rewriting() else self._staged(next(iter(self._open)))
        moves = self._moves(made, decision)
        self._decide(decision, moves)
        self._show(moves)

    # -- Inside.

    def _written(self, frame: DataFrame, place: str) -> int:
        """The number of rows; Spark would write a file even without any."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        rows = Observation()
        writer = frame.observe(rows, f.count(f.lit(1)).alias("rows")).write.format(self._to.format)
        writer = writer.mode("overwrite").options(**self._to.options)
        (writer.partitionBy(*self._to.partition_by) if self._to.partition_by else writer).save(place)
        return int(rows.get["rows"])

    def _recover(self) -> None:
        """Complete what was decided before a kill, and remove what was not decided."""
        names = self._files.names(f"{self._root}/decided")
        found = [_Decision(*map(int, name.split("."))) for name in names if name.replace(".", "").isdecimal()]
        if not found:
            return
        from pyspark.sql.types import StructType

        self._last = max(found)
        note = self._files.read_note(f"{self._root}/decided/{self._last.name}")
        self._schema = StructType.fromJson(note["schema"])
        if note["moves"]:
            self._show(note["moves"])
        else:
            self._open = {int(batch): size for batch, size in note["open"].items()}
            self._open_since_ms = note["since"]

    def _decide(self, decision: _Decision, moves: Sequence[list[str]] = ()) -> None:
        assert self._schema is not None
        note = {
            "moves": list(moves),
            "schema": self._schema.jsonValue(),
            "open": self._open,
            "since": self._open_since_ms,
        }
        self._files.write_note(f"{self._root}/decided/{decision.name}", note)
        earlier, self._last = self._last, decision
        if earlier.batch >= 0:
            self._files.delete(f"{self._root}/decided/{earlier.name}")

    def _show(self, moves: Sequence[list[str]]) -> None:
        for hidden, shown in moves:
            if self._files.exists(shown):  # the file system copies, and was killed before it removed the original
                self._files.delete(hidden)
            elif self._files.exists(hidden):
                self._files.move(hidden, shown)
        self._files.delete(f"{self._root}/open")
        self._files.delete(f"{self._root}/rolled")
        self._open, self._open_since_ms = {}, None

    def _worth_rewriting(self) -> bool:
        if len(self._open) > 1:
            return True
        if self._to.roll_bytes is None and self._to.roll_seconds is None:
            return False
        batch, size = next(iter(self._open.items()))
        count = len(self._rows_of(self._staged(batch)))
        wanted = self._to.roll_bytes or size
        return count > 1 and not _ENOUGH * wanted <= size / count <= wanted

    def _rewritten(self, decision: _Decision) -> str:
        assert self._schema is not None
        made = f"{self._root}/rolled/{decision.name}"
        reader = self._session.read.format(self._to.format).schema(self._schema)
        same_as_written = {**self._to.options, "basePath": f"{self._root}/open", "mode": "FAILFAST"}
        if self._to.format == "csv":
            same_as_written["multiLine"] = "true"
        rows = reader.options(**same_as_written).load([self._staged(batch) for batch in self._open])
        rows = rows.select(*(f"`{name}`" for name in self._schema.names))
        size, wanted = sum(self._open.values()), self._to.roll_bytes
        count = max(1, round(size / wanted)) if wanted else 1
        if self._to.partition_by:
            rows = rows.repartition(*(f"`{name}`" for name in self._to.partition_by))
        else:
            rows = rows.repartition(count) if count > 1 else rows.coalesce(1)
        writer = rows.write.format(self._to.format).mode("overwrite").options(**self._to.options)
        if self._to.partition_by:
            writer = writer.partitionBy(*self._to.partition_by)
            if count > 1:
                writer = writer.option("maxRecordsPerFile", max(1, rows.count() // count))
        writer.save(made)
        return made

    def _moves(self, made: str, decision: _Decision) -> list[list[str]]:
        """The names are unique to the batch."""
        root = self._files.qualified(made)
        name = f"part-{self._to.sink}-{self._to.short_identity}-{decision.name.replace('.', '-')}"
        moves = []
        for number, each in enumerate(self._rows_of(made)):
            place = each.removeprefix(root).rpartition("/")[0]
            extension = named(each).partition(".")[2]
            moves.append([each, f"{self._to.path}{place}/{name}-{number:04d}.{extension}"])
        return moves

    def _rows_of(self, place: str) -> list[str]:
        return sorted(each for each in self._files.under(place) if not named(each).startswith(("_", ".")))

    def _staged(self, batch: int) -> str:
        return f"{self._root}/open/{_BATCH}={batch}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
