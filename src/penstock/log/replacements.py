"""Repeats reads on worker threads if the event loop replaced files during the read.

Compaction swaps segments for compacted ones with the same names, and a moved log continues in another directory. A
reader may then combine the old description of a segment with the bytes of the new one, so its read is repeated. A read
that does not find a file is repeated as well: the event loop also rolls, cuts and deletes meanwhile.
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

# Every attempt fails only if something changed during the read; more failures than this are no coincidence.
_ATTEMPTS = 9


class Replacements:
    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        # Held while files are replaced, and briefly by worker threads that begin to read.
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def replacing(self) -> Iterator[None]:
        with self._lock:
            self._count += 1
            yield

    def undisturbed(self, read: Callable[[], Found]) -> Found:
        """Repeat a read until nothing was replaced during it, and return its result."""
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
