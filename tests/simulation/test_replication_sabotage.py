"""Every checker of the replicated partition catches someone: replication, broken on purpose, one law at a time.

A variant is played with seed after seed until the checker named with it speaks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.metadata_records import PartitionChangeRecord
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.follower import FollowerState, Truncation
from penstock.replication.partition import LeaderState, Proposal
from penstock.replication.progress import NO_BROKER_EPOCH, Follower
from penstock.simulator.stories.replicated_partition import Answer, Entry, Fetch, Replica
from penstock.simulator.stories.replication_story import play
from simulation.sabotage import assert_caught

SEEDS = 400


class CommittedIsrLeader(LeaderState):
    def _propose(self, isr: frozenset[int]) -> Proposal:
        proposal = super()._propose(isr)
        self.maximal_isr = self.isr
        return proposal

    def _advance(self, now_ms: int) -> bool:
        followers = self.followers
        self.followers = {broker_id: followers[broker_id] for broker_id in followers if broker_id in self.isr}
        try:
            return super()._advance(now_ms)
        finally:
            self.followers = followers


class CommittedIsr(Replica):
    """The high watermark does not wait for those that a proposal under way would add."""

    leader_type = CommittedIsrLeader


class EagerShrinkLeader(LeaderState):
    def _propose(self, isr: frozenset[int]) -> Proposal:
        proposal = super()._propose(isr)
        self.maximal_isr = isr
        return proposal


class EagerShrink(Replica):
    """A removal counts before the controller has made it so."""

    leader_type = EagerShrinkLeader


class TruncatesToHighWatermark(Replica):
    """As Kafka did before KIP-101: a follower begins by cutting its log to its high watermark."""

    def begin_to_follow(self, partition: Partition) -> None:
        super().begin_to_follow(partition)
        self.cut(self.high_watermark)


class NeverTruncates(Replica):
    """A follower takes its own tail for the leader's."""

    def fetch(self) -> None:
        epochs, self.epochs = self.epochs, LeaderEpochs()
        super().fetch()
        self.epochs = epochs


class NoBrokerEpochLeader(LeaderState):
    def _may_join(self, follower: Follower) -> bool:
        return self._registered(follower.broker_id) is not None

    def _epoch_of(self, broker_id: int) -> int:
        return NO_BROKER_EPOCH


class NoBrokerEpoch(Replica):
    """Who fetched is taken for who is registered now, be it another disk."""

    leader_type = NoBrokerEpochLeader


class AcknowledgesBeforeCommit(Replica):
    def wait(self, offset: int, waiter: Callable[[ErrorCode], None]) -> None:
        waiter(ErrorCode.NONE)


class FetchesAheadOfItsDisk(Replica):
    """A follower tells what it has received, and writes it a moment later."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.unwritten = 0

    def handle_answer(self, answer: Answer) -> None:
        before = len(self.log)
        super().handle_answer(answer)
        self.unwritten = max(0, len(self.log) - before)

    def end(self) -> None:
        super().end()
        if self.unwritten:
            self.cut(len(self.log) - self.unwritten)
            self.unwritten = 0


class AcknowledgesUnflushed(Replica):
    """On a topic that flushes with every message, a follower tells what it has not flushed."""

    def fetch(self) -> None:
        synced = self.synced
        super().fetch()
        self.synced = synced


class IgnoresMinInsyncReplicasLeader(LeaderState):
    @property
    def min_isr(self) -> int:
        return 1


class IgnoresMinInsyncReplicas(Replica):
    """The high watermark moves however few are in sync."""

    leader_type = IgnoresMinInsyncReplicasLeader


class EagerMemberLeader(LeaderState):
    def expand(self, broker_id: int) -> Proposal | None:
        follower = self.followers.get(broker_id)
        if follower is None or broker_id in self.isr or self.pending is not None or not self._may_join(follower):
            return None
        return self._propose(self.isr | {broker_id})


class JoinsBeforeItHasCaughtUp(Replica):
    leader_type = EagerMemberLeader


class ForgetfulLeader(LeaderState):
    def fetched(self, broker_id: int, offset: int, log_start: int, broker_epoch: int, now_ms: int) -> bool:
        moved = super().fetched(broker_id, offset, log_start, broker_epoch, now_ms)
        self.high_watermark = min(self.high_watermark, offset)
        return moved


class HighWatermarkGoesBack(Replica):
    leader_type = ForgetfulLeader


class CutsTooLittle(FollowerState):
    def truncation(self, leader_answer: tuple[int, int], epochs: LeaderEpochs, log_end: int) -> Truncation:
        offset, is_final = super().truncation(leader_answer, epochs, log_end)
        return Truncation(min(offset + 1, log_end), is_final)


class TruncatesTooLittle(Replica):
    follower_type = CutsTooLittle


class ServesAnyEpoch(Replica):
    """A leader that has been succeeded goes on for those who follow another."""

    def handle_fetch(self, fetch: Fetch) -> Answer:
        if self.leader is not None:
            fetch = fetch._replace(leader_epoch=self.leader.leader_epoch, last_epoch=-1)
        return super().handle_fetch(fetch)

    def handle_answer(self, answer: Answer) -> None:
        epoch = self.follower.leader_epoch if self.follower is not None else -1
        super().handle_answer(answer._replace(fetch=answer.fetch._replace(leader_epoch=epoch)))


class StampsTheWrongEpoch(Replica):
    """Two leaders write under the same epoch, so that histories cannot be distinguished."""

    def append(self, entries: list[Entry]) -> None:
        super().append([Entry(0, entry.value) for entry in entries])


class CommitsWhatDiverges(Replica):
    """Who begins to follow takes all that it has for committed."""

    def begin_to_follow(self, partition: Partition) -> None:
        super().begin_to_follow(partition)
        assert self.follower is not None
        self.follower.high_watermark = len(self.log)


VARIANTS = [
    (CommittedIsr, "CommittedIsInSync"),
    (EagerShrink, "CommittedIsInSync"),
    (TruncatesToHighWatermark, "CommittedStays"),
    (NeverTruncates, "LogMatching"),
    (NoBrokerEpoch, "CommittedIsInSync"),
    (AcknowledgesBeforeCommit, "AcknowledgedStays"),
    (FetchesAheadOfItsDisk, "CommittedIsInSync"),
    (AcknowledgesUnflushed, "CommittedIsInSync"),
    (IgnoresMinInsyncReplicas, "CommittedIsInSync"),
    (JoinsBeforeItHasCaughtUp, "CommittedIsInSync"),
    (HighWatermarkGoesBack, "MonotonicHighWatermark"),
    (TruncatesTooLittle, "Convergence"),
    (ServesAnyEpoch, "LogMatching"),
    (StampsTheWrongEpoch, "LogMatching"),
    (CommitsWhatDiverges, "CommittedPrefix"),
]


def catch(checker: str, variant: type[Replica] = Replica) -> None:
    assert_caught(checker, range(SEEDS), lambda seed: play(seed, variant).violation)


@pytest.mark.parametrize(("variant", "checker"), VARIANTS, ids=[variant.__name__ for variant, _ in VARIANTS])
def test_a_broken_variant_is_caught(variant: type[Replica], checker: str) -> None:
    catch(checker, variant)


def test_leaders_that_share_an_epoch_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller names another leader, and the epoch stays."""
    original = Partition.merge

    def merge(self: Partition, record: PartitionChangeRecord) -> Partition:
        return original(self, record)._replace(leader_epoch=self.leader_epoch)

    monkeypatch.setattr(Partition, "merge", merge)
    catch("OneLeaderPerEpoch")
