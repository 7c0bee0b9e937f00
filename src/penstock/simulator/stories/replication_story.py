"""Story: one partition, three to five replicas, the real controller; the pure state machines alone.

    outcome = play(seed)
    assert outcome.violation is None

Everything between the machines takes time and may get lost: a follower's fetch, the leader's answer, a proposal to the
controller, its answer, the metadata. Brokers are killed, stopped, lose their power or their disk, lag, and are fenced
without reason. After every step the checkers see the whole state at once, as no node can:

- `OneLeaderPerEpoch`.
- `MonotonicHighWatermark`: of each leader.
- `CommittedIsInSync`: what a leader considers committed is on every replica that could be elected next.
- `CommittedStays`: a consumer may have read what was ever below a leader's high watermark: every leader has it.
- `AcknowledgedStays`: the same for what was acknowledged to a producer.
- `CommittedPrefix`: two replicas have the same records below what both consider committed.
- `LogMatching`: for an offset and an epoch there is only one record, and it follows the same one everywhere.

The design's durability table says what may be expected of a power loss. With `flush.messages=1` all replicas may lose
power at once. Without it, all but one of those in sync or eligible may, and that one stays up until the others are
back.

    python -m penstock.simulator --story partition --seeds 1000
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.controller.elections import Election
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_partition import BrokerState
from penstock.replication.partition import LeaderState, Proposal
from penstock.simulator.moments import Moments
from penstock.simulator.stories.controller_world import World
from penstock.simulator.stories.replicated_partition import LAG_MAX_MS, Entry, Fetch, News, Replica
from penstock.simulator.story import StoryResult, Violation

TOPIC = "t"
STEPS = 400
SETTLING_ROUNDS = 200

EVENTS = (
    "appended", "committed", "acknowledged", "refused: not enough replicas", "unsafe", "elections", "elected again",
    "truncations", "fetched", "messages lost", "messages delayed", "messages reordered", "epoch fenced", "ISR joins",
    "ISR leaves", "ISR changes refused", "process crashes", "clean stops", "power losses", "disks lost",
    "fenced for nothing", "stories without ELR",
)  # fmt: skip


CRITICAL = {
    "between append and replication": ("kill", "power loss", "stop", "lost disk", "fenced"),
    "between append and sync": ("kill", "power loss", "stop", "lost disk", "fenced"),
    "while the ISR changes": ("kill", "power loss", "stop", "lost disk", "fenced"),
    "while a fetch is under way": ("kill", "power loss", "stop", "lost disk", "fenced"),
    "while a replica catches up": ("kill", "power loss", "stop", "lost disk", "fenced"),
    "before it has heard of another leader": ("kill", "power loss", "stop"),
}
MOMENTS: dict[str, Callable[[Replica], bool]] = {
    "between append and replication": lambda replica: (
        replica.leader is not None and len(replica.log) > replica.leader.high_watermark
    ),
    "between append and sync": lambda replica: replica.synced < len(replica.log),
    "while the ISR changes": lambda replica: replica.leader is not None and replica.leader.pending is not None,
    "while a fetch is under way": lambda replica: replica.has_fetch_in_flight,
    "while a replica catches up": lambda replica: replica.id not in replica.story.partition.isr,
    "before it has heard of another leader": lambda replica: (
        replica.leader is not None and replica.leader.leader_epoch < replica.story.partition.leader_epoch
    ),
}


class Message(NamedTuple):
    """A message in flight: what it does when it arrives, or when it does not."""

    deliver: Callable[[], None]
    lost: Callable[[], None]
    sent_ms: int


class PartitionStory:
    def __init__(self, seed: int, replica_type: type[Replica] = Replica) -> None:
        self.chance = random.Random(f"{seed}/replication")
        self.count = self.chance.choice((3, 3, 3, 4, 5))
        self.min_isr = self.chance.choice((1, 2, 2, 2, 3))
        self.flushes = self.chance.random() < 0.3
        self.loses_power = self.flushes or self.chance.random() < 0.6
        self.now_ms = 0
        self.events: Counter[str] = Counter()
        self.moments: Moments[Replica] = Moments(MOMENTS)
        elr = random.Random(f"{seed}/elr").random() < 0.75
        self.events["stories without ELR"] += not elr
        self.world = World(brokers=0, elr=elr)
        self.replicas = {broker_id: replica_type(self, broker_id) for broker_id in range(1, self.count + 1)}
        self.news: list[News] = []
        self.under_way: list[Message] = []
        self.next_value = 0
        self.acknowledged: set[int] = set()
        self.committed: dict[int, int] = {}  # offsets that were below a leader's high watermark, and their values
        self._high_watermarks: dict[tuple[int, int], int] = {}
        self._leader_of: dict[int, int] = {}
        self._written: dict[tuple[int, int], tuple[int, Entry | None]] = {}
        self._hash = hashlib.sha256()
        for replica in self.replicas.values():
            self.world.register(replica.id, incarnation=1)
            self.world.unfence(replica.id)
        self.world.assign(TOPIC, list(self.replicas), min_insync_replicas=str(self.min_isr))
        self.announce()
        for replica in self.replicas.values():
            replica.start(clean=True)
            self.world.unfence(replica.id)
            self.announce()

    # -- messages and the controller --------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        return self.world.partition(TOPIC)

    def announce(self) -> None:
        """The controller has committed a change; brokers receive it one by one."""
        brokers = self.world.image.brokers
        registered = {broker.broker_id: broker.epoch for broker in brokers.values() if broker.active}
        news = News(self.partition, registered)
        if not self.news or self.news[-1] != news:
            self.news.append(news)

    def send(self, deliver: Callable[[], None], lost: Callable[[], None]) -> None:
        self.under_way.append(Message(deliver, lost, self.now_ms))

    def deliver(self, fetch: Fetch) -> None:
        leader = self.replicas.get(fetch.leader)
        follower = self.replicas[fetch.follower]
        if leader is None or not leader.is_up:
            follower.lost(fetch)
            return
        answer = leader.handle_fetch(fetch)
        self.send(lambda: follower.handle_answer(answer), lambda: follower.lost(fetch))

    def alter(self, replica: Replica, incarnation: int, proposal: Proposal) -> None:
        """The controller receives a proposal."""
        if replica.incarnation == incarnation and replica.is_up:
            answer = self.world.alter(
                TOPIC,
                (),
                broker_id=replica.id,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.isr
                ],
            )
            self.announce()
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self.events["ISR joins"] += len(proposal.added)
                self.events["ISR leaves"] += len(proposal.removed)
            else:
                self.events["ISR changes refused"] += 1
            self.send(
                lambda: self.altered(replica, incarnation, proposal, code, answer.isr, answer.partition_epoch),
                lambda: self.propose_again(replica, incarnation, proposal),
            )

    def altered(
        self,
        replica: Replica,
        incarnation: int,
        proposal: Proposal,
        code: ErrorCode,
        isr: list[int],
        partition_epoch: int,
    ) -> None:
        leader = replica.leader
        if replica.incarnation != incarnation or leader is None or leader.leader_epoch != proposal.leader_epoch:
            return
        if code is ErrorCode.NONE:
            leader.accepted(proposal, isr, partition_epoch, self.now_ms)
            replica.answer_waiting()
        elif leader.refused(proposal, code):
            self.propose_again(replica, incarnation, proposal)

    def propose_again(self, replica: Replica, incarnation: int, proposal: Proposal) -> None:
        if replica.incarnation == incarnation and replica.leader is not None and replica.leader.pending is proposal:
            replica.propose(proposal)

    # -- the story --------------------------------------------------------------------------------------------------

    def tell(self, steps: int = STEPS) -> StoryResult:
        try:
            for _ in range(steps):
                self.now_ms += self.chance.choice((0, 1, 5, 20, 200))
                self.step()
                self.check()
            self.settle()
        except Violation as violation:
            return self.outcome(str(violation))
        return self.outcome(None)

    def outcome(self, violation: str | None) -> StoryResult:
        return StoryResult(violation, self.events, self._hash.hexdigest(), critical=frozenset(self.moments.pairs))

    def step(self) -> None:
        what = self.chance.choices(
            (self.message, self.hear, self.produce, self.fetch, self.flush, self.tick, self.misfortune, self.mend),
            (10, 6, 6, 8, 2, 2, 0.7, 1.5),
        )[0]
        what()
        self._hash.update(repr((what.__name__, self.now_ms, self.partition, len(self.under_way))).encode())

    def message(self) -> None:
        """A message in flight arrives, in any order; or never."""
        if self.under_way:
            newest = self.chance.random() < 0.7  # so that the others take long
            number = -1 if newest else self.chance.randrange(len(self.under_way))
            self.events["messages reordered"] += len(self.under_way) > 1 and number != 0
            message = self.under_way.pop(number)
            self.events["messages delayed"] += self.now_ms - message.sent_ms > LAG_MAX_MS
            if self.chance.random() < 0.05:
                self.events["messages lost"] += 1
                message.lost()
            else:
                message.deliver()

    def up(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.is_up]

    def hear(self) -> None:
        behind = [replica for replica in self.up() if replica.seen < len(self.news) - 1]
        if behind:
            replica = self.chance.choice(behind)
            last = len(self.news) - 1
            replica.seen = replica.seen + 1 if self.chance.random() < 0.7 else last  # several changes may arrive as one
            replica.take_part()

    def produce(self) -> None:
        leaders = [replica for replica in self.up() if replica.leader is not None]
        if leaders:
            value = self.next_value
            self.next_value += 1

            def acknowledge() -> None:
                self.events["acknowledged"] += 1
                self.acknowledged.add(value)

            self.chance.choice(leaders).produce(value, acknowledge)

    def fetch(self) -> None:
        idle = [
            replica
            for replica in self.up()
            if replica.follower is not None and replica.follower.leader_id >= 0 and not replica.has_fetch_in_flight
        ]
        if idle:
            self.chance.choice(idle).fetch()

    def flush(self) -> None:
        if not self.up():
            return
        replica = self.chance.choice(self.up())
        replica.flush()
        if replica.leader is not None:
            replica.leader.flushed_to(replica.synced, self.now_ms)
            replica.answer_waiting()

    def tick(self) -> None:
        for replica in self.up():
            if replica.leader is not None:
                replica.leader.tick(self.now_ms)
                replica.answer_waiting()
                proposal = replica.leader.shrink(self.now_ms)
                if proposal is not None:
                    replica.propose(proposal)

    # -- faults -----------------------------------------------------------------------------------------------------

    def must_stay(self, replica: Replica) -> bool:
        """While others have lost records, the last one that has them all stays up, and is seen to be up."""
        if not any(each.is_damaged for each in self.replicas.values()):
            return False
        return not self.intact_besides(replica)

    def intact_besides(self, replica: Replica) -> bool:
        partition = self.partition
        return any(
            each.is_up and not each.is_damaged and each is not replica
            for each in self.replicas.values()
            if each.id in partition.isr or each.id in partition.elr
        )

    def misfortune(self) -> None:
        if not self.up():
            return
        replica = self.chance.choice(self.up())
        what = self.chance.random()
        if self.must_stay(replica):
            return
        if what < 0.2:
            self.moments.strike("fenced", replica)
            self.fence(replica)
            self.events["fenced for nothing"] += 1
            if self.chance.random() < 0.3:
                self.unfence(replica)
        elif what < 0.45:
            self.events["process crashes"] += 1
            self.moments.strike("kill", replica)
            replica.end()
            replica.stopped_cleanly = False
        elif what < 0.6:
            self.events["clean stops"] += 1
            self.moments.strike("stop", replica)
            replica.flush()
            replica.end()
            replica.stopped_cleanly = True
        elif self.loses_power and (self.flushes or self.intact_besides(replica)):
            loses_disk = what < 0.75 and self.intact_besides(replica)
            self.moments.strike("lost disk" if loses_disk else "power loss", replica)
            replica.end()
            replica.stopped_cleanly = False
            if loses_disk:
                self.events["disks lost"] += 1
                replica.disk += 1
                replica.cut(0)
                replica.is_damaged = True
            else:
                self.events["power losses"] += 1
                replica.cut(self.chance.randint(replica.synced, len(replica.log)))
                replica.is_damaged |= not self.flushes
        if not replica.is_up:
            then = self.chance.random()
            if then < 0.5:
                self.fence(replica)
            elif then < 0.8:  # so quickly that no broker notices
                replica.start(clean=replica.stopped_cleanly)
                self.unfence(replica)

    def unfence(self, replica: Replica) -> None:
        if self.world.image.brokers[replica.id].fenced:
            self.world.unfence(replica.id)
            self.announce()

    def fence(self, replica: Replica) -> None:
        broker = self.world.image.brokers.get(replica.id)
        if broker is not None and not broker.fenced:
            self.world.fence(replica.id)
            self.announce()

    def mend(self) -> None:
        replica = self.chance.choice(list(self.replicas.values()))
        if not replica.is_up:
            replica.start(clean=replica.stopped_cleanly)
        elif self.world.image.brokers[replica.id].fenced:
            self.unfence(replica)
        elif self.chance.random() < 0.2:
            self.world.elect(Election.PREFERRED, (TOPIC, 0))
            self.announce()

    def settle(self) -> None:
        """All brokers are back, and no message is lost any more: in the end all have everything."""
        for _ in range(SETTLING_ROUNDS):
            self.now_ms += 50
            for replica in self.replicas.values():
                if not replica.is_up:
                    replica.start(clean=replica.stopped_cleanly)
                self.unfence(replica)
                while replica.seen < len(self.news) - 1:
                    replica.seen += 1
                    replica.take_part()
                if self.flushes:
                    replica.flush()
                    if replica.leader is not None:
                        replica.leader.flushed_to(replica.synced, self.now_ms)
                        replica.answer_waiting()
            arriving, self.under_way = self.under_way, []
            for message in arriving:
                message.deliver()
            self.tick()
            self.check()
            logs = [replica.log for replica in self.replicas.values()]
            marks = {replica.high_watermark for replica in self.replicas.values()}
            whole = len(self.partition.isr) == self.count and all(log == logs[0] for log in logs)
            if whole and marks == {len(logs[0])}:
                return
            for _ in self.replicas:
                self.fetch()
        raise Violation("Convergence", f"{self.partition}, logs of {[len(log) for log in logs]}, committed {marks}")

    # -- the checkers -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        for replica in self.replicas.values():
            leader = replica.leader
            if leader is None:
                continue
            former = self._leader_of.setdefault(leader.leader_epoch, replica.id)
            if former != replica.id:
                raise Violation("OneLeaderPerEpoch", f"{former} and {replica.id} in epoch {leader.leader_epoch}")
            key = (replica.incarnation, leader.leader_epoch)
            before = self._high_watermarks.get(key, 0)
            if leader.high_watermark < before:
                raise Violation("MonotonicHighWatermark", f"{replica.id} from {before} to {leader.high_watermark}")
            self._high_watermarks[key] = leader.high_watermark
            if leader.leader_epoch == self.partition.leader_epoch:
                self.check_leader(replica, leader)
        self.check_logs()

    def check_leader(self, replica: Replica, leader: LeaderState) -> None:
        log = replica.log
        values = {entry.value for entry in log}
        for offset, value in self.committed.items():
            if offset >= len(log) or log[offset].value != value:
                raise Violation("CommittedStays", f"{value} at {offset} is not in the log of leader {replica.id}")
        lost = self.acknowledged - values
        if lost:
            raise Violation("AcknowledgedStays", f"{sorted(lost)[:5]} are not in the log of leader {replica.id}")
        committed = log[: leader.high_watermark]
        for broker_id in {*self.partition.isr, *self.partition.elr}:
            member = self.replicas[broker_id]
            if not member.is_damaged and member.log[: len(committed)] != committed:
                raise Violation(
                    "CommittedIsInSync",
                    f"leader {replica.id} takes {len(committed)} for committed, {broker_id} has {len(member.log)}",
                )
        for offset in range(len(self.committed), leader.high_watermark):
            self.events["committed"] += 1
            self.committed[offset] = log[offset].value

    def check_logs(self) -> None:
        known = [replica for replica in self.replicas.values() if replica.is_up]
        partition = self.partition
        for replica in known:
            if replica.is_damaged and replica.id in partition.isr:
                replica.is_damaged = False
        for one, other in itertools.combinations(known, 2):
            end = min(one.high_watermark, other.high_watermark)
            if one.log[:end] != other.log[:end]:
                raise Violation("CommittedPrefix", f"{one.id} and {other.id} differ below {end}")

    def check_appended(self, replica: Replica) -> None:
        log = replica.log
        offset, entry = len(log) - 1, log[-1]
        held = (entry.value, log[-2] if offset else None)
        if self._written.setdefault((offset, entry.epoch), held) != held:
            raise Violation("LogMatching", f"{replica.id} has another log than others up to {offset}, {entry}")


def play(seed: int, replica_type: type[Replica] = Replica) -> StoryResult:
    return PartitionStory(seed, replica_type).tell()
