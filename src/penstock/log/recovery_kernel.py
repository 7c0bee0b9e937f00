"""Compiled recovery: passes over a run of ordinary small batches at a time.

After a crash, recovery reads every batch since the recovery point. In Python a batch costs some microseconds, which is
little beside a large batch and most of the time where batches are small. `scan_run` passes over batches that need no
decision: complete, with a good CRC, the next offset and the epoch of the batch before. It stops in front of any other,
and `recovery.scan_segment` looks at that one. So there is one place that says what a fault is, and what the kernel does
not understand costs time and not correctness.

An idempotent producer's state is its last five batches. The kernel keeps their positions, for the first few producers
of a run; the caller then replays those batches only. Transactional batches and markers are left to the caller.

Loading numba takes some tenths of a second and many megabytes, the first compilation on a machine some seconds. So this
module is imported when a scan has many small batches before it (`recovery.MANY_BATCHES`).
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from penstock.records.columnar_types import I64, OFFSET, READ_BYTES, kernel

# The state of a scan: where it is, and what `Segment.noted` has.
AT, NEXT_OFFSET, SINCE, LARGEST, LARGEST_OFFSET, ENTRIES, PRODUCERS, BATCHES = range(8)
STATE = 8

# A larger batch is left to the caller, whose CRC is faster.
BATCH_BYTES_MAX: Final = 4096
ENTRIES_MAX: Final = 1024
ENTRY_COLUMNS: Final = 4  # position in the buffer, last offset, largest timestamp so far and its offset
PRODUCERS_MAX: Final = 64
BATCHES_KEPT: Final = 5
# Producer id, batches of it, and the positions of the last ones in turn.
PRODUCER_COLUMNS: Final = 2 + BATCHES_KEPT

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
_TABLES = numba.uint32[::1]


def _crc_tables() -> Any:
    """Eight tables, so that eight bytes are folded into the CRC at once."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for number in range(1, 8):
        before = tables[number - 1]
        tables[number] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables.reshape(-1)


CRC_TABLES: Final = _crc_tables()


@numba.njit(nogil=True)
def _big_endian(source, position, size):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for index in range(size):
        value = (value << 8) | np.int64(source[position + index])
    return value


@numba.njit(nogil=True)
def _signed(value, bits):  # type: ignore[no-untyped-def]
    return value - (np.int64(1) << bits) if value >> (bits - 1) else value


@numba.njit(nogil=True)
def _crc32c(source, position, end, tables):  # type: ignore[no-untyped-def]
    crc = np.uint32(0xFFFFFFFF)
    while position + 8 <= end:
        crc = (
            tables[1792 + ((crc & 0xFF) ^ source[position])]
            ^ tables[1536 + (((crc >> 8) & 0xFF) ^ source[position + 1])]
            ^ tables[1280 + (((crc >> 16) & 0xFF) ^ source[position + 2])]
            ^ tables[1024 + ((crc >> 24) ^ source[position + 3])]
            ^ tables[768 + np.uint32(source[position + 4])]
            ^ tables[512 + np.uint32(source[position + 5])]
            ^ tables[256 + np.uint32(source[position + 6])]
            ^ tables[np.uint32(source[position + 7])]
        )
        position += 8
    while position < end:
        crc = (crc >> np.uint32(8)) ^ tables[(crc & 0xFF) ^ source[position]]
        position += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@kernel(numba.void(READ_BYTES, I64, OFFSET, OFFSET, OFFSET, numba.boolean, I64, I64, _TABLES))
