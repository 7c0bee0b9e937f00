"""`scan` and `read_table`: read topics as a sequence of record batches, or as one table."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.arrow.bounds import (
    Bound,
    OffsetRange,
    PartitionChoice,
    choose_partitions,
    resolve_ranges,
)
from penstock.arrow.columns import Columns
from penstock.arrow.errors import BadBounds, BadColumn
from penstock.arrow.reading import Reader, ReadSettings
from penstock.client.errors import BadSetting
from penstock.client.wire.closing import Closing
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.log_offsets import ISOLATION_LEVELS
from penstock.model.ids import TopicPartition

BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 1_000_000
REQUEST_S = 10.0
TIMEOUT_S = 60.0


class Scan(Closing):
    """An iterator of record batches. Sockets are open from the first to the last of them, or until `close`."""

    def __init__(
        self,
        bootstrap: str,
        topics: list[str],
        ranges: dict[TopicPartition, OffsetRange],
        columns: Columns,
        settings: ReadSettings,
        request_timeout: float,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.ranges = ranges
        self._columns = columns
        self._batches = self._read(bootstrap, topics, settings, request_timeout, options)
        self._reader: Reader | None = None

    @property
    def schema(self) -> Any:
        return self._columns.schema

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that has not been fetched: at the end, where a later scan continues.

        Before the end the returned batches may be behind that.
        """
        if self._reader is not None:
            return self._reader.positions()
        return {partition: bounds.first for partition, bounds in self.ranges.items()}

    def reader(self) -> Any:
        """A pyarrow.RecordBatchReader, for libraries that take one: DuckDB, datasets, Parquet."""
        for field in self.schema:
            if pa.types.is_null(field.type):
                raise BadColumn(
                    f"{field.name}: a reader must know its type; say {field.name}=(deserializer, arrow_type)"
                )
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)[1]

    def located(self) -> Iterator[tuple[TopicPartition, Any]]:
        """The same batches, each with its partition."""
        return self._batches

    def close(self) -> None:
        self._batches.close()

    def _read(
        self,
        bootstrap: str,
        topics: list[str],
        settings: ReadSettings,
        request_timeout: float,
        options: Mapping[str, str] | None,
    ) -> Generator[tuple[TopicPartition, Any], None, None]:
        with Leaders(bootstrap, timeout=request_timeout, options=options) as leaders:
            leaders.find(topics)
            self._reader = Reader(leaders, self.ranges, self._columns, settings)
            yield from self._reader.record_batches()


def _read_settings(
    isolation: str, on_data_loss: str, batch_bytes: int, batch_rows: int, timeout: float, *, grows: bool
) -> ReadSettings:
    if isolation not in ISOLATION_LEVELS:
        raise BadSetting(f"isolation={isolation!r} is not one of {', '.join(ISOLATION_LEVELS)}")
    if on_data_loss not in ("fail", "skip"):
        raise BadSetting(f"on_data_loss={on_data_loss!r} is neither 'fail' nor 'skip'")
    if batch_bytes < 1 or batch_rows < 1:
        raise BadSetting("batch_bytes and batch_rows must be positive")
    return ReadSettings(
        isolation=ISOLATION_LEVELS[isolation],
        batch_bytes=batch_bytes,
        batch_rows=batch_rows,
        timeout=timeout,
        skip_lost=on_data_loss == "skip",
        grows=grows,
    )


def scan(
    bootstrap: str,
    topics: str | Iterable[str],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Iterable[str] | None = None,
    partitions: PartitionChoice = None,
    key: Any = None,
    value: Any = None,
    isolation: str = "read_committed",
    follow: bool = False,
    on_data_loss: str = "fail",
    batch_bytes: int = BATCH_BYTES,
    batch_rows: int = BATCH_ROWS,
    timeout: float = TIMEOUT_S,
    request_timeout: float = REQUEST_S,
    options: Mapping[str, str] | None = None,
) -> Scan:
    """Record batches of one or more topics, each batch of one partition, a partition's in the order of its offsets.

    start, end       the bounds: "earliest", "latest", an offset, a time (datetime with a time zone), or a mapping
                     from partition (number, or TopicPartition) to one of these. `end` is exclusive.
    follow           continue for ever and wait for new records, also in added partitions; `end` is not used.
    columns          of key, value, topic, partition, offset, timestamp, timestampType, headers; default: all except
                     headers. Omitted columns cost nothing.
    partitions       only these: numbers, or TopicPartition if there are several topics.
    key, value       how to decode them: an Arrow type or its name (binary; string; int16 to float64, big-endian as
                     Java's serializers write them; a struct, from JSON), a deserializer, or (deserializer, type).
                     Avro(registry=...) makes a struct of each record, by the id of its schema.
    isolation        "read_committed" omits records of transactions that are open or were aborted;
                     "read_uncommitted" does not.
    on_data_loss     "fail" if requested records are gone, or "skip" to the first that exists.
    batch_bytes      how much of a partition to fetch at once, which determines the size of a batch and, times four,
                     the memory for a leader's answers; batch_rows limits the rows.
    timeout          how long a partition may make no progress, while leaders move or brokers are down.
    request_timeout  how long a broker may take to answer.
    options          security settings by Kafka's names; or `bootstrap` refers to them, such as "@prod".
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise BadBounds("no topic is given")
    wanted = Columns(columns, key, value, names)
    grows = follow and partitions is None
    settings = _read_settings(isolation, on_data_loss, batch_bytes, batch_rows, timeout, grows=grows)
    with Leaders(bootstrap, timeout=request_timeout, options=options) as leaders:
        leaders.find(names)
        ranges = resolve_ranges(
            leaders,
            choose_partitions(leaders, names, partitions),
            start,
            None if follow else end,
            isolation=settings.isolation,
            skip_lost=settings.skip_lost,
            timeout=timeout,
        )
    return Scan(bootstrap, names, ranges, wanted, settings, request_timeout, options)


def read_table(
    bootstrap: str,
    topics: str | Iterable[str],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Iterable[str] | None = None,
    partitions: PartitionChoice = None,
    key: Any = None,
    value: Any = None,
    isolation: str = "read_committed",
    on_data_loss: str = "fail",
    batch_bytes: int = BATCH_BYTES,
    timeout: float = TIMEOUT_S,
    request_timeout: float = REQUEST_S,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Reads topics, or parts of them, as a pyarrow.Table: sorted by topic, partition and offset.

    The arguments are those of `scan`.
    """
    batches: dict[TopicPartition, list[Any]] = {}
    with scan(
        bootstrap,
        topics,
        start=start,
        end=end,
        columns=columns,
        partitions=partitions,
        key=key,
        value=value,
        isolation=isolation,
        on_data_loss=on_data_loss,
        batch_bytes=batch_bytes,
        timeout=timeout,
        request_timeout=request_timeout,
        options=options,
    ) as scanned:
        for partition, batch in scanned.located():
            batches.setdefault(partition, []).append(batch)
        ordered = [batch for partition in sorted(batches) for batch in batches[partition]]
        # The type of a deserializer is learned on the way: batches before its first value have the type null.
        schema = scanned.schema
        alike = [batch if batch.schema == schema else batch.cast(schema) for batch in ordered]
        return pa.Table.from_batches(alike, schema)
