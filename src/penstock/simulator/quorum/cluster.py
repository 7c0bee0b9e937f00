"""Simulates a quorum in one process, driven by a seed: the pure state machines alone, in virtual time.

Every node runs the real `Raft` on a disk and a network that misbehave. Messages are lost, duplicated, delayed and
reordered. The network is cut, in both directions or in one. Processes are killed, also in the middle of a step, and
restart. Power fails, on one node or on all, and unsynced data is lost. Clocks jump and run at different speeds.
Processes pause for a while and continue. Disks are slow, or replaced. Leaders resign, voters are added and removed,
snapshots replace the log. Meanwhile a client writes to every node that considers itself the leader. The checkers
examine every step. In the end everything heals, and the quorum must commit again.

    python -m penstock.simulator --story raft --seeds 100     # seeds 0 to 99
    python -m penstock.simulator --story raft --seed 17       # one of them again

The same seed gives the same run, to the last message: `Trace` fingerprints it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from penstock.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from penstock.raft.messages import Answer, Request, VoterChangeAnswer
from penstock.raft.quorum import QuorumBroken
from penstock.raft.ready import QuorumNode, Ready, Send, TruncateTo
from penstock.raft.roles import Leader, Resigned
from penstock.raft.settings import RaftSettings
from penstock.raft.voters import NO_VOTERS, ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.simulator.moments import Moments
from penstock.simulator.quorum.checkers import CHECKERS, Checker, Committed
from penstock.simulator.quorum.disk import Batch, Disk, Snapshot
from penstock.simulator.quorum.faults import Faults
from penstock.simulator.quorum.moments import MOMENTS
from penstock.simulator.quorum.network import MILLISECOND, ORDINARY_DELAY_MAX, SECOND, Clock, Network
from penstock.simulator.quorum.node import LISTENER, ClientRequest, Crashed, SimulatedNode
from penstock.simulator.story import StoryResult, Violation
from penstock.simulator.twins.trace import Field, Trace

FAULTS_LAST: Final = 6 * SECOND
HEALED_LAST: Final = 30 * SECOND

# Every one of these must happen in a campaign, or it did not test what it claims to test.
EVENTS: Final = (
    "elections",
    "commits",
    "acknowledged",
    "truncations",
    "snapshot installs",
    "process crashes",
    "crashes within a step",
    "power losses",
    "resignations",
    "voter changes",
    "symmetric partitions",
    "one-way partitions",
    "messages lost",
    "messages doubled",
    "messages delayed",
    "messages reordered",
    "clock jumps",
    "slow disks",
    "pauses",
    "disks lost",
    "kraft.version upgrades",
)

# The faults that must strike at each critical moment.
CRITICAL: Final = {
    "while it stands for election": ("kill", "power loss", "cut", "pause", "clock jump"),
    "between append and commit": ("kill", "power loss", "cut", "pause", "clock jump"),
    "between append and sync": ("kill", "power loss", "cut", "pause", "clock jump"),
    "while it downloads a snapshot": ("cut",),
    "while voters change": ("kill", "power loss", "cut"),
}


# Raised by a checker, or by the state machine itself.
FAILURES: Final = (Violation, QuorumBroken, AssertionError, ValueError)


class Waiting(NamedTuple):
    """What identifies a request until it is answered."""

    source: int
    incarnation: int
    request_id: int
    target: int
    request: Request


class RaftCluster:
    settings = RaftSettings(
        election_timeout_ms=150,
        fetch_timeout_ms=300,
        election_backoff_max_ms=150,
        request_timeout_ms=250,
        retry_backoff_ms=20,
        fetch_snapshot_max_bytes=64,
        fetch_max_wait_ms=100,
        death_grace_ms=50,
        silence_backoff_ms=150,
    )

    def __init__(
        self, seed: int, *, node_type: type[SimulatedNode] = SimulatedNode, faults: Sequence[str] | None = None
    ) -> None:
        """`faults`: only these, instead of those of `FAULTS` that the seed would choose."""
        self.seed = seed
        self.random = Random(f"raft {seed}")
        self.time = 0
        self.trace = Trace(lambda: self.time)
        self.events: Counter[str] = Counter()
        self.moments = Moments(MOMENTS)
        self.network = Network(self.random)
        self.nodes: dict[int, SimulatedNode] = {}
        committed = Committed()
        self.committed = committed
        self.checkers: list[Checker] = [checker(self.nodes, committed) for checker in CHECKERS]
        self._queue: list[tuple[int, int, int | None, Callable[[], None]]] = []
        self._sequence = 0
        self.clocks: dict[int, Clock] = {}
        self._wake_numbers: Counter[int] = Counter()
        self.paused_until: dict[int, int] = {}
        self.doomed: dict[int, tuple[str, bool]] = {}
        self.slow_disks: set[int] = set()
        # Learns of a new leader before anything that it sends arrives.
        self.on_election: Callable[[SimulatedNode], None] | None = None
        self._written: list[tuple[SimulatedNode, int, Batch]] = []
        self._last_arrivals: Counter[tuple[int, int]] = Counter()
        self._payloads = 0
        self.faulty = True
        self._build(node_type)
        self._faults = Faults(self, faults)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def _build(self, node_type: type[SimulatedNode]) -> None:
        random = self.random
        voter_count = random.choice([1, 3, 3, 3, 3, 5, 5, 7])
        spare_count = random.randint(0, 2)
        broker_count = random.randint(0, 1)
        self.kraft_version = random.choice([0, 1, 1])
        ids = range(1, 1 + voter_count + spare_count + broker_count)
        directories = {node_id: random.randbytes(16) for node_id in ids}
        voters = VoterSet.of(
            Voter(
                ReplicaKey(node_id, directories[node_id]) if self.kraft_version else ReplicaKey(node_id),
                (VoterEndpoint(LISTENER, f"node-{node_id}", 9093),),
            )
            for node_id in ids[:voter_count]
        )
        formatted = (KRaftVersionRecord(kraft_version=1), voters.to_record()) if self.kraft_version else ()
        settings = self.settings
        if self.kraft_version and random.random() < 0.3:
            settings = replace(settings, auto_join=True)
        for node_id in ids:
            is_voter = node_id in voters.node_ids
            bootstrap = tuple(
                QuorumNode(other if self.kraft_version == 0 else -1 - other, f"node-{other}", 9093)
                for other in (voters.node_ids if self.kraft_version == 0 else ids[: voter_count + spare_count])
            )
            self.nodes[node_id] = node_type(
                self,
                node_id,
                Disk(directories[node_id], bootstrap=formatted if is_voter else ()),
                settings=settings,
                static_voters=NO_VOTERS if self.kraft_version else voters,
                bootstrap=bootstrap,
                can_become_voter=node_id <= voter_count + spare_count,
            )
            self.clocks[node_id] = Clock(random.choice([97, 100, 100, 103]), random.randint(0, 100_000))

    def note(self, *fields: Field) -> None:
        self.trace.add(*fields)

    # -- time ------------------------------------------------------------------------------------------------------

    def at(self, delay: int, action: Callable[[], None], node_id: int | None = None) -> None:
        """`node_id`: a node whose pause delays the action."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.time + delay, self._sequence, node_id, action))

    def run(self, until: int, *, stop: Callable[[], bool] = lambda: False) -> bool:
        """Whether `stop` returned true before the time was over."""
        while self._queue and self._queue[0][0] <= until:
            self.time, _, node_id, action = heapq.heappop(self._queue)
            paused_until = self.paused_until.get(node_id, 0) if node_id is not None else 0
            if paused_until > self.time:
                self.at(paused_until - self.time, action, node_id)
                continue
            action()
            if stop():
                return True
        self.time = max(self.time, until)
        return stop()

    # -- the World of the nodes ------------------------------------------------------------------------------------

    def random_below(self, number: int) -> int:
        return self.random.randrange(number)

    def clock(self, node: SimulatedNode) -> int:
        return self.clocks[node.node_id].at(self.time)

    def wake(self, node: SimulatedNode, deadline: int | None) -> None:
        self._wake_numbers[node.node_id] += 1
        number = self._wake_numbers[node.node_id]
        if deadline is None:
            return

        def tick() -> None:
            if self._wake_numbers[node.node_id] == number:
                self.note("tick", node.node_id)
                node.tick()

        self.at(max(0, self.clocks[node.node_id].when(deadline) - self.time), tick, node.node_id)

    def transmit(self, node: SimulatedNode, send: Send) -> None:
        for checker in self.checkers:
            checker.sends(node, send)
        target = int(send.to.host.removeprefix("node-"))
        waiting = Waiting(node.node_id, node.incarnation, send.request_id, target, send.request)
        self.note("send", node.node_id, target, type(send.request).__name__, send.request_id)
        for delay in self._copies(node.node_id, target):
            self.at(delay, lambda: self._deliver(waiting), target)

    def _copies(self, source: int, target: int) -> list[int]:
        delays = self.network.delays(source, target)
        self.events["messages lost"] += not delays
        self.events["messages doubled"] += len(delays) > 1
        for delay in delays:
            arrival = self.time + delay
            self.events["messages delayed"] += delay > ORDINARY_DELAY_MAX
            self.events["messages reordered"] += arrival < self._last_arrivals[source, target]
            self._last_arrivals[source, target] = max(arrival, self._last_arrivals[source, target])
        return delays

    def _deliver(self, waiting: Waiting) -> None:
        target = self.nodes[waiting.target]
        if (waiting.source, waiting.target) in self.network.blocked:
            return
        if target.is_running:
            self.note("deliver", waiting.target, type(waiting.request).__name__, waiting.source, waiting.request_id)
            target.receive(waiting, waiting.request)
        elif self.random.random() < 0.7:
            self._back(waiting, lambda source: source.failed(waiting.request_id, is_dead=True))

    def give(self, node: SimulatedNode, token: object, answer: Answer) -> None:
        if isinstance(token, ClientRequest):
            self._answer_client(token, answer)
            return
        assert isinstance(token, Waiting)
        for checker in self.checkers:
            checker.answers(node, token.request, answer)
        self.note("answer", node.node_id, token.source, type(answer).__name__, answer.error.name, token.request_id)
        self._back(token, lambda source: source.answered(token.request_id, answer))

    def _back(self, waiting: Waiting, action: Callable[[SimulatedNode], None]) -> None:
        """To the process that sent the request, if it still exists."""
        source = self.nodes[waiting.source]

        def arrive() -> None:
            open_way = (waiting.target, waiting.source) not in self.network.blocked
            if open_way and source.is_running and source.incarnation == waiting.incarnation:
                action(source)

        for delay in self._copies(waiting.target, waiting.source):
            self.at(delay, arrive, waiting.source)

    def start_sync(self, node: SimulatedNode, done: Callable[[], None]) -> None:
        longest = 300 * MILLISECOND if node.node_id in self.slow_disks else 8 * MILLISECOND
        self.at(self.random.randint(500, longest), done, node.node_id)

    def may_crash(self, node: SimulatedNode, place: str) -> None:
        doom = self.doomed.get(node.node_id)
        if doom is None or doom[0] != place:
            return
        del self.doomed[node.node_id]
        self.events["crashes within a step"] += 1
        self.note("crash within a step", node.node_id, place)
        self.end(node, power=doom[1])
        raise Crashed

    def observe(self, node: SimulatedNode, event: object) -> None:
        match event:
            case Ready():
                self._count(node, event)
                for checker in self.checkers:
                    checker.stepped(node, event)
                self._acknowledge(node)
            case Batch():
                for checker in self.checkers:
                    checker.appended(node, event)
                leads = node.raft is not None and isinstance(node.raft.role, Leader)
                if leads and len(event.payloads) == 1 and isinstance(event.payloads[0], VotersRecord):
                    self.events["voter changes"] += 1
            case TruncateTo():
                self.events["truncations"] += 1
                self.note("truncate", node.node_id, event.offset)
                for checker in self.checkers:
                    checker.truncates(node, event)
            case Snapshot():
                self.events["snapshot installs"] += 1
                self.note("install", node.node_id, event.id.offset, event.id.epoch)
                for checker in self.checkers:
                    checker.installs(node, event)

    def _count(self, node: SimulatedNode, ready: Ready) -> None:
        assert node.raft is not None
        role = node.raft.role
        if ready.leader is not None:
            self.note("leader", node.node_id, ready.leader.leader_id, ready.leader.epoch, type(role).__name__)
            self.events["elections"] += isinstance(role, Leader)
            if isinstance(role, Leader) and self.on_election is not None:
                self.at(0, lambda told=self.on_election: told(node))  # type: ignore[misc]
            self.events["resignations"] += isinstance(role, Resigned)
        if ready.high_watermark is not None:
            self.events["commits"] += 1
            self.note("commit", node.node_id, ready.high_watermark)

    # -- the client ------------------------------------------------------------------------------------------------

    def leaders(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.raft is not None and node.raft.leading_epoch is not None]

    def _write(self) -> None:
        """To every node that considers itself the leader: there may be two at a time."""
        for node in self.leaders():
            self._payloads += 1
            assert node.raft is not None
            epoch = node.raft.epoch
            incarnation = node.incarnation
            batch = node.append(f"record {self._payloads}")
            if batch is not None:
                self.note("write", node.node_id, batch.base_offset, epoch)
                self._written.append((node, incarnation, batch))
        if self.faulty:
            self.at(self.random.randint(10, 120) * MILLISECOND, self._write)

    def _acknowledge(self, node: SimulatedNode) -> None:
        """The node that a client wrote to acknowledges the write, while it leads in the same epoch."""
        raft = node.raft
        if raft is None or not self._written:
            return
        kept: list[tuple[SimulatedNode, int, Batch]] = []
        for writer, incarnation, batch in self._written:
            if writer is not node:
                kept.append((writer, incarnation, batch))
            elif incarnation == node.incarnation and raft.leading_epoch == batch.epoch:
                if raft.high_watermark >= batch.next_offset:
                    self.events["acknowledged"] += 1
                    for checker in self.checkers:
                        checker.acknowledged(batch)
                else:
                    kept.append((writer, incarnation, batch))
        self._written = kept

    def _answer_client(self, token: ClientRequest, answer: Answer) -> None:
        assert isinstance(answer, VoterChangeAnswer)
        self.note("voters changed", type(token.request).__name__, answer.error.name)

    # -- starts and ends -------------------------------------------------------------------------------------------

    def end(self, node: SimulatedNode, *, power: bool) -> None:
        self.moments.strike("power loss" if power else "kill", node)
        node.stop()
        self.paused_until.pop(node.node_id, None)
        if power:
            self.events["power losses"] += 1
            node.disk.lose_power(self.random)
        self.note("power loss" if power else "crash", node.node_id)
        self.at(self.random.randint(20, 800) * MILLISECOND, lambda: self.start(node))

    def start(self, node: SimulatedNode) -> None:
        if node.is_running:
            return
        self.doomed.pop(node.node_id, None)
        for checker in self.checkers:
            checker.restarted(node)
        self.note("start", node.node_id)
        node.start()

    # -- a run -----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """The whole story. Raises Violation."""
        for node in self.nodes.values():
            self.at(self.random.randint(0, 100) * MILLISECOND, lambda node=node: self.start(node))  # type: ignore[misc]
        self.at(200 * MILLISECOND, self._write)
        self.at(self.random.randint(300, 1500) * MILLISECOND, self._faults.strike)
        self.run(FAULTS_LAST)
        self._heal()
        self._check_progress()
        for checker in self.checkers:
            checker.ended()

    def _heal(self) -> None:
        self.faulty = False
        self.note("heal")
        self.network.heal()
        self.doomed.clear()
        self.paused_until.clear()
        self.slow_disks.clear()
        for node in self.nodes.values():
            if not node.is_running:
                self.start(node)

    def _check_progress(self) -> None:
        """There is a leader, and what it writes from now on is committed everywhere."""
        final: list[Batch] = []

        def write() -> None:
            for node in self.leaders():
                self._payloads += 1
                batch = node.append(f"record {self._payloads}")
                if batch is not None:
                    final.append(batch)
            self.at(300 * MILLISECOND, write)

        def caught_up() -> bool:
            return any(
                self.committed.fingerprints.get(batch.next_offset) == batch.fingerprint
                and all(
                    node.raft is not None and node.raft.high_watermark >= batch.next_offset
                    for node in self.nodes.values()
                )
                for batch in final[-10:]
            )

        for node in self.nodes.values():
            if node.is_running:
                self.at(0, node.tick, node.node_id)
        self.at(100 * MILLISECOND, write)
        if not self.run(self.time + HEALED_LAST, stop=caught_up):
            states = {node.node_id: repr(node.raft.role) if node.raft else "down" for node in self.nodes.values()}
            raise Violation("EventualProgress", f"nothing is committed everywhere after all has healed: {states}")


def play(
    seed: int, *, node_type: type[SimulatedNode] = SimulatedNode, faults: Sequence[str] | None = None
) -> StoryResult:
    cluster = RaftCluster(seed, node_type=node_type, faults=faults)
    violation: str | None = None
    try:
        cluster.play()
    except FAILURES as error:
        violation = str(error) if isinstance(error, Violation) else repr(error)
    recent = [" ".join(map(str, event)) for event in cluster.trace.recent]
    critical = frozenset(cluster.moments.pairs)
    return StoryResult(violation, cluster.events, cluster.trace.digest(), recent, critical)
