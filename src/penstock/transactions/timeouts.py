"""The time-outs of open transactions."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from penstock.transactions.state import Transaction


class Timeouts:
    """The open transactions of a shard, ordered by the time at which they are overdue.

    Entries are not removed when a transaction ends or gets another time-out; they are skipped when they come up.
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
        """Return overdue transactions, the longest overdue first.

        A caller that does not abort one must `add` it again.
        """
        overdue: dict[str, Transaction] = {}
        while self._heap and self._heap[0][0] <= now_ms and len(overdue) < limit:
            current = self._open(*heapq.heappop(self._heap))
            if current is not None:
                overdue[current.transactional_id] = current
        return list(overdue.values())

    def _open(self, overdue_ms: int, transactional_id: str) -> Transaction | None:
        current = self._transactions.get(transactional_id)
        return current if current is not None and current.overdue_ms == overdue_ms else None
