"""Verification: the first batch of a transaction waits until the coordinator knows the partition (KIP-890).

A transaction that is open in a partition unknown to the coordinator would never end there: the last stable offset would
never advance again. So before a producer's first batch the leader asks the coordinator: either whether the partition is
in the transaction (clients that add partitions themselves, Produce up to version 11), or to add it (from version 12
on). After the first batch, no further question is needed until the marker.

A marker may arrive before the coordinator's answer: the transaction in question is then over, and the next one, under
the same epoch with older clients, may not contain the partition. A `Verification` identifies the question that an
answer belongs to. It is taken when the leader asks and presented with the append, however long the batch is on its way.
The log itself checks it as part of the append (`Log.append_as_leader`), and refuses it if a marker of the producer has
voided it meanwhile.
"""

from __future__ import annotations


class Verification:
    """One question to the coordinator, shared by batches of the producer that arrive meanwhile.

    A batch with a higher sequence than the lowest in the question must not be appended before that one: if the lowest
    was refused for a temporary reason, it could never follow.
    """

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "transaction_version")

    def __init__(self, epoch: int, sequence: int, transaction_version: int, now_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.transaction_version = transaction_version
        self.started_ms = now_ms

    def join(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)

    def outlives_marker(self, epoch: int) -> bool:
        """From transaction version 2 on a marker has the epoch of the next transaction, which may be verifying
        already."""
        return self.transaction_version >= 2 and epoch == self.epoch
