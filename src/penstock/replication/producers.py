"""The producer state of a partition: sequences, epochs, open transactions.

Idempotence. An idempotent producer numbers the records of each partition. For every producer id the partition keeps the
producer's epoch and its last five batches. A batch is accepted if it continues the sequence. A batch that repeats one
of the five is answered with the offsets of the first time. Any other batch is refused. Laws:

- sequences wrap from 2^31-1 to 0;
- a higher epoch starts over at sequence 0, a lower one is refused (INVALID_PRODUCER_EPOCH);
- an unknown producer may start at any sequence: its state may have expired, or was removed with deleted segments;
- the state changes only after the batch was written (`check` before the write, `append` after it);
- a batch that the leader cannot accept for the moment (its disk is full, too few replicas are in sync) is sent again,
  and batches sent after it get the same error until then. Appended first they would be out of order; and
  OUT_OF_ORDER_SEQUENCE_NUMBER makes clients begin a new epoch, in which they repeat records that may already be in
  other partitions.

Transactions. The first transactional batch of a producer opens a transaction, a marker ends it. Under read_committed
readers see nothing at or above the *last stable offset*: the first offset of the oldest transaction that is open, or
whose marker is not below the high watermark yet.

A leader does not let a transaction begin in this partition unless the coordinator knows the partition: see
`verification`, `begin_verification` (when a transactional batch arrives) and `check_verified` (part of the append).

Followers and recovery call `append` and `append_marker` without checks: the leader has checked everything in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from penstock.replication.verification import Verification

BATCHES_KEPT = 5
NO_OFFSET = -1
MAX_EPOCH = 0x7FFF
DAY_MS = 86_400_000
REFUSAL_KEPT_MS = 300_000  # after this time clients have given up the record


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The last stable offset after the end of this transaction, for the transaction index."""
    aborted: bool


