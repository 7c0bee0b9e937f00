"""Which transactions have been open for too long."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from penstock.transactions.state import Transaction


class Timeouts:
    """The open transactions of a shard by when they are overdue.

    Entries are never removed when a transaction ends or gets another time-out; they are passed over when they come up.
    """

    __slots__ = ("_heap", "_transactions")

    def __init__(self, transactions: Mapping[str, Transaction]) -> None:
        self._transactions = transactions
        self._heap: list[tuple[int, str]] = []

    def add(self, transaction: Transaction) -> None:
        if transaction.overdue_ms is not None:
            heapq.heappush(self._heap, (transaction.overdue_ms, transaction.transactional_id))

    @property
    def next_ms(self) -> int | None:
        while self._heap:
            overdue_ms, transactional_id = self._heap[0]
            if self._open(overdue_ms, transactional_id) is not None:
                return overdue_ms
            heapq.heappop(self._heap)
        return None

    def take(self, now_ms: int, limit: int) -> list[Transaction]:
        """Those that are overdue, the longest first. Whoever does not abort one has to `add` it again."""
        overdue: dict[str, Transaction] = {}
        while self._heap and self._heap[0][0] <= now_ms and len(overdue) < limit:
            current = self._open(*heapq.heappop(self._heap))
            if current is not None:
                overdue[current.transactional_id] = current
        return list(overdue.values())

    def _open(self, overdue_ms: int, transactional_id: str) -> Transaction | None:
        current = self._transactions.get(transactional_id)
        return current if current is not None and current.overdue_ms == overdue_ms else None
