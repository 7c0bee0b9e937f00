"""Requests for the next transaction wait until the markers of the previous one are written.

The coordinator answers EndTxn when the outcome is decided; the markers follow. A producer that continues at once asks
for the next transaction before all markers are written. Kafka answers CONCURRENT_TRANSACTIONS, and clients then sleep
for much longer than the markers take. Here the request waits until the transaction completes, or until a timeout (0.1 s
by default).
"""

from __future__ import annotations

import asyncio

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.shard import Operation, Waiting
from penstock.transactions.shard import TransactionShard


class _Waiter:
    __slots__ = ("operation", "timer", "waiting")

    def __init__(self, operation: Operation[TransactionShard], waiting: Waiting) -> None:
        self.operation = operation
        self.waiting = waiting
        self.timer: asyncio.TimerHandle


class Completion:
    def __init__(self, transactions: Coordinator[TransactionShard], patience: float) -> None:
        """`patience`: in seconds, for as long as a partition leader retries on behalf of a client."""
        self._transactions = transactions
        self._patience = patience
        self._waiters: dict[str, list[_Waiter]] = {}

    def submit(self, transactional_id: str, operation: Operation[TransactionShard], waiting: Waiting) -> None:
        """Like `Coordinator.submit` of an operation that writes, after the previous transaction is complete."""
        waiter = _Waiter(operation, waiting)
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
        self._transactions.submit(transactional_id, waiter.operation, waiter.waiting, writes=True)
