"""Every checker of the simulated quorum catches someone: the quorum, broken on purpose, one law at a time.

A variant is played with seed after seed until the checker named with it speaks. `faults` are those that bring it out; a
variant that shows in any weather has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from narrowing import expect
from penstock.model.errors import ErrorCode
from penstock.raft import changes, following, leading
from penstock.raft.changes import Changes
from penstock.raft.following import Following
from penstock.raft.leading import Leading
from penstock.raft.log_view import LogView, OffsetAndEpoch, Valid, compare_fetch
from penstock.raft.messages import FetchAnswer, Vote
from penstock.raft.progress import Progress, ReplicaProgress
from penstock.raft.quorum import Quorum
from penstock.raft.quorum_state import ElectionState
from penstock.raft.ready import QuorumNode, Ready
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from penstock.raft.voters import Voter, VoterSet
from penstock.raft.voting import Voting
from penstock.simulator.quorum.cluster import RaftCluster, play
from penstock.simulator.quorum.node import SimulatedNode
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch


class ForgetfulNode(SimulatedNode):
    def persist(self, ready: Ready) -> None:
        self.disk.election = ready.election


def vote_without_sync(patch: Patch) -> type[SimulatedNode]:
    """`quorum-state` is written, and not synced."""
    return ForgetfulNode


def vote_twice(patch: Patch) -> None:
    """A vote is forgotten as soon as it is given."""
    original = Voting._would_grant

    def would_grant(self: Voting, request: Vote) -> bool:
        role = self._quorum.role
        if isinstance(role, Unattached | Prospective):
            role.voted = None
        return original(self, request)

    patch.setattr(Voting, "_would_grant", would_grant)


def lead_on_after_restart(patch: Patch) -> None:
    """A leader that comes back goes on in its epoch, though it may have lost what it wrote in it."""
    original = Quorum.restore

    def restore(self: Quorum, election: ElectionState | None) -> None:
        original(self, election)
        if election is not None and isinstance(self.role, Resigned) and self.is_voter:
            self.become_unattached(election.epoch + 1)
            self.become_prospective()
            role = expect(Prospective, self.role)
            for node_id in self.history.voters.node_ids:
                role.ballot.record(node_id, True)
            self.role = Candidate(election.epoch, role.ballot, role.election_deadline)

    patch.setattr(Quorum, "restore", restore)


def vote_for_any_log(patch: Patch) -> None:
    patch.setattr(Voting, "_up_to_date", lambda self, end: True)


def no_pre_vote(patch: Patch) -> None:
    """A node that hears nothing stands for election at once."""
    patch.setattr(Voting, "poll_prospective", lambda self, role: self._quorum.become_candidate())


def commit_by_counting(patch: Patch) -> None:
    """What earlier leaders wrote counts as committed once a majority has it."""
    original = Quorum.become_leader

    def become_leader(self: Quorum) -> None:
        original(self)
        assert isinstance(self.role, Leader)
        self.role.progress.epoch_start_offset = self.high_watermark

    patch.setattr(Quorum, "become_leader", become_leader)


def high_watermark_goes_back(patch: Patch) -> None:
    """After a change of voters, what the new ones have counts, even if it is less."""

    def advance(self: Progress) -> bool:
        offsets = sorted((progress.end_offset or 0 for progress in self.voters.values()), reverse=True)
        offset = offsets[len(offsets) // 2]
        if offset <= self.epoch_start_offset or offset == self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    patch.setattr(Progress, "advance", advance)
    patch.setattr(Quorum, "commit", lambda self, offset: setattr(self, "high_watermark", offset))


def count_unsynced_tail(patch: Patch) -> None:
    """The leader counts itself by what it has written."""

    def log_moved(self: Leading, role: Leader) -> None:
        role.progress.synced(self._quorum.log.end_offset)
        if role.progress.advance():
            self.high_watermark_moved(role)
        self._answer_parked(role)

    patch.setattr(Leading, "log_moved", log_moved)


def fetch_ahead_of_disk(patch: Patch) -> None:
    patch.setattr(Following, "_is_synced", property(lambda self: True))


def truncate_to_high_watermark(patch: Patch) -> None:
    """And not by epoch (what KIP-101 ended in Kafka's replication)."""
    original = Following._truncate

    def truncate(self: Following, diverging: OffsetAndEpoch) -> None:
        patch.setattr(following, "truncation_offset", lambda log, diverging: self._quorum.high_watermark)
        original(self, diverging)

    patch.setattr(Following, "_truncate", truncate)


def any_offset_is_good(patch: Patch) -> None:
    """A fetch from an offset the log has is answered, whichever leader wrote what is before it."""

    def compare(log: LogView, offset: int, epoch: int) -> object:
        return Valid() if max(1, log.start_offset) <= offset <= log.end_offset else compare_fetch(log, offset, epoch)

    patch.setattr(leading, "compare_fetch", compare)


def commit_before_comparing(patch: Patch) -> None:
    """A follower takes the leader's high watermark for its own log, also if that diverges."""
    original = Following.fetch_answered

    def fetch_answered(self: Following, answer: FetchAnswer, by: QuorumNode) -> bool:
        role = self._quorum.role
        if isinstance(role, Follower) and answer.diverging is not None:
            role.leader_high_watermark = answer.high_watermark
            self._advance(role)
            return True
        return original(self, answer, by)

    patch.setattr(Following, "fetch_answered", fetch_answered)


def many_voter_changes_at_once(patch: Patch) -> None:
    def committed_voters(self: Changes, role: Leader) -> VoterSet:
        return self._quorum.history.voters

    patch.setattr(Changes, "_committed_voters", committed_voters)


def change_voters_before_the_own_epoch(patch: Patch) -> None:
    """A new leader takes what it knew as a follower for its high watermark."""

    def check_idle(self: Changes, role: Leader) -> int:
        if role.change is not None:
            raise changes.Refused(ErrorCode.REQUEST_TIMED_OUT, "Another change is not finished yet.")
        return self._quorum.high_watermark

    patch.setattr(Changes, "_check_idle", check_idle)


def ignore_directories(patch: Patch) -> None:
    """A node with an empty disk votes, and counts, as the voter it was."""
    patch.setattr(Voting, "_is_meant", lambda self, voter: True)
    patch.setattr(Voter, "is_voter", lambda self, key: self.key.node_id == key.node_id)
    patch.setattr(ReplicaProgress, "matches", lambda self, key: self.key.node_id == key.node_id)


def wait_for_ever(patch: Patch) -> None:
    """A request that was lost is never given up."""
    patch.setattr(RaftCluster, "settings", replace(RaftCluster.settings, request_timeout_ms=1_000_000))


class Variant(NamedTuple):
    sabotage: Callable[[Patch], type[SimulatedNode] | None]
    # One of them has to speak, more than one may.
    checkers: str
    faults: Sequence[str] | None = None
    first: int = 0  # the seed to begin with


VARIANTS = [
    Variant(vote_without_sync, "VotePersistedBeforeAnswered"),
    Variant(vote_twice, "OneLeaderPerEpoch", first=89),
    Variant(lead_on_after_restart, "OneLeaderPerEpoch"),
    Variant(vote_for_any_log, "CommittedSurvives"),
    Variant(no_pre_vote, "CandidatesAskFirst"),
    Variant(commit_by_counting, "MonotonicHighWatermark"),
    Variant(high_watermark_goes_back, "MonotonicHighWatermark"),
    Variant(count_unsynced_tail, "CommittedOnDisks"),
    Variant(fetch_ahead_of_disk, "CommittedOnDisks"),
    Variant(truncate_to_high_watermark, "CommittedSurvives"),
    Variant(any_offset_is_good, "LogMatching"),
    Variant(commit_before_comparing, "NoDivergingCommittedPrefix"),
    Variant(
        many_voter_changes_at_once,
        "CommittedSurvives OneLeaderPerEpoch NoDivergingCommittedPrefix",
        ("cut", "change_voters"),
    ),
    Variant(
        change_voters_before_the_own_epoch,
        "CommittedSurvives OneLeaderPerEpoch",
        ("contest_voters",),
    ),
    Variant(ignore_directories, "CommittedSurvives", ("replace_disk", "crash", "cut"), first=60),
    Variant(wait_for_ever, "EventualProgress", ("bad_network", "cut")),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.sabotage.__name__)
def test_what_is_broken_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    node_type = variant.sabotage(monkeypatch) or SimulatedNode
    assert_caught(
        variant.checkers,
        range(variant.first, variant.first + 200),
        lambda seed: play(seed, node_type=node_type, faults=variant.faults).violation,
    )


def test_two_leaders_that_change_the_voters_do_not_go_separate_ways() -> None:
    """As they do in the variant that allows it."""
    for seed in range(40):
        assert play(seed, faults=("contest_voters",)).violation is None
