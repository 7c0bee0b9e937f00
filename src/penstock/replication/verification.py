"""The first batch of a transaction in a partition waits until the coordinator knows of the partition (KIP-890).

A transaction that is open in a partition the coordinator does not know of would never end there: the last stable
offset would stand still for good. So before a producer's first batch the leader asks the coordinator: whether the
partition is in the transaction (clients that add partitions themselves, Produce up to version 11), or to add it
(version 12 on). Once there is a batch, nothing has to be asked until the marker.

While the coordinator is asked, a marker may come: the transaction that was asked for is over, and the next one, under
the same epoch with older clients, may not have the partition. The `Verification` says which question an answer belongs
to. It is taken when asking, shown when appending, and void once a marker of the producer has come in between.
"""

from __future__ import annotations


class Verification:
    """One question to the coordinator. Batches of the producer that come meanwhile share it.

    A batch with a higher sequence than the lowest that asked must not be appended before that one: if it was refused
    for a reason that passes, it could never follow.
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
        """From transaction version 2 on a marker has the epoch of the next transaction, which may be asking already."""
        return self.transaction_version >= 2 and epoch == self.epoch
