"""The merge of state batches.

The batches of a share partition are sorted, do not overlap, and equal neighbours are one batch. Where an update
overlaps them, the higher (delivery count, delivery state) wins, offset by offset: a late or repeated update cannot take
anything back. Nothing below the start offset is kept.

A share partition may have thousands of batches, and each acknowledgement is an update of a few: only the batches that
the update touches are merged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

NO_OFFSET: Final = -1


class Batch(NamedTuple):
    first: int
    last: int
    state: int
    deliveries: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.deliveries, self.state


_FIRST = attrgetter("first")
_LAST = attrgetter("last")


def combine(batches: Sequence[Batch], update: Iterable[Batch], start_offset: int) -> list[Batch]:
    """Return the batches with the update merged in. `batches` must be in order; the update need not be."""
    kept = _from_start(batches, start_offset)
    new = _from_start(sorted(update), start_offset)
    if not new:
        return kept
    # The touched batches, and a neighbour on each side, which may become one with the result.
    low = bisect_left(kept, new[0].first - 1, key=_LAST)
    high = bisect_right(kept, max(map(_LAST, new)) + 1, key=_FIRST)
    kept[low:high] = _sweep([*kept[low:high], *new])
    return kept


def _from_start(batches: Iterable[Batch], start_offset: int) -> list[Batch]:
    return [
        batch if batch.first >= start_offset else batch._replace(first=start_offset)
        for batch in batches
        if batch.last >= start_offset
    ]


def _sweep(batches: list[Batch]) -> list[Batch]:
    """Walk over the offsets at which batches begin or end; between two of them one batch wins."""
    edges = sorted({edge for batch in batches for edge in (batch.first, batch.last + 1)})
    starting: dict[int, list[Batch]] = {}
    for batch in batches:
        starting.setdefault(batch.first, []).append(batch)
    merged: list[Batch] = []
    active: list[Batch] = []
    for edge, following in pairwise(edges):
        active = [batch for batch in active if batch.last >= edge] + starting.get(edge, [])
        if not active:
            continue
        winner = max(active, key=attrgetter("rank"))
        if merged and merged[-1].last + 1 == edge and merged[-1].rank == winner.rank:
            merged[-1] = merged[-1]._replace(last=following - 1)
        else:
            merged.append(Batch(edge, following - 1, winner.state, winner.deliveries))
    return merged
