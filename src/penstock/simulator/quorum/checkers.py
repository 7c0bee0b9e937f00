"""The laws of a quorum, which hold whatever happens to it; each has a name.

The checkers see every step of every node when it is taken, and the disks. They remember for good what was ever true:
which node led which epoch, which batches were committed, which changes were acknowledged to a client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from penstock.raft.messages import Answer, FetchAnswer, Request, Vote, VoteAnswer
from penstock.raft.ready import Ready, Send, TruncateTo
from penstock.raft.roles import Leader
from penstock.raft.voters import ReplicaKey
from penstock.simulator.quorum.disk import Batch, Disk, Snapshot
from penstock.simulator.quorum.node import SimulatedNode
from penstock.simulator.story import Violation


class Checker:
    """One law. Every method is called when something happens; a checker overrides those it needs."""

    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        self.nodes = nodes
        self.committed = committed

    def violated(self, text: str) -> Violation:
        return Violation(type(self).__name__, text)

    def stepped(self, node: SimulatedNode, ready: Ready) -> None:
        """The step is decided, but nothing of it is done yet."""

    def appended(self, node: SimulatedNode, batch: Batch) -> None: ...

    def truncates(self, node: SimulatedNode, effect: TruncateTo) -> None: ...

    def installs(self, node: SimulatedNode, snapshot: Snapshot) -> None: ...

    def sends(self, node: SimulatedNode, send: Send) -> None: ...

    def answers(self, node: SimulatedNode, request: Request, answer: Answer) -> None: ...

    def restarted(self, node: SimulatedNode) -> None: ...

    def acknowledged(self, batch: Batch) -> None:
        """A client received the acknowledgement that the batch is committed."""

    def ended(self) -> None:
        """The last check, after everything has healed."""


class Committed:
    """Every prefix of the log that any node considered committed, by its end."""

    def __init__(self) -> None:
        self.fingerprints: dict[int, bytes] = {0: bytes(8)}
        self.end = 0


class OneLeaderPerEpoch(Checker):
    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        super().__init__(nodes, committed)
        self.leaders: dict[int, tuple[int, int]] = {}

    def stepped(self, node: SimulatedNode, ready: Ready) -> None:
        if ready.leader is None or ready.leader.start_offset is None:
            return
        claim = (node.node_id, node.incarnation)
        known = self.leaders.setdefault(ready.leader.epoch, claim)
        if known != claim:
            raise self.violated(f"epoch {ready.leader.epoch} is led by node {known[0]} and by node {node.node_id}")


class MonotonicHighWatermark(Checker):
    """On every node while it runs; and over all leaders, as far as they publish it."""

    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        super().__init__(nodes, committed)
        self.of_node: dict[int, int] = {}
        self.of_epoch: dict[int, int] = {}

    def restarted(self, node: SimulatedNode) -> None:
        self.of_node.pop(node.node_id, None)

    def stepped(self, node: SimulatedNode, ready: Ready) -> None:
        if ready.high_watermark is None:
            return
        before = self.of_node.get(node.node_id, 0)
        if ready.high_watermark < before:
            raise self.violated(f"node {node.node_id} went from {before} to {ready.high_watermark}")
        self.of_node[node.node_id] = ready.high_watermark

    def answers(self, node: SimulatedNode, request: Request, answer: Answer) -> None:
        if not isinstance(answer, FetchAnswer) or answer.high_watermark < 0:
            return
        epoch, told = answer.leader.epoch, answer.high_watermark
        for earlier, highest in self.of_epoch.items():
            if earlier <= epoch and told < highest:
                raise self.violated(f"epoch {earlier} told {highest}, and then epoch {epoch} told {told}")
        self.of_epoch[epoch] = told


class LogMatching(Checker):
    """For an offset and an epoch there is only one batch, and only one log leads up to it."""

    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        super().__init__(nodes, committed)
        # The fingerprints before and with the batch.
        self.batches: dict[tuple[int, int], tuple[bytes | None, bytes]] = {}

    def appended(self, node: SimulatedNode, batch: Batch) -> None:
        held = (node.log.image.fingerprint_at(batch.base_offset), batch.fingerprint)
        if self.batches.setdefault((batch.base_offset, batch.epoch), held) != held:
            raise self.violated(
                f"node {node.node_id} has another log than others up to the batch at {batch.base_offset} of epoch "
                f"{batch.epoch}"
            )


class NoDivergingCommittedPrefix(Checker):
    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        super().__init__(nodes, committed)
        self.compared: dict[int, int] = {}

    def restarted(self, node: SimulatedNode) -> None:
        self.compared.pop(node.node_id, None)

    def stepped(self, node: SimulatedNode, ready: Ready) -> None:
        if ready.high_watermark is None:
            return
        image = node.log.image
        known = self.committed.fingerprints
        if ready.high_watermark > image.end.offset:
            raise self.violated(f"node {node.node_id} commits {ready.high_watermark}, but ends at {image.end.offset}")
        compared = self.compared.get(node.node_id, 0)
        for batch in reversed(image.batches):
            if batch.next_offset <= compared:
                break
            if batch.next_offset <= ready.high_watermark:
                self._compare(
                    node,
                    batch.next_offset,
                    known.setdefault(batch.next_offset, batch.fingerprint),
                    batch.fingerprint,
                )
        self.compared[node.node_id] = ready.high_watermark
        self.committed.end = max(self.committed.end, ready.high_watermark)

    def installs(self, node: SimulatedNode, snapshot: Snapshot) -> None:
        known = self.committed.fingerprints.get(snapshot.id.offset)
        if known is None:
            raise self.violated(f"node {node.node_id} installs a snapshot of {snapshot.id}, which is not committed")
        self._compare(node, snapshot.id.offset, known, snapshot.fingerprint)

    def _compare(self, node: SimulatedNode, offset: int, known: bytes, fingerprint: bytes) -> None:
        if known != fingerprint:
            raise self.violated(f"node {node.node_id} has committed another log below {offset} than others have")


class CommittedSurvives(Checker):
    """Leaders have it, no node truncates it, and in the end everything acknowledged to a client is there."""

    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        super().__init__(nodes, committed)
        self.told: list[Batch] = []

    def stepped(self, node: SimulatedNode, ready: Ready) -> None:
        if ready.leader is not None and ready.leader.start_offset is not None:
            self._check_leader(node, ready.leader.epoch)
        if ready.high_watermark is not None and node.raft is not None:
            for other in self.nodes.values():
                epoch = None if other.raft is None else other.raft.leading_epoch
                if epoch is not None and epoch > node.raft.epoch:
                    self._check_leader(other, epoch)

    def _check_leader(self, node: SimulatedNode, epoch: int) -> None:
        end = self.committed.end
        if not node.log.image.holds(end, self.committed.fingerprints[end]):
            raise self.violated(f"node {node.node_id} leads epoch {epoch} without what is committed below {end}")

    def truncates(self, node: SimulatedNode, effect: TruncateTo) -> None:
        for batch in node.log.image.batches:
            known = self.committed.fingerprints.get(batch.next_offset)
            if batch.next_offset > effect.offset and known == batch.fingerprint:
                raise self.violated(f"node {node.node_id} truncates to {effect.offset}, below {batch.end}, committed")

    def acknowledged(self, batch: Batch) -> None:
        self.told.append(batch)

    def ended(self) -> None:
        for batch in self.told:
            if self.committed.fingerprints.get(batch.next_offset) != batch.fingerprint:
                raise self.violated(f"{batch} was acknowledged, and another batch took its place")


class CommittedOnDisks(Checker):
    """What a leader commits is synced on a majority of the voters, whichever nodes lose power next."""

    def stepped(self, node: SimulatedNode, ready: Ready) -> None:
        raft = node.raft
        if ready.high_watermark is None or raft is None or not isinstance(raft.role, Leader):
            return
        offset = ready.high_watermark
        fingerprint = node.log.image.fingerprint_at(offset)
        if fingerprint is None:
            raise self.violated(f"leader {node.node_id} commits {offset}, where no batch ends")
        having = [
            voter.key.node_id
            for voter in raft.voters
            if any(
                voter.is_voter(ReplicaKey(voter.key.node_id, disk.directory_id))
                and disk.synced.holds(offset, fingerprint)
                for disk in self._disks(voter.key.node_id)
            )
        ]
        if len(having) < raft.voters.majority:
            raise self.violated(
                f"leader {node.node_id} commits {offset}; of {list(raft.voters.node_ids)} only {having} have synced it"
            )

    def _disks(self, node_id: int) -> list[Disk]:
        """Including disks that were removed since: what was synced when the voter acknowledged it counts."""
        return [*self.nodes[node_id].former_disks, self.nodes[node_id].disk]


class VotePersistedBeforeAnswered(Checker):
    def sends(self, node: SimulatedNode, send: Send) -> None:
        if isinstance(send.request, Vote) and not send.request.pre_vote:
            self._check(node, send.request.epoch, node.node_id)

    def answers(self, node: SimulatedNode, request: Request, answer: Answer) -> None:
        if isinstance(request, Vote) and isinstance(answer, VoteAnswer) and answer.granted and not request.pre_vote:
            self._check(node, request.epoch, request.candidate.node_id)

    def _check(self, node: SimulatedNode, epoch: int, candidate_id: int) -> None:
        synced = node.disk.synced_election
        if synced is None or (synced.epoch, synced.voted_id) != (epoch, candidate_id):
            raise self.violated(
                f"node {node.node_id} votes for {candidate_id} in epoch {epoch}, and its disk says {synced}"
            )


class CandidatesAskFirst(Checker):
    """No node raises the epoch before a majority has answered, in the current epoch, that it would vote for it."""

    def __init__(self, nodes: Mapping[int, SimulatedNode], committed: Committed) -> None:
        super().__init__(nodes, committed)
        self.grants: defaultdict[tuple[int, int], set[int]] = defaultdict(set)

    def answers(self, node: SimulatedNode, request: Request, answer: Answer) -> None:
        if isinstance(request, Vote) and isinstance(answer, VoteAnswer) and answer.granted and request.pre_vote:
            self.grants[request.candidate.node_id, request.epoch].add(node.node_id)

    def sends(self, node: SimulatedNode, send: Send) -> None:
        request = send.request
        if not isinstance(request, Vote) or request.pre_vote or node.raft is None:
            return
        granting = self.grants[node.node_id, request.epoch - 1] | {node.node_id}
        if len(granting) < node.raft.voters.majority:
            raise self.violated(
                f"node {node.node_id} stands for epoch {request.epoch}, asked for by {sorted(granting)}"
            )


CHECKERS: tuple[type[Checker], ...] = (
    OneLeaderPerEpoch,
    MonotonicHighWatermark,
    LogMatching,
    NoDivergingCommittedPrefix,
    CommittedSurvives,
    CommittedOnDisks,
    VotePersistedBeforeAnswered,
    CandidatesAskFirst,
)
