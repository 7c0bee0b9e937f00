"""The next transaction waits for the one before: who comes while its markers are still being written has a moment.

EndTxn is answered when the outcome is decided, and the markers follow. A producer that goes on at once asks for the
next transaction before they are all written, and would be told CONCURRENT_TRANSACTIONS; after which clients wait for
much longer than the markers take. So its request is decided when the transaction completes, or else after a while.
"""

from __future__ import annotations

import asyncio

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.shard import Operation, Waiting
from penstock.transactions.shard import TransactionShard


class _Waiter:
    __slots__ = ("operation", "timer", "waiting", "writes")

    def __init__(self, operation: Operation[TransactionShard], waiting: Waiting, writes: bool) -> None:
        self.operation = operation
        self.waiting = waiting
        self.writes = writes
        self.timer: asyncio.TimerHandle


class Completion:
    def __init__(self, transactions: Coordinator[TransactionShard], patience: float) -> None:
        """`patience`: as many seconds as a partition's leader asks again in the name of a client."""
        self._transactions = transactions
        self._patience = patience
        self._waiters: dict[str, list[_Waiter]] = {}

    def submit(
        self, transactional_id: str, operation: Operation[TransactionShard], waiting: Waiting, *, writes: bool = False
    ) -> None:
        """As `Coordinator.submit`, when the transaction before is complete."""
        waiter = _Waiter(operation, waiting, writes)
        partition = self._transactions.partitions.get(self._transactions.partition_of(transactional_id))
        shard = None if partition is None else partition.shard
        transaction = None if shard is None else shard.get(transactional_id)
        if transaction is None or not transaction.prepared:
            self._submit(transactional_id, waiter)
            return
        waiter.timer = self._transactions.loop.call_later(self._patience, self._give_up, transactional_id, waiter)
        self._waiters.setdefault(transactional_id, []).append(waiter)

    def completed(self, transactional_id: str) -> None:
        for waiter in self._waiters.pop(transactional_id, ()):
            waiter.timer.cancel()
            self._submit(transactional_id, waiter)

    def _give_up(self, transactional_id: str, waiter: _Waiter) -> None:
        waiters = self._waiters[transactional_id]
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[transactional_id]
        self._submit(transactional_id, waiter)

    def _submit(self, transactional_id: str, waiter: _Waiter) -> None:
        self._transactions.submit(transactional_id, waiter.operation, waiter.waiting, writes=waiter.writes)