def scan_run(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0917
    buffer, state, limit, epoch, interval, with_producers, entries, producers, tables
):
    """Advance `state` over batches of the buffer, and add index entries and producers that were met.

    `limit`: the highest offset that the segment can hold. `epoch`: the leader epoch that batches must have.
    """
    at = state[AT]
    next_offset = state[NEXT_OFFSET]
    since = state[SINCE]
    largest = state[LARGEST]
    largest_offset = state[LARGEST_OFFSET]
    entry_count = np.int64(0)
    producer_count = np.int64(0)
    batches = np.int64(0)
    slot = np.int64(0)
    end = np.int64(len(buffer))
    while at + 61 <= end and entry_count < ENTRIES_MAX:
        size = _signed(_big_endian(buffer, at + 8, 4), 32) + 12
        if size < 61 or size > BATCH_BYTES_MAX or at + size > end or buffer[at + 16] != 2:
            break
        delta = _signed(_big_endian(buffer, at + 23, 4), 32)
        last_offset = next_offset + delta
        if _big_endian(buffer, at, 8) != next_offset or delta < 0 or last_offset > limit:
            break
        if _signed(_big_endian(buffer, at + 12, 4), 32) != epoch:
            break
        if _crc32c(buffer, at + 21, at + size, tables) != _big_endian(buffer, at + 17, 4):
            break
        producer_id = _big_endian(buffer, at + 43, 8)
        if with_producers and producer_id >= 0:
            if buffer[at + 22] & 0x30:
                break  # transactional, or a marker
            if slot >= producer_count or producers[slot * PRODUCER_COLUMNS] != producer_id:
                slot = np.int64(0)
                while slot < producer_count and producers[slot * PRODUCER_COLUMNS] != producer_id:
                    slot += 1
            if slot == producer_count:
                if slot == PRODUCERS_MAX:
                    break
                producers[slot * PRODUCER_COLUMNS] = producer_id
                producers[slot * PRODUCER_COLUMNS + 1] = 0
                producer_count += 1
            row = slot * PRODUCER_COLUMNS
            producers[row + 2 + producers[row + 1] % BATCHES_KEPT] = at
            producers[row + 1] += 1
        max_timestamp = _big_endian(buffer, at + 35, 8)
        if max_timestamp > largest:
            largest, largest_offset = max_timestamp, last_offset
        if since > interval:
            row = entry_count * ENTRY_COLUMNS
            entries[row] = at
            entries[row + 1] = last_offset
            entries[row + 2] = largest
            entries[row + 3] = largest_offset
            entry_count += 1
            since = np.int64(0)
        since += size
        next_offset = last_offset + 1
        at += size
        batches += 1
    state[AT] = at
    state[NEXT_OFFSET] = next_offset
    state[SINCE] = since
    state[LARGEST] = largest
    state[LARGEST_OFFSET] = largest_offset
    state[ENTRIES] = entry_count
    state[PRODUCERS] = producer_count
    state[BATCHES] = batches


class Runs:
    """`scan_run` with its buffers, for one scan."""

    def __init__(self) -> None:
        self._state = np.zeros(STATE, np.int64)
        self._entries = np.zeros(ENTRIES_MAX * ENTRY_COLUMNS, np.int64)
        self._producers = np.zeros(PRODUCERS_MAX * PRODUCER_COLUMNS, np.int64)

    def scan(
        self,
        view: memoryview,
        at: int,
        next_offset: int,
        noted: tuple[int, int, int],
        *,
        limit: int,
        epoch: int,
        interval: int,
        with_producers: bool,
    ) -> int:
        """Pass over batches from `at` on; returns how many. The properties have the rest."""
        self._state[:5] = (at, next_offset, *noted)
        scan_run(
            np.frombuffer(view, np.uint8),
            self._state,
            limit,
            epoch,
            interval,
            with_producers,
            self._entries,
            self._producers,
            CRC_TABLES,
        )
        return int(self._state[BATCHES])

    @property
    def at(self) -> int:
        return int(self._state[AT])

    @property
    def next_offset(self) -> int:
        return int(self._state[NEXT_OFFSET])

    @property
    def noted(self) -> tuple[int, int, int]:
        since, largest, largest_offset = self._state[SINCE : LARGEST_OFFSET + 1].tolist()
        return since, largest, largest_offset

    @property
    def entries(self) -> list[list[int]]:
        count = int(self._state[ENTRIES])
        found: list[list[int]] = self._entries[: count * ENTRY_COLUMNS].reshape(count, ENTRY_COLUMNS).tolist()
        return found

    @property
    def producer_batches(self) -> list[int]:
        """Where the last batches of each producer are: of one after the other, each in the order of the log."""
        count = int(self._state[PRODUCERS])
        rows = self._producers[: count * PRODUCER_COLUMNS].reshape(count, PRODUCER_COLUMNS).tolist()
        return [at for _, batches, *kept in rows for at in sorted(kept[: min(batches, BATCHES_KEPT)])]
