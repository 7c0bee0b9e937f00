"""Producers, coordinators and partitions in a room where everything may be lost, late, or twice.

A `World` has one coordinator partition, whose leaders come and go and lose what is not committed; partitions with what
they remember of producers; and producers that are replaced by others with the same transactional id. Old coordinators
do not know that they have been replaced and go on sending markers. What must hold, whatever happens:

- OneOutcome: all records of a transaction are committed, or all are aborted, as the producer's response says.
- OwnMarkers: from transaction version 2 on, no transaction is ended by the marker of another one.
- NothingHangs: when the storm is over, no transaction is open in any partition.
- FencedForGood: once a producer has taken over a transactional id, its predecessors write nothing any more.
- EpochsGrow: the pair that acts for a transactional id never goes back.
- CoordinatorEpochsGrow: in a partition, no marker of an older coordinator follows one of a newer.
- ReplayIsState: a coordinator that loads the log has the state of the one that wrote it.

A failure prints its seed: `pytest tests/properties/test_transaction_properties.py -k "<seed>-"`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.coordinator.decision import Decision
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.codec import decode
from penstock.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from penstock.replication.producers import ProducerStates
from penstock.transactions.markers import Markers
from penstock.transactions.records import record_of, transaction_of
from penstock.transactions.state import MAX_EPOCH, NOBODY, Identity, Status
from penstock.transactions.state import Transaction as Known
from transaction_world import Coordinator, Log

STEPS = 1000
SEEDS = range(20)


def batch(identity: Identity, sequence: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(0, 100, -1, 2, 0, attributes, 0, 0, 0, identity.producer_id, identity.epoch, sequence, 1)


class Partition:
    """Its log, as far as transactions are concerned, and what becomes of their records."""

    def __init__(self, name: TopicPartition, world: World) -> None:
        self.name = name
        self.world = world
        self.states = ProducerStates(name)
        self.end = 0
        self.open: dict[int, list[tuple[int, Transaction]]] = {}
        self.coordinator_epochs: dict[int, int] = {}

    def append(self, producer: Producer, transaction: Transaction, header: BatchHeader) -> None:
        if self.states.check(header) is not None:
            return
        assert not producer.replaced or producer.two_phase, f"FencedForGood: {producer.name} writes to {self.name}"
        self.states.append(header, self.end, self.world.now)
        self.end += 1
        self.open.setdefault(header.producer_id, []).append((header.producer_epoch, transaction))

    def mark(self, sent: Markers) -> ErrorCode:
        identity = Identity(sent.producer_id, sent.producer_epoch)
        header = batch(identity, -1, CONTROL | TRANSACTIONAL)
        try:
            self.states.check_marker(header, sent.coordinator_epoch, sent.transaction_version)
        except KafkaError as refused:
            return refused.code
        assert self.coordinator_epochs.get(sent.producer_id, 0) <= sent.coordinator_epoch, "CoordinatorEpochsGrow"
        self.coordinator_epochs[sent.producer_id] = sent.coordinator_epoch
        self.states.append_marker(
            header, self.end, self.world.now, aborted=not sent.committed, coordinator_epoch=sent.coordinator_epoch
        )
        self.end += 1
        for epoch, transaction in self.open.pop(sent.producer_id, ()):
            assert sent.transaction_version < 2 or epoch == sent.producer_epoch - 1, "OwnMarkers"
            transaction.decided(sent.committed)
        return ErrorCode.NONE


class Transaction:
    """One transaction as its producer sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome: bool | None = None

    def decided(self, committed: bool) -> None:
        assert self.outcome in (None, committed), f"OneOutcome: {self.name} is {self.outcome} and {committed}"
        self.outcome = committed


