"""Reads on worker threads, while the event loop puts other files in the place of those that are read.

Compaction swaps segments for compacted ones of the same names, and a log that was moved goes on in another directory. A
reader may then have seen the old description of a segment and the bytes of the new one: its read is repeated. So is one
that did not find a file: the event loop rolls, cuts and deletes meanwhile, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.log.index import CorruptIndex
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition

Found = TypeVar("Found")

# Each time something must have changed under the reader; more often than that it is not chance.
_ATTEMPTS = 9


class Replacements:
    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        # Held while files are replaced, and for a moment by worker threads that begin to read.
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def replacing(self) -> Iterator[None]:
        with self._lock:
            self._count += 1
            yield

    def undisturbed(self, read: Callable[[], Found]) -> Found:
        """The result of a read during which nothing was replaced."""
        for _ in range(_ATTEMPTS):
            with self._lock:
                count = self._count
            try:
                found = read()
            except FileNotFoundError:
                continue
            except (OSError, CorruptIndex, KafkaError):
                if self._count == count:
                    raise
            else:
                if self._count == count:
                    return found
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._topic_partition}: its segments moved under a read")
