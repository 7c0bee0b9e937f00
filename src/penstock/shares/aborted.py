"""Finds the batches of aborted transactions among those that were read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.shares.states import Span


class ReadBatch(NamedTuple):
    """A batch of the log, from its header."""

    first: int
    last: int
    producer_id: int
    is_transactional: bool
    is_control: bool

    @property
    def span(self) -> Span:
        return Span(self.first, self.last)


def aborted_spans(batches: Iterable[ReadBatch], aborted: Sequence[tuple[int, int]]) -> list[Span]:
    """`aborted`: (producer id, first offset) of the aborted transactions that overlap these batches."""
    to_begin = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    open_producers: set[int] = set()
    found = []
    for batch in batches:
        while to_begin and to_begin[-1][1] <= batch.last:
            open_producers.add(to_begin.pop()[0])
        if batch.is_control:
            # Of a transaction in this set, that is the marker that ends it.
            open_producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_producers:
            found.append(batch.span)
    return found
