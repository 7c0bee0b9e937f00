"""The errors of reading and writing tables; each names the place: topic, partition, offset, column or row."""

from __future__ import annotations

from penstock.client import errors as client_errors
from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition


class ArrowError(ClientError):
    """The base class."""


class BadColumn(ArrowError, ValueError):
    """A column that does not exist, or whose type does not fit; the message names the types that do."""


class BadBounds(ArrowError, ValueError):
    """A `start`, `end` or `partitions` that is invalid, or outside the log."""


class BadValue(ArrowError, ValueError):
    """A key or value that does not have the declared type of its column."""

    def __init__(self, column: str, partition: TopicPartition, offset: int, problem: str) -> None:
        super().__init__(f"{column} of {partition} at offset {offset}: {problem}")
        self.column = column
        self.partition = partition
        self.offset = offset


class DataLost(ArrowError):
    """Requested records are gone: deleted by retention, or by a request."""

    def __init__(self, partition: TopicPartition, first: int, available: int) -> None:
        super().__init__(
            f"{partition}: offsets {first} to {available - 1} are not in the log any more, it begins at {available}; "
            f"on_data_loss='skip' goes on from there"
        )
        self.partition = partition
        self.first = first
        self.available = available


class ReadStalled(ArrowError):
    """A partition made no progress for too long."""


class UnreadableBatch(ArrowError):
    """Bytes in a partition that are not a record batch, or not the ones that were written."""


class RecordTooLarge(ArrowError, client_errors.RecordTooLarge):
    """A row that makes a larger record than the topic accepts."""

    def __init__(self, topic: str, row: int, size: int, reason: str) -> None:
        super().__init__(f"row {row} makes a record of {size} bytes, topic {topic!r} refuses it: {reason}")
        self.row = row
        self.size = size


class WriteFailed(ArrowError):
    """Rows that were not acknowledged. Without idempotence or acks they may have been written nevertheless."""
