"""Decides what the next batch reads, from numbers alone: no Spark, no sockets, the time is an argument.

Laws, all of them tested as properties:

- A batch never reads past the latest offsets, and never ends before its start.
- `maxOffsetsPerTrigger` is divided in exact proportion to what each partition has. A batch has exactly as many offsets
  as the limit, unless fewer exist, or more partitions have data than that. Each partition with data gets at least one
  offset, so that a small partition beside a large one does not starve.
- `minOffsetsPerTrigger` delays a batch until that many offsets exist, or until `maxTriggerDelay` has passed since the
  last batch and there is at least one. The first batch does not wait.
- Splitting loses no offset and reads none twice; the pieces of a partition are in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.source.errors import lost
from penstock.spark.source.offsets import Offsets


class Piece(NamedTuple):
    """Offsets of one partition, read by one task. `end` is exclusive."""

    partition: TopicPartition
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_max: float = 15 * 60.0  # seconds


class Admission:
    """Decides how much of the available offsets goes into the next batch."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._last_batch: float | None = None

    def admit(self, start: Offsets, available: Offsets, now: float, *, minimum: bool = True) -> Offsets:
        """The end of the batch that begins at `start`; `start` itself if there is no batch yet.

        `available` has the end of every partition to read, and `start` has the beginning of each. Without `minimum`,
        anything available makes a batch.
        """
        size = sum(max(0, end - start[partition]) for partition, end in available.items())
        if size and minimum and self._limits.offsets_min is not None and size < self._limits.offsets_min:
            waited = self._limits.delay_max if self._last_batch is None else now - self._last_batch
            if waited < self._limits.delay_max:
                return dict(start)
        if size:
            self._last_batch = now
        if self._limits.offsets_max is None:
            return dict(available)
        return share(start, available, self._limits.offsets_max)


def share(start: Offsets, available: Offsets, limit: int) -> Offsets:
    """Ends such that `limit` offsets are read, of each partition in proportion to what it has."""
    sizes = {each: end - start[each] for each, end in available.items() if end > start[each]}
    if sum(sizes.values()) <= limit:
        return dict(available)
    # Each partition gets one, then its share of the rest rounded down; what remains goes to those that lost most by
    # rounding.
    rest = max(limit - len(sizes), 0)
    total = max(sum(sizes.values()) - len(sizes), 1)
    shares = {each: 1 + rest * (size - 1) // total for each, size in sizes.items()}
    left = max(limit - sum(shares.values()), 0)
    by_cut = sorted(sizes, key=lambda each: (-(rest * (sizes[each] - 1) % total), each))
    for partition in by_cut[:left]:
        shares[partition] += 1
    return {each: start[each] + shares[each] if each in shares else end for each, end in available.items()}


def split(pieces: Iterable[Piece], partitions_min: int | None, records_max: int | None) -> list[Piece]:
    """One task per partition, or more: so that none has more than `records_max` offsets, and then so that there are
    about `partitions_min` tasks, by cutting the large pieces."""
    made = [piece for piece in pieces if piece.size > 0]
    if records_max is not None:
        made = [part for piece in made for part in _cut(piece, -(-piece.size // records_max))]
    if partitions_min is None or len(made) >= partitions_min:
        return made
    total = sum(piece.size for piece in made)
    # A piece that is too small to be cut takes one task; the others share the remaining tasks by their size.
    small = {piece for piece in made if _parts(piece.size, total, partitions_min) == 1}
    total -= sum(piece.size for piece in small)
    tasks = max(partitions_min - len(small), 1)
    return [part for piece in made for part in _cut(piece, 1 if piece in small else _parts(piece.size, total, tasks))]


def _parts(size: int, total: int, tasks: int) -> int:
    return max((2 * size * tasks + total) // (2 * total), 1) if total else 1


def _cut(piece: Piece, parts: int) -> list[Piece]:
    bounds = [piece.first + piece.size * part // parts for part in range(parts + 1)]
    return [Piece(piece.partition, first, end) for first, end in pairwise(bounds) if end > first]


class Plan(NamedTuple):
    """The pieces of a batch, and what of it was lost."""

    pieces: list[Piece]
    losses: list[str]


def plan(start: Offsets, end: Offsets, begins: Mapping[TopicPartition, int]) -> Plan:
    """The pieces between two offsets. `begins` has the beginning of partitions that are only in `end`."""
    pieces, losses = [], []
    known = {partition.topic for partition in start}
    for partition, last in sorted(end.items()):
        first = start.get(partition)
        if first is None:
            first = begins[partition]
            if first > 0 and partition.topic in known:
                losses.append(lost(partition, 0, first, "the partition was added, and has been trimmed since"))
        if last < first:
            losses.append(lost(partition, last, first, f"the log ends at {last} now"))
        elif last > first:
            pieces.append(Piece(partition, first, last))
    losses += [f"{each}: was read up to {start[each]}, and is gone" for each in sorted(set(start) - set(end))]
    return Plan(pieces, losses)
