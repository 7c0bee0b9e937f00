"""What a compacted log says: the last value of each key, as a reader of committed records sees it.

Each replica cleans its log for itself, so that its batches differ from those of others. What must be equal is the
content. Tombstones count as no value, because one replica may have removed them already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from penstock.records.batch import BatchHeader
from penstock.records.control import parse_transaction_marker
from penstock.records.record import Record, iterate_records

_BATCH_BYTES_MAX: Final = 128 * 1024 * 1024

Batch = tuple[BatchHeader, bytes]


class Content:
    """The values after all batches that were read so far."""

    def __init__(self, start: int = 0) -> None:
        # Records below are not of this content: a batch may begin before it.
        self._position = start
        self._values: dict[bytes, bytes] = {}
        self._open: dict[int, list[Record]] = {}

    def read(self, batches: Iterable[Batch]) -> None:
        for header, data in batches:
            records = [
                record
                for record in iterate_records(data, 0, header, max_size=_BATCH_BYTES_MAX)
                if record.offset >= self._position
            ]
            self._position = max(self._position, header.next_offset)
            if header.is_control:
                marker = parse_transaction_marker(records[0]) if records else None
                written = self._open.pop(header.producer_id, [])
                if marker is not None and marker.committed:
                    _apply(self._values, written)
            elif header.is_transactional:
                self._open.setdefault(header.producer_id, []).extend(records)
            else:
                _apply(self._values, records)

    def values(self) -> dict[bytes, bytes]:
        """A digest of the last value of each key. Keys of open transactions are apart, by their producer."""
        values = dict(self._values)
        for producer_id, written in self._open.items():
            pending: dict[bytes, bytes] = {}
            _apply(pending, written)
            values |= {b"%d:" % producer_id + key: digest for key, digest in pending.items()}
        return values


def _apply(values: dict[bytes, bytes], records: list[Record]) -> None:
    for record in records:
        key = b"" if record.key is None else bytes(record.key)
        if record.value is None:
            values.pop(key, None)
        else:
            values[key] = hashlib.blake2b(bytes(record.value), digest_size=16).digest()