@dataclass(slots=True, eq=False)
class ProducerEntry:
    """One producer's state. `batches` is ascending and has at most five, all of the current epoch."""

    producer_id: int
    epoch: int
    batches: list[ProducedBatch] = field(default_factory=list, init=False)
    coordinator_epoch: int = field(default=-1, init=False)
    last_timestamp: int = field(default=-1, init=False)
    last_seen_ms: int = field(default=-1, init=False)
    transaction_first_offset: int = field(default=NO_OFFSET, init=False)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class RefusedBatch(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    at_ms: int


@owned_by_loop()
class ProducerStates:
    """The producers of one partition."""

    __slots__ = ("_completed", "_entries", "_partition", "_refused", "_verifications", "expiration_ms", "ongoing")

    def __init__(self, partition: object = "", expiration_ms: int = DAY_MS) -> None:
        self._partition = partition
        self.expiration_ms = expiration_ms
        self._entries: dict[int, ProducerEntry] = {}
        # First offset -> producer id. Insertion order is ascending, because offsets only grow.
        self.ongoing: dict[int, int] = {}
        # First offset -> offset of the marker, for transactions whose marker may not be replicated yet.
        self._completed: dict[int, int] = {}
        self._verifications: dict[int, Verification] = {}
        # Not derived from the log: it survives `clear` and `load`.
        self._refused: dict[int, RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # -- idempotence

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """None if the batch may be appended; the earlier batch if it is a duplicate of that; KafkaError otherwise.

        Records of the group coordinator inside a transaction have no sequence (-1): only their epoch is checked.
        """
        if self._refused:
            self._check_refused(header)
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        epoch = header.producer_epoch
        first = header.base_sequence
        if epoch == entry.epoch:
            if first >= 0:
                last = entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE
                if first != last + 1 and not (first == 0 and last == MAX_SEQUENCE):
                    for batch in entry.batches:
                        if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                            return batch
                    raise self._refusal(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        header,
                        f"sequence {first} does not follow {last}",
                    )
        elif epoch < entry.epoch:
            raise self._refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH, header, f"epoch {epoch} is older than {entry.epoch}, the last seen"
            )
        elif first > 0:
            raise self._refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                header,
                f"the new epoch {epoch} starts at sequence {first}, not 0",
            )
        if entry.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise self._refusal(
                ErrorCode.INVALID_TXN_STATE,
                header,
                f"a write outside the transaction that is open since offset {entry.transaction_first_offset}",
            )
        return None

    def refuse(self, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """Record that the batch was refused for now: batches after it must wait until it is sent again."""
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        earlier = self._refused.get(header.producer_id)
        if earlier is None or earlier.epoch != header.producer_epoch:
            refused = RefusedBatch(header.producer_epoch, header.base_sequence, code, now_ms)
            self._refused[header.producer_id] = refused

    def _check_refused(self, header: BatchHeader) -> None:
        refused = self._refused.get(header.producer_id)
        if refused is None or refused.epoch != header.producer_epoch:
            return
        behind = (header.base_sequence - refused.sequence) & MAX_SEQUENCE
        if behind == 0:  # it was sent again
            del self._refused[header.producer_id]
        elif behind <= MAX_SEQUENCE // 2:
            raise self._refusal(refused.code, header, f"sequence {refused.sequence} comes first, and was refused")

    def append(self, header: BatchHeader, base_offset: int, now_ms: int, timestamp: int | None = None) -> None:
        """Record a data batch that is now in the log at `base_offset`; `timestamp` if the log assigned its own."""
        producer_id = header.producer_id
        if self._refused:
            self._refused.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        if timestamp is None:
            timestamp = header.max_timestamp
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        delta = header.last_offset_delta
        first = header.base_sequence
        last = NO_SEQUENCE if first < 0 else (first + delta) & MAX_SEQUENCE
        batches.append(ProducedBatch(first, last, base_offset, base_offset + delta, timestamp))
        entry.last_timestamp = timestamp
        entry.last_seen_ms = now_ms
        if header.attributes & TRANSACTIONAL and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self.ongoing[base_offset] = producer_id
            self._verifications.pop(producer_id, None)

    # -- transactions

    def is_in_transaction(self, header: BatchHeader) -> bool:
        """Whether a transactional batch continues a transaction that is open here: it needs no verification."""
        entry = self._entries.get(header.producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and header.producer_epoch == entry.epoch

    def begin_verification(
        self, header: BatchHeader, now_ms: int, *, transaction_version: int = 0
    ) -> Verification | None:
        """The verification that the coordinator must answer before this transactional batch is appended.

        None if the transaction is open here. `transaction_version` is 2 for clients that let the leader add the
        partition.
        """
        entry = self._entries.get(header.producer_id)
        epoch = header.producer_epoch
        if entry is not None:
            self._check_epoch(header, entry)
            if entry.transaction_first_offset >= 0 and epoch == entry.epoch:
                return None
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            verification = Verification(epoch, header.base_sequence, transaction_version, now_ms)
            self._verifications[header.producer_id] = verification
        else:
            verification.join(epoch, header.base_sequence)
        return verification

    def check_verified(self, header: BatchHeader, verification: Verification | None) -> None:
        """Check that a transactional batch may be appended: its transaction is open here, or the `verification` that it
        got on arrival is still valid, because no marker has come since.

        This is part of the append itself, so that nothing can happen in between.
        """
        entry = self._entries.get(header.producer_id)
        if entry is not None:
            self._check_epoch(header, entry)
            if entry.transaction_first_offset >= 0 and header.producer_epoch == entry.epoch:
                return
        if verification is None or self._verifications.get(header.producer_id) is not verification:
            raise self._refusal(ErrorCode.INVALID_TXN_STATE, header, "not part of an ongoing transaction")
        first = header.base_sequence
        if first > 0 and entry is None and verification.transaction_version >= 2:
            raise self._refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                header,
                f"starts at sequence {first}, and nothing is known of it",
            )
        if first > verification.lowest_sequence:
            raise self._refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                header,
                f"sequence {first} is after {verification.lowest_sequence}, which is not appended yet",
            )

    def _check_epoch(self, header: BatchHeader, entry: ProducerEntry) -> None:
        epoch = header.producer_epoch
        if epoch < entry.epoch:
            raise self._refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH, header, f"epoch {epoch} is older than {entry.epoch}, the last seen"
            )

    def check_marker(self, header: BatchHeader, coordinator_epoch: int, transaction_version: int) -> None:
        """Check that the coordinator may end this producer's transaction now. KafkaError if the marker is late or from
        a zombie.

        From transaction version 2 on the coordinator raises the producer's epoch for every marker. So a marker that is
        not above the current epoch is late, unless it is the retry of a marker that already ended the transaction.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        if epoch < entry.epoch or (epoch == entry.epoch and transaction_version >= 2):
            retried = epoch == entry.epoch and (entry.transaction_first_offset < 0 or epoch == MAX_EPOCH)
            if not retried:
                raise self._refusal(
                    ErrorCode.INVALID_PRODUCER_EPOCH, header, f"the marker's epoch {epoch} is late, after {entry.epoch}"
                )
        if coordinator_epoch < entry.coordinator_epoch:
            raise self._refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                header,
                f"coordinator epoch {coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def append_marker(
        self, header: BatchHeader, offset: int, now_ms: int, *, aborted: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Record a marker that is now in the log at `offset`; returns the transaction it ended, if that had data."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        verification = self._verifications.get(producer_id)
        if verification is not None and not verification.outlives_marker(header.producer_epoch):
            del self._verifications[producer_id]
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.last_seen_ms = now_ms
        completed = self.completed_by_marker(producer_id, offset, aborted=aborted)
        if completed is not None:
            entry.transaction_first_offset = NO_OFFSET
            del self.ongoing[completed.first_offset]
            self._completed[completed.first_offset] = offset
        return completed

    def completed_by_marker(self, producer_id: int, offset: int, *, aborted: bool) -> CompletedTransaction | None:
        """The transaction that a marker at `offset` ends, or would end; None if it has no data. Read-only."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.transaction_first_offset < 0:
            return None
        first_offset = entry.transaction_first_offset
        last_stable_offset = next((first for first in self.ongoing if first != first_offset), offset + 1)
        return CompletedTransaction(producer_id, first_offset, offset, last_stable_offset, aborted)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The last stable offset, exclusive; everything below it is decided and replicated."""
        if self._completed:
            replicated = [first for first, marker in self._completed.items() if marker < high_watermark]
            for first in replicated:
                del self._completed[first]
        elif not self.ongoing:
            return high_watermark
        return min(high_watermark, next(iter(self.ongoing), high_watermark), *self._completed)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self.ongoing), None)

    # -- lifetime

    def expire(self, now_ms: int) -> list[int]:
        """Remove producers that were idle too long; one that returns may use any sequence.

        The time of the last contact with the broker counts, not the timestamps of the producer's records.
        """
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset < 0 and now_ms - entry.last_seen_ms >= self.expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        for producer_id, refused in tuple(self._refused.items()):
            if now_ms - refused.at_ms >= REFUSAL_KEPT_MS:
                del self._refused[producer_id]
        for producer_id, verification in tuple(self._verifications.items()):
            if now_ms - verification.started_ms >= self.expiration_ms:
                del self._verifications[producer_id]
        return expired

    def load(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Start from a snapshot, dropping all other state.

        A snapshot has no time of last contact, only a record timestamp. If that alone would expire a producer at once,
        the producer gets one more full term: replayed history has old timestamps although its producer is alive.
        """
        self.clear()
        for entry in entries:
            age_ms = now_ms - entry.last_timestamp
            entry.last_seen_ms = entry.last_timestamp if 0 <= age_ms < self.expiration_ms else now_ms
            self._entries[entry.producer_id] = entry
        open_transactions = sorted(
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self._entries.values()
            if entry.transaction_first_offset >= 0
        )
        self.ongoing.update(open_transactions)

    def clear(self) -> None:
        self._entries.clear()
        self.ongoing.clear()
        self._completed.clear()
        self._verifications.clear()

    def _refusal(self, code: ErrorCode, header: BatchHeader, why: str) -> KafkaError:
        return KafkaError(code, f"producer {header.producer_id} on {self._partition}: {why}")