class Producer:
    """A process with a transactional id. It asks one thing at a time, and asks again if it hears nothing."""

    def __init__(self, world: World, transactional_id: str, number: int, old: bool, two_phase: bool) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.name = f"{transactional_id}#{number}"
        self.old = old
        self.two_phase = two_phase
        self.identity = NOBODY
        self.transaction: Transaction | None = None
        self.added: set[TopicPartition] = set()
        self.sequences: dict[TopicPartition, int] = {}
        self.unacknowledged = 0
        self.writes = 0
        self.failed = False
        self.ending: bool | None = None
        self.prepared = False
        self.waits = False
        self.replaced = False
        self.asked_in_vain = False
        self.recovering = False
        self.dead = False

    def step(self) -> None:
        if self.dead or self.waits:
            return
        if self.identity == NOBODY or self.recovering:
            self._init()
        elif self.ending is not None:
            self._end(self.ending)
        elif self.transaction is None:
            self.transaction = Transaction(f"{self.name}-{next(self.world.names)}")
            self.world.begun.append(self.transaction)
            self.world.transactions[self.transactional_id, self.identity] = self.transaction
        elif self.prepared:
            self.ending = True
        else:
            self._go_on()

    def _go_on(self) -> None:
        chance = self.world.random.random()
        if self.old and self.unacknowledged:
            # Before version 2 the record could become part of the next transaction (why there is a version 2).
            return
        if self.failed or chance < 0.05:
            self.ending = False
        elif self.unacknowledged:
            return
        elif chance < 0.3 and self.writes:
            if self.two_phase:
                self.prepared = True
                assert self.transaction is not None
                self.world.prepared.add(self.transaction.name)
            else:
                self.ending = True
        else:
            self._produce(self.world.random.choice(list(self.world.partitions.values())))

    # -- InitProducerId

    def _init(self) -> None:
        keep = self.two_phase and not self.recovering and self.world.random.random() < 0.8
        self._ask(
            lambda leader: leader.init(
                self.transactional_id,
                self.identity,
                timeout=self.world.random.choice([200, 2000, 10_000]),
                v=6 if self.two_phase else 5,
                two_phase=self.two_phase,
                keep=keep,
                commit=False,
            )[1],
            self._initialized,
        )

    def _initialized(self, response: Any) -> None:
        if response.error_code:
            self.dead = response.error_code == ErrorCode.PRODUCER_FENCED and self.recovering
            busy = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            assert self.dead or response.error_code in busy
            return
        assert not self.asked_in_vain, f"FencedForGood: {self.name} has recovered"
        self.recovering = False
        self.sequences.clear()
        self.identity = Identity(response.producer_id, response.producer_epoch)
        given = self.world.identities.setdefault(self.transactional_id, set())
        assert self.identity not in given, f"EpochsGrow: {self.identity} is given twice"
        given.add(self.identity)
        for other in self.world.producers:
            if other.transactional_id == self.transactional_id and other.identity != NOBODY:
                # Answers may overtake each other: who hears last is not always who came last.
                other.replaced = other.replaced or other.identity < self.identity
                self.replaced = self.replaced or self.identity < other.identity
        ongoing = Identity(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        if ongoing != NOBODY:
            self.transaction = self.world.transactions[self.transactional_id, ongoing]
            self.ending = self.transaction.name in self.world.prepared

    # -- writing

    def _produce(self, partition: Partition) -> None:
        if self.old and partition.name not in self.added:
            self._ask(
                lambda leader: leader.add(self.transactional_id, self.identity, [partition.name], v=3, commit=False)[1],
                lambda errors: self._added(partition.name, errors[partition.name]),
            )
            return
        transaction = self.transaction
        assert transaction is not None
        sequence = self.sequences.get(partition.name, 0)
        self.sequences[partition.name] = sequence + 1
        header = batch(self.identity, sequence)
        self.unacknowledged += 1
        self.writes += 1
        late = not self.old and self.world.random.random() < 0.05
        self.world.send(lambda: self._arrive(partition, transaction, header), late=late)

    def _added(self, name: TopicPartition, error: int) -> None:
        if error == ErrorCode.NONE:
            assert not self.asked_in_vain, f"FencedForGood: {self.name} has added {name}"
            self.added.add(name)
        elif error == ErrorCode.PRODUCER_FENCED:
            self.dead = True

    def _arrive(self, partition: Partition, transaction: Transaction, header: BatchHeader) -> None:
        """At the leader of the partition, which asks the coordinator if it has to."""
        states = partition.states
        try:
            verification = states.begin_verification(header, 0, transaction_version=0 if self.old else 2)
        except KafkaError as refused:
            self._answered(transaction, refused.code)
            return

        def verified(errors: dict[TopicPartition, int]) -> None:
            error = ErrorCode(errors[partition.name])
            try:
                if error is not ErrorCode.NONE:
                    raise KafkaError(error)
                states.check_verified(header, verification)
                partition.append(self, transaction, header)
            except KafkaError as refused:
                self._answered(transaction, refused.code)
            else:
                self._answered(transaction, ErrorCode.NONE)

        if verification is None:
            verified({partition.name: ErrorCode.NONE})
            return
        identity = Identity(header.producer_id, header.producer_epoch)
        _, errors = self.world.leader.add(
            self.transactional_id, identity, [partition.name], v=5, verify=self.old, commit=False
        )
        self.world.reply(
            lambda: verified(errors), lost=lambda: self._answered(transaction, ErrorCode.NETWORK_EXCEPTION)
        )

    def _answered(self, transaction: Transaction, error: ErrorCode) -> None:
        if transaction is self.transaction:
            self.unacknowledged -= 1
            self.failed = self.failed or error is not ErrorCode.NONE

    # -- EndTxn

    def _end(self, committed: bool) -> None:
        if self.old and not self.added:
            self._next_transaction()
            return
        identity = self.identity
        self._ask(
            lambda leader: leader.end(self.transactional_id, identity, committed, v=4 if self.old else 5, commit=False)[
                1
            ],
            self._ended,
        )

    def _ended(self, response: Any) -> None:
        transaction = self.transaction
        assert transaction is not None
        if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        if response.error_code:
            self.dead = True
            return
        assert not self.asked_in_vain, f"FencedForGood: {self.name} has ended {transaction.name}"
        assert self.ending is not None
        if self.writes or self.ending:
            transaction.decided(self.ending)
        self._next_transaction()
        if not self.old:
            self.identity = Identity(response.producer_id, response.producer_epoch)

    def _next_transaction(self) -> None:
        # Without a new epoch, sequences that were refused would be missed for ever (KIP-360).
        self.recovering = self.old and self.failed
        self.transaction = None
        self.ending = None
        self.prepared = False
        self.failed = False
        self.unacknowledged = 0
        self.writes = 0
        self.added.clear()
        if not self.old:
            self.sequences.clear()

    def _ask(self, ask: Callable[[Coordinator], Any], answered: Callable[[Any], None]) -> None:
        self.waits = True
        self.asked_in_vain = self.replaced

        def hear(response: Any) -> None:
            self.waits = False
            if not self.dead:
                answered(response)

        def lost() -> None:
            self.waits = False

        response = ask(self.world.leader)
        self.world.reply(lambda: hear(response), lost)


class World:
    def __init__(self, seed: int, version: int) -> None:
        self.random = random.Random(seed)
        self.version = version
        self.now = 1000
        self.names = itertools.count(1)
        self.ids = itertools.count(1000)
        self.log = Log()
        self.committed = 0
        self.partitions = {
            name: Partition(name, self)
            for name in [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
        }
        self.transactions: dict[tuple[str, Identity], Transaction] = {}
        self.begun: list[Transaction] = []
        self.prepared: set[str] = set()
        self.identities: dict[str, set[Identity]] = {}
        self.producers: list[Producer] = []
        self.network: list[Callable[[], object]] = []
        self.late: list[Callable[[], object]] = []
        # (records that must be committed, what to do then, what to do if they are lost)
        self.replies: list[tuple[int, Callable[[], None], Callable[[], None]]] = []
        self.coordinators: list[Coordinator] = []
        self.leader = self.elect()
        if seed % 2:
            self.near_the_last_epoch()

    def near_the_last_epoch(self) -> None:
        for producer_id, name in enumerate(["t", "u", "2pc"]):
            epoch = MAX_EPOCH - self.random.randint(3, 12)
            old = Known(name, producer_id, epoch, 1000, updated_ms=self.now)
            self.leader.run(Decision([record_of(old, self.version)], []))
        self.committed = len(self.log.records)

    # -- coordinators

    def elect(self) -> Coordinator:
        """A new leader of the coordinator partition; what was not committed may be gone."""
        if self.coordinators:
            kept = self.random.randint(self.committed, len(self.log.records))
            self.log = Log(self.log.records[:kept], self.log.leader_epoch)
        lost = [reply for reply in self.replies if reply[0] > self.committed or self.random.random() < 0.5]
        self.replies = [reply for reply in self.replies if reply not in lost]
        self.leader = Coordinator(
            self.log,
            version=self.version,
            now=self.now,
            ids=lambda: None if self.random.random() < 0.05 else next(self.ids),
            commit=False,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=10,
            transaction_two_phase_commit_enable=True,
        )
        self.coordinators = [*self.coordinators[-2:], self.leader]
        for _, _, forget in lost:
            forget()
        return self.leader

    def reply(self, leave: Callable[[], None], lost: Callable[[], None]) -> None:
        self.replies.append((len(self.log.records), leave, lost))

    def commit(self) -> None:
        self.committed = max(self.random.randint(self.committed, len(self.log.records)) for _ in range(2))
        self.leader.shard.committed(self.committed)
        due = [reply for reply in self.replies if reply[0] <= self.committed]
        self.replies = [reply for reply in self.replies if reply[0] > self.committed]
        for _, leave, lost in due:
            self.send(lost if self.random.random() < 0.05 else leave)

    def markers(self) -> None:
        coordinator = self.random.choice([*self.coordinators, self.leader, self.leader])
        coordinator.now = self.now
        due = coordinator.shard.markers_due(
            lambda name: -1 if self.random.random() < 0.05 else name.partition, self.now
        )
        if coordinator is self.leader:
            # An abort of nothing whose second record was lost.
            coordinator.run(due.decision, commit=False)
        for sent in itertools.chain.from_iterable(due.by_broker.values()):
            self.send(lambda sent=sent: self.deliver(coordinator, sent))  # type: ignore[misc]

    def deliver(self, coordinator: Coordinator, sent: Markers) -> None:
        fate = self.random.random()
        if fate < 0.2:
            coordinator.shard.markers_lost(sent, self.now)
            # From version 2 on markers may be as late as they like. Before, a late one could end a later transaction.
            if sent.transaction_version >= 2:
                self.send(lambda: self.write(sent), late=True)
            return
        errors = self.write(sent)
        if fate < 0.3:
            coordinator.shard.markers_lost(sent, self.now)
        elif coordinator is self.leader:
            coordinator.run(coordinator.shard.markers_answered(sent, errors, self.now), commit=False)

    def write(self, sent: Markers) -> dict[TopicPartition, ErrorCode]:
        return {
            name: ErrorCode.NOT_LEADER_OR_FOLLOWER if self.random.random() < 0.1 else self.partitions[name].mark(sent)
            for name in sent.partitions
        }

    # -- the storm, and the calm after it

    def send(self, message: Callable[[], object], late: bool = False) -> None:
        (self.late if late else self.network).append(message)

    def produce(self) -> None:
        living = [producer for producer in self.producers if not producer.dead]
        for transactional_id in ("t", "u", "2pc") if self.version >= 2 else ("t", "u"):
            rivals = [producer for producer in living if producer.transactional_id == transactional_id]
            if not rivals or (len(rivals) < 3 and self.random.random() < 0.005):
                old = self.version < 2 or (transactional_id == "u" and self.random.random() < 0.5)
                number = next(self.names)
                self.producers.append(Producer(self, transactional_id, number, old, transactional_id == "2pc"))
                living.append(self.producers[-1])
        self.random.choice(living).step()

    def tick(self) -> None:
        self.now += self.random.choice([1, 5, 20] * 10 + [300])
        for coordinator in self.coordinators:
            coordinator.now = self.now
        self.leader.run(self.leader.shard.tick(self.now), commit=False)

    def message(self) -> None:
        messages = self.late if self.late and self.random.random() < 0.02 else self.network
        if messages:
            messages.pop(self.random.randrange(len(messages)))()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.3:
                self.produce()
            elif chance < 0.6:
                self.message()
            elif chance < 0.75:
                self.commit()
            elif chance < 0.88:
                self.markers()
            elif chance < 0.995:
                self.tick()
            else:
                self.elect()
        self.check_replay()

    def calm(self) -> None:
        """All pending requests are sent; no transaction begins. Then every timeout passes."""
        for producer in self.producers:
            producer.dead = True
        if self.version >= 2:
            # What was prepared has no time-out: somebody has to come back for it.
            self.producers.append(Producer(self, "2pc", 0, False, True))
        while self.late:
            self.breathe()
        calm_ms = self.now + 11_000
        while self.now < calm_ms:
            self.breathe()
        patience = iter(range(2000))
        while any(transaction.prepared for transaction in self.leader.shard.transactions):
            assert next(patience, None) is not None, "NothingHangs: a transaction stays prepared"
            self.breathe()
        for partition in self.partitions.values():
            assert partition.states.first_undecided_offset is None, f"NothingHangs: in {partition.name}"

    def breathe(self) -> None:
        last = self.producers[-1]
        last.dead = last.dead or (last.identity != NOBODY and last.ending is None)
        last.step()
        self.message()
        self.commit()
        self.markers()
        self.now += 30
        self.tick()

    def check_replay(self) -> None:
        fresh = Coordinator(Log(list(self.log.records)), version=self.version)
        assert fresh.state == self.leader.state, "ReplayIsState"
        identities: dict[str, Identity] = {}
        for key, value, value_format in self.log.records:
            assert value is not None
            record = decode(TransactionLogKey, key, 0)
            transaction = transaction_of(record, decode(TransactionLogValue, value, value_format))
            before = identities.get(record.transactional_id, NOBODY)
            assert transaction.identity >= before, f"EpochsGrow: {transaction} after {before}"
            identities[record.transactional_id] = transaction.identity


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens(seed: int, version: int) -> None:
    world = World(seed, version)
    world.run(STEPS)
    world.calm()
    world.check_replay()
    assert any(transaction.outcome is not None for transaction in world.begun)


def test_statuses_are_those_of_the_records() -> None:
    assert [(int(status), status.label) for status in Status] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
