"""What Spark asks of a source: the plan of a read, in the driver's processes, and the rows, in the executors'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from penstock.arrow.bounds import ISOLATION_LEVELS, OffsetRange, choose_partitions, resolve_ranges
from penstock.arrow.scanning import scan
from penstock.client.leaders import Leaders
from penstock.model.ids import TopicPartition

Offsets = dict[str, dict[str, int]]


@dataclass
class OffsetRangePartition(InputPartition):
    topic: str
    partition: int
    first: int
    end: int


class _Reading:
    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._columns = columns

    @property
    def _bootstrap(self) -> str:
        return self._options["kafka.bootstrap.servers"]

    @property
    def _isolation(self) -> str:
        return self._options.get("kafka.isolation.level", "read_uncommitted")

    def _ranges(self, start: str = "earliest") -> dict[TopicPartition, OffsetRange]:
        topics = [name.strip() for name in self._options["subscribe"].split(",")]
        with Leaders(self._bootstrap) as leaders:
            leaders.find(topics)
            return resolve_ranges(
                leaders,
                choose_partitions(leaders, topics, None),
                start,
                "latest",
                isolation=ISOLATION_LEVELS[self._isolation],
                skip_lost=False,
                timeout=60.0,
            )

    def _read(self, partition: OffsetRangePartition) -> Iterator[Any]:
        with scan(
            self._bootstrap,
            partition.topic,
            start=partition.first,
            end=partition.end,
            partitions=[partition.partition],
            columns=self._columns,
            isolation=self._isolation,
        ) as batches:
            yield from batches


class BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [OffsetRangePartition(*where, *bounds) for where, bounds in self._ranges().items()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read(partition) if isinstance(partition, OffsetRangePartition) else iter(())


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        super().__init__(options, columns)
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        return _offsets(
            {each: b.first for each, b in self._ranges(self._options.get("startingoffsets", "latest")).items()}
        )

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        return self._target or _offsets({each: bounds.end for each, bounds in self._ranges().items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.latestOffset({}, ReadAllAvailable())

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return [
            OffsetRangePartition(topic, int(index), start.get(topic, {}).get(index, 0), last)
            for topic, ends in end.items()
            for index, last in ends.items()
            if last > start.get(topic, {}).get(index, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, OffsetRangePartition)
        return self._read(partition)


def _offsets(by_partition: dict[TopicPartition, int]) -> Offsets:
    made: Offsets = {}
    for (topic, index), offset in sorted(by_partition.items()):
        made.setdefault(topic, {})[str(index)] = offset
    return made
