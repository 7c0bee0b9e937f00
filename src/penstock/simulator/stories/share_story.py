"""Story: members of a share group work on a partition while leaders, coordinators and members come and go.

Laws:

- `AcknowledgedIsFinal`: a record whose acceptance or rejection was confirmed is not delivered again, neither by that
  leader nor by a later one.
- `OneOwner`: in one leader epoch, no member gets a record that another member holds.
- `CountsNeverFall`: in one leader epoch each delivery of a record counts one more; that of a new leader counts more
  than what was persisted.
- `DeliveryLimit`: a record is delivered at most as often as the limit says, and once more for each change of leader and
  for each write about it that may not have been persisted.
- `NothingSkipped`: the start offset passes only records that are accepted, rejected or archived, or deleted.
- `StateEqualsLog`: a coordinator that loads its log knows what the running one knows.
- `AllSettledInTheEnd`: when nothing fails any more, every record is settled.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from typing import Final

from penstock.broker.shares.persister import PersistedState
from penstock.model.errors import ErrorCode, KafkaError
from penstock.shares.states import Acknowledgement, AcknowledgeType, AcquireMode, DeliverySettings
from penstock.simulator.stories.share_world import KEY, LOCK_MS, CoordinatorTwin, Leader, Log, Timeline
from penstock.simulator.story import StoryResult, Violation

MEMBERS: Final = ("ada", "ben", "cleo", "dan")
SECONDS: Final = 30
HEALED_S: Final = 40
STEP_MS: Final = 25
EVENTS = (
    "accepted",
    "released",
    "rejected",
    "renewed",
    "archived at the limit",
    "dead letters",
    "locks ended",
    "sessions ended",
    "members that died",
    "leader changes",
    "deliveries by former leaders",
    "coordinator crashes",
    "lost answers",
    "failed writes",
    "records deleted",
    "batches compacted away",
)


class Member:
    def __init__(self, name: str) -> None:
        self.name = name
        self.leader: Leader | None = None
        self.held: deque[tuple[int, int]] = deque()  # ranges to work on


class ShareStory:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/shares")
        self.events: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=60)
        self.trace = hashlib.sha256()
        self.settings = DeliverySettings(
            record_lock_duration_ms=LOCK_MS,
            delivery_count_limit=self.chance.choice((2, 3, 5)),
            max_record_locks=self.chance.choice((10, 40)),
            has_dead_letter_queue=self.chance.random() < 0.5,
        )
        self.timeline = Timeline()
        self.log = Log()
        self.coordinator = CoordinatorTwin(self.timeline, self.chance, self.events)
        self.members = [Member(name) for name in MEMBERS]
        self.epoch = 0
        self.leaders: list[Leader] = []  # the last one is the leader, the others do not know that yet
        self.all_leaders: list[Leader] = []
        self.checked: dict[int, int] = {}  # by epoch: the start offset that was checked last
        # What the laws are about: of each record.
        self.final_since: dict[int, int] = {}  # the epoch of the leader that confirmed it
        self.may_be_final: set[int] = set()  # a member tried
        self.deliveries: Counter[int] = Counter()
        self.counts: dict[tuple[int, int], int] = {}  # by epoch and offset
        self.holders: dict[tuple[int, int], tuple[str, int]] = {}  # by epoch and offset: who, and until when
        self.persisted: dict[int, dict[int, int]] = {}  # counts that a leader found, by epoch

    def note(self, text: str) -> None:
        line = f"{self.timeline.now_ms} {text}"
        self.recent.append(line)
        self.trace.update(line.encode())

    # -- the play -----------------------------------------------------------------------------------------------------

    def tell(self) -> StoryResult:
        violation = None
        try:
            self.change_leader()
            for step in range(SECONDS * 1000 // STEP_MS):
                self.misfortune()
                self.step(step)
            self.heal()
            for step in range(HEALED_S * 1000 // STEP_MS):
                if self.is_all_settled():
                    break
                self.step(step)
            else:
                left = [
                    offset for offset in range(self.log.end) if self.log.exists(offset) and not self.settled(offset)
                ]
                raise Violation("AllSettledInTheEnd", f"{left[:10]} of {self.log.end} are not settled")
        except Violation as broken:
            violation = str(broken)
        return StoryResult(violation, self.events, self.trace.hexdigest(), tuple(self.recent))

    def step(self, step: int) -> None:
        self.timeline.run(
            (step + 1) * STEP_MS if self.timeline.now_ms < SECONDS * 1000 else self.timeline.now_ms + STEP_MS
        )
        for leader in self.leaders:
            leader.tick()
        for member in self.members:
            if self.chance.random() < 0.3:
                self.fetch(member)
            if member.held and self.chance.random() < 0.3:
                self.work(member)
        self.check_start()

    def heal(self) -> None:
        self.note("healed")
        self.coordinator.is_faulty = False
        del self.leaders[:-1]
        if self.leaders[-1].is_fenced:
            self.change_leader()
            del self.leaders[:-1]
        for member in self.members:
            member.leader = self.leaders[-1]
            member.held.clear()

    @property
    def is_healed(self) -> bool:
        return not self.coordinator.is_faulty

    def misfortune(self) -> None:
        chance = self.chance.random
        if chance() < 0.15 and self.log.end < 400:
            self.log.append(self.chance.randint(1, 8))
        if chance() < 0.004:
            self.change_leader()
            self.events["leader changes"] += 1
        if chance() < 0.01:
            self.coordinator.crash()
            self.events["coordinator crashes"] += 1
            self.note("another coordinator")
        if len(self.leaders) > 1 and (chance() < 0.01 or self.leaders[0].is_fenced):
            self.leaders.pop(0)  # it has noticed
        if chance() < 0.003 and self.log.batches:
            self.log.start = max(self.log.start, self.chance.choice(self.log.batches[:3]).last + 1)
            self.events["records deleted"] += 1
        if chance() < 0.004 and len(self.log.batches) > 3:
            self.note(f"compacted {self.log.remove(self.chance.randrange(len(self.log.batches) - 1))}")
            self.events["batches compacted away"] += 1
        for member in self.members:
            if chance() < 0.004:
                self.lose(member, disconnects=chance() < 0.5)

    def change_leader(self) -> None:
        self.epoch += 1
        self.note(f"leader epoch {self.epoch}")
        leader = Leader(self.epoch, self.timeline, self.coordinator, self.settings, self.loaded, self.events)
        self.leaders.append(leader)
        self.all_leaders.append(leader)

    def lose(self, member: Member, *, disconnects: bool) -> None:
        """The member forgets everything; the leader learns of it if the connection is closed."""
        member.held.clear()
        self.events["members that died"] += 1
        leader = member.leader
        if disconnects and leader is not None and leader.core is not None:
            self.note(f"{member.name} leaves {leader.epoch}")
            self.events["sessions ended"] += 1
            write = leader.core.release(member.name)
            for batch in write.batches if write is not None else ():
                self.release(leader, batch.first, batch.last)
            leader.persist(write)

    def loaded(self, leader: Leader, state: PersistedState) -> None:
        self.note(f"{leader.epoch} has loaded {state}")
        self.persisted[leader.epoch] = {
            offset: batch.delivery_count for batch in state.batches for offset in range(batch.first, batch.last + 1)
        }
        running, loaded = self.coordinator.shard.states[KEY], self.coordinator.loaded().states[KEY]
        if running != loaded:
            raise Violation("StateEqualsLog", f"{running} is known, the log says {loaded}")

    # -- members ------------------------------------------------------------------------------------------------------

    def fetch(self, member: Member) -> None:
        if member.leader not in self.leaders or self.chance.random() < 0.1:
            member.leader = self.chance.choice(self.leaders) if self.chance.random() < 0.3 else self.leaders[-1]
        leader = member.leader
        core = leader.core
        if core is None or leader.is_fenced:
            return
        core.log_starts_at(self.log.start)
        offset = core.next_fetch_offset
        batches = self.log.read(offset, self.chance.randint(1, 4))
        if not batches or not core.can_acquire:
            return
        acquired = core.acquire(
            member.name,
            offset,
            batches,
            self.timeline.now_ms,
            max_records=self.chance.randint(1, 20),
            batch_size=self.chance.choice((1, 5, 100)),
            mode=self.chance.choice(list(AcquireMode)),
        )
        for first, last, count in acquired:
            self.note(f"{member.name} gets {first}-{last} x{count} of {leader.epoch}")
            if leader is not self.leaders[-1]:
                self.events["deliveries by former leaders"] += 1
            for each in range(first, last + 1):
                self.check_delivery(leader, member, each, count)
            member.held.append((first, last))

    def work(self, member: Member) -> None:
        leader = member.leader
        first, last = member.held.popleft()
        if leader is None or leader.core is None or leader not in self.leaders:
            return
        kinds = [AcknowledgeType.ACCEPT]
        if not self.is_healed:
            kinds = self.chance.choices(
                (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW),
                (12, 5, 2, 1),
                k=1 if self.chance.random() < 0.7 else last - first + 1,
            )
        try:
            write = leader.core.acknowledge(
                member.name, [Acknowledgement(first, last, tuple(kinds))], self.timeline.now_ms
            )
        except KafkaError:
            return  # too late: the lock has ended
        by_offset = {
            offset: kinds[0] if len(kinds) == 1 else kinds[offset - first] for offset in range(first, last + 1)
        }
        for offset, kind in by_offset.items():
            self.events[f"{kind.name.lower()}{'d' if kind.name.endswith('E') else 'ed'}"] += 1
            if kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                self.may_be_final.add(offset)
            elif kind is AcknowledgeType.RELEASE:
                self.release(leader, offset, offset)
            elif (leader.epoch, offset) in self.holders:
                self.holders[leader.epoch, offset] = (member.name, self.timeline.now_ms + LOCK_MS)
                member.held.append((offset, offset))

        def answered(code: ErrorCode) -> None:
            self.note(f"{member.name} acknowledged {first}-{last} to {leader.epoch}: {code.name}")
            for offset, kind in by_offset.items():
                if code is ErrorCode.NONE and kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                    self.final_since.setdefault(offset, leader.epoch)

        leader.persist(write, answered)

    def release(self, leader: Leader, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            self.events["released"] += 1
            self.holders.pop((leader.epoch, offset), None)

    # -- laws ---------------------------------------------------------------------------------------------------------

    def check_delivery(self, leader: Leader, member: Member, offset: int, count: int) -> None:
        epoch, limit = leader.epoch, self.settings.delivery_count_limit
        what = f"{offset} x{count} to {member.name} in epoch {epoch}"
        if self.final_since.get(offset, epoch + 1) <= epoch:
            raise Violation("AcknowledgedIsFinal", f"{what}, settled in epoch {self.final_since[offset]}")
        holder = self.holders.get((epoch, offset))
        if holder is not None and holder[1] > self.timeline.now_ms:
            raise Violation("OneOwner", f"{what}, which {holder[0]} holds until {holder[1]}")
        self.holders[epoch, offset] = (member.name, self.timeline.now_ms + LOCK_MS)
        before = self.counts.get((epoch, offset), self.persisted[epoch].get(offset, 0))
        if count <= before:
            raise Violation("CountsNeverFall", f"{what} after {before}")
        self.counts[epoch, offset] = count
        self.deliveries[offset] += 1
        unconfirmed = sum(former.unconfirmed[offset] for former in self.all_leaders)
        if count > limit or self.deliveries[offset] > limit + self.epoch - 1 + unconfirmed:
            raise Violation("DeliveryLimit", f"{what}: {self.deliveries[offset]} deliveries, the limit is {limit}")
        if count == limit:
            self.may_be_final.add(offset)
            self.events["archived at the limit"] += 1

    def settled(self, offset: int) -> bool:
        return offset in self.may_be_final or not self.log.exists(offset)

    def check_start(self) -> None:
        for leader in self.leaders:
            if leader.core is not None:
                start = leader.core.start_offset
                checked = self.checked.get(leader.epoch, 0)
                self.checked[leader.epoch] = start
                for offset in range(checked, start):
                    if not self.settled(offset):
                        raise Violation("NothingSkipped", f"epoch {leader.epoch} starts at {start}, after {offset}")

    def is_all_settled(self) -> bool:
        core = self.leaders[-1].core
        return core is not None and core.start_offset >= self.log.batches[-1].last + 1


def play(seed: int) -> StoryResult:
    return ShareStory(seed).tell()
