"""Tracks transactions while compaction reads through the log.

Compaction removes the data of an aborted transaction at once. The marker and its entry in the transaction index stay if
compaction met any batch of the transaction: the batch may remain in the log, empty, to keep its producer's sequence. A
marker with no remaining batches may be removed after its delete horizon.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.log.transaction_index import AbortedTransaction
from penstock.records.batch import BatchHeader, Buffer
from penstock.records.control import ControlType, control_type, first_record


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # In descending order, so that the next transaction to begin is at the end.
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        self._ongoing_committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Index entries whose markers stay. The code that writes the index takes them from here."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether this batch of data belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if producer_id in self._ongoing_aborted:
            self._with_data.add(producer_id)
            return True
        self._ongoing_committed.add(producer_id)
        return False

    def may_discard(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether this control batch may be discarded: no batch of its transaction is left."""
        self._begin_up_to(header.last_offset)
        record = first_record(buffer, position, header)
        if record is None:  # emptied by an earlier compaction
            return True
        kind = control_type(record.key)
        producer_id = header.producer_id
        if kind == ControlType.ABORT:
            transaction = self._ongoing_aborted.pop(producer_id, None)
            had_data = producer_id in self._with_data
            self._with_data.discard(producer_id)
            if transaction is not None and had_data:
                self.retained.append(transaction)
                return False
            return True
        if kind == ControlType.COMMIT:
            had_data = producer_id in self._ongoing_committed
            self._ongoing_committed.discard(producer_id)
            return not had_data
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            transaction = self._aborted.pop()
            self._ongoing_aborted.setdefault(transaction.producer_id, transaction)
