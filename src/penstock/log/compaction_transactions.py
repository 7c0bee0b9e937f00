"""Transactions, as compaction meets them on its way through the log.

The data of an aborted transaction goes at once. Its marker stays as long as any of its batches was met (it may still
stand in the log, empty, for its producer's sequence), and so does its entry in the transaction index; a marker none of
whose batches are left may go, after its delete horizon.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.log.transaction_index import AbortedTransaction
from penstock.records.batch import BatchHeader, Buffer
from penstock.records.control import ControlType, control_type, first_record


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Descending, so that the next one to begin is at the end.
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        self._ongoing_committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Index entries whose markers stay; whoever writes the index takes them."""

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
        """Whether this control batch has outlived what it speaks of."""
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
