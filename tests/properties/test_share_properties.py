"""A share partition against a model that keeps the state of each offset by itself.

The model does not choose records: it checks what was chosen, and predicts everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.errors import ErrorCode, KafkaError
from penstock.shares.share_partition import SharePartition
from penstock.shares.states import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRange,
    AcquireMode,
    DeliverySettings,
    RecordState,
    Span,
    StateBatch,
    Write,
)
from property_examples import examples

MEMBERS = ("ada", "ben", "cleo")
LOCK_MS = 100
FINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)

members = st.sampled_from(MEMBERS)
kinds = st.sampled_from(AcknowledgeType)


@dataclass(frozen=True)
class Known:
    state: RecordState
    count: int
    owner: str = ""
    lock_ends_ms: int = 0
    write: int = 0  # the number of the write that is under way


class SharePartitionMachine(RuleBasedStateMachine):
    @initialize(
        limit=st.integers(2, 6),
        locks=st.integers(1, 12),
        dead_letters=st.booleans(),
        restored=st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from([0, 2, 3, 4]), st.integers(0, 3)),
            max_size=4,
        ),
    )
    def begin(self, limit: int, locks: int, dead_letters: bool, restored: list[tuple[int, int, int, int]]) -> None:
        self.now = 1000
        self.settings = DeliverySettings(
            record_lock_duration_ms=LOCK_MS,
            delivery_count_limit=limit,
            max_record_locks=locks,
            has_dead_letter_queue=dead_letters,
        )
        self.model: dict[int, Known] = {}
        self.log: list[Span] = []
        self.log_end = 0
        self.log_start = 0
        self.writes: list[tuple[int, Write]] = []
        self.numbers = 0
        batches, offset = [], 0
        for gap, size, state, count in restored:
            offset += gap
            batches.append(StateBatch(offset, offset + size - 1, RecordState(state), count))
            for each in range(offset, offset + size):
                self.model[each] = Known(RecordState(state), count)
            offset += size
        if offset:
            self.append([offset], 0)
        self.partition = SharePartition(lambda: self.settings, 0, batches)
        self.start = 0
        self.advance()

    # -- the model ----------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        while (known := self.model.get(self.start)) is not None and known.state in FINAL and not known.write:
            self.start += 1

    def can_be_acquired(self, offset: int) -> bool:
        known = self.model.get(offset)
        return known is None or (known.state is RecordState.AVAILABLE and not known.write)

    @property
    def end(self) -> int:
        return max((offset for offset in self.model if offset >= self.start), default=self.start - 1)

    def released(self, count: int) -> RecordState:
        if count < self.settings.delivery_count_limit:
            return RecordState.AVAILABLE
        return RecordState.ARCHIVING if self.settings.has_dead_letter_queue else RecordState.ARCHIVED

    def outcome(self, kind: AcknowledgeType, count: int) -> RecordState:
        match kind:
            case AcknowledgeType.ACCEPT:
                return RecordState.ACKNOWLEDGED
            case AcknowledgeType.GAP:
                return RecordState.ARCHIVED
            case AcknowledgeType.REJECT:
                return RecordState.ARCHIVING if self.settings.has_dead_letter_queue else RecordState.ARCHIVED
            case _:
                return self.released(count)

    def take(self, write: Write | None, expected: dict[int, Known], *, at_once: bool) -> None:
        """A write must say exactly what has changed."""
        said = {
            offset: (batch.state, batch.delivery_count)
            for batch in (write.batches if write is not None else ())
            for offset in range(batch.first, batch.last + 1)
        }
        assert said == {offset: (known.state, known.count) for offset, known in expected.items()}
        if write is None:
            return
        assert write.is_firm == at_once
        assert write.start_offset == self.start
        self.numbers += 1
        for offset, known in expected.items():
            can_be_acquired = at_once and known.state is RecordState.AVAILABLE
            self.model[offset] = replace(known, write=0 if can_be_acquired else self.numbers)
        assert write.delivery_complete_count == self.completed()
        self.writes.append((self.numbers, write))
        lettered = {offset for letter in write.dead_letters for offset in range(letter.first, letter.last + 1)}
        assert lettered == {offset for offset, known in expected.items() if known.state is RecordState.ARCHIVING}

    def completed(self) -> int:
        return sum(known.state in FINAL for offset, known in self.model.items() if offset >= self.start)

    # -- the log ------------------------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), hole=st.integers(0, 2))
    def append(self, sizes: list[int], hole: int) -> None:
        """Some offsets are missing before a batch, as after compaction."""
        for size in sizes:
            first = self.log_end + hole
            self.log.append(Span(first, first + size - 1))
            self.log_end = first + size

    @rule(by=st.integers(1, 4))
    def delete_records(self, by: int) -> None:
        self.log_start = min(self.log_start + by, self.log_end)
        moved = self.partition.log_starts_at(self.log_start)
        assert moved == (self.log_start > self.start)
        if moved:
            self.start = self.log_start
            self.model = {offset: known for offset, known in self.model.items() if offset >= self.start}
            self.advance()

    # -- members ------------------------------------------------------------------------------------------------------

    @rule(
        member=members,
        max_records=st.integers(1, 12),
        batch_size=st.integers(1, 12),
        mode=st.sampled_from(AcquireMode),
        read=st.integers(1, 3),
        aborted=st.booleans(),
    )
    def fetch(  # noqa: C901
        self, member: str, max_records: int, batch_size: int, mode: AcquireMode, read: int, aborted: bool
    ) -> None:
        offset = self.partition.next_fetch_offset
        batches = [span for span in self.log if span.last >= max(offset, self.log_start)][:read]
        assume(batches)
        could = self.partition.can_acquire
        in_flight = self.end - self.start + 1 - self.completed()
        for missing in range(max(offset, self.start), batches[0].first):
            if self.can_be_acquired(missing):
                known = self.model.get(missing)
                self.model[missing] = Known(RecordState.ARCHIVED, 0 if known is None else known.count)
        self.advance()
        available = any(self.can_be_acquired(each) for each in range(max(offset, self.start), batches[-1].last + 1))
        end_before = self.end
        acquired = self.partition.acquire(
            member,
            offset,
            batches,
            self.now,
            max_records=max_records,
            batch_size=batch_size,
            mode=mode,
            aborted=batches[:1] if aborted else [],
        )
        dropped = range(batches[0].first, batches[0].last + 1) if aborted else range(0)
        taken = [each for first, last, _ in acquired for each in range(first, last + 1)]
        assert sorted(taken) == taken and len(set(taken)) == len(taken)
        assert not set(taken) & set(dropped)
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(taken) <= max_records
        for first, last, count in acquired:
            for each in range(first, last + 1):
                assert self.start <= each <= batches[-1].last
                assert self.can_be_acquired(each)
                known = self.model.get(each)
                assert count == (1 if known is None else known.count + 1)
                self.model[each] = Known(RecordState.ACQUIRED, count, member, self.now + LOCK_MS)
        # Records of aborted transactions are archived in passing, as far as they were acquired.
        for batch in self.partition.states():
            for each in range(batch.first, batch.last + 1):
                known = self.model.get(each)
                if each in dropped and batch.state is RecordState.ARCHIVED and self.can_be_acquired(each):
                    self.model[each] = Known(RecordState.ARCHIVED, batch.delivery_count)
        if aborted and self.partition.start_offset > self.start:
            for each in range(self.start, self.partition.start_offset):
                if each in dropped and self.can_be_acquired(each):
                    self.model[each] = Known(RecordState.ARCHIVED, 1)
        self.advance()
        if not aborted:
            if could and available:
                assert taken, "nothing was acquired"
            if in_flight >= self.settings.max_record_locks:
                assert all(each <= end_before for each in taken), "more records than locks"
        self.check_poison(acquired)

    def check_poison(self, acquired: list[AcquiredRange]) -> None:
        """Where a record has its last chance, it is alone."""
        limit = self.settings.delivery_count_limit
        if limit > 2 and any(count >= limit for _, _, count in acquired):
            assert sum(last - first + 1 for first, last, _ in acquired) == 1

    @rule(
        member=members,
        first=st.integers(0, 30),
        types=st.lists(kinds, min_size=1, max_size=6),
        single=st.integers(0, 6),
    )
    def acknowledge(self, member: str, first: int, types: list[AcknowledgeType], single: int) -> None:
        """At any offset, and therefore wrong most of the time."""
        first += max(0, self.start - 2)
        if single:
            types = types[:1]
        self.check_acknowledgement(member, first, first + (single or len(types)) - 1, types)

    @precondition(lambda self: any(known.owner and not known.write for known in self.model.values()))
    @rule(data=st.data(), kind=kinds)
    def acknowledge_well(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        held = sorted(offset for offset, known in self.model.items() if known.owner and not known.write)
        first = last = data.draw(st.sampled_from(held))
        owner = self.model[first].owner
        while (known := self.model.get(last + 1)) is not None and known.owner == owner and not known.write:
            last += 1
        self.check_acknowledgement(owner, first, data.draw(st.integers(first, last)), [kind])

    def check_acknowledgement(self, member: str, first: int, last: int, types: list[AcknowledgeType]) -> None:
        expected: dict[int, Known] = {}
        renewed: dict[int, Known] = {}
        refusal = ErrorCode.NONE
        for offset in range(max(first, self.start), last + 1):
            known = self.model.get(offset)
            if known is None or known.state is not RecordState.ACQUIRED or known.write or known.owner != member:
                refusal = ErrorCode.INVALID_RECORD_STATE
                break
            kind = types[0] if len(types) == 1 else types[offset - first]
            if kind is AcknowledgeType.RENEW:
                renewed[offset] = replace(known, lock_ends_ms=self.now + LOCK_MS)
            else:
                expected[offset] = replace(known, state=self.outcome(kind, known.count))
        try:
            write = self.partition.acknowledge(member, [Acknowledgement(first, last, tuple(types))], self.now)
        except KafkaError as error:
            assert refusal is not ErrorCode.NONE
            past_end = last > self.end
            assert error.code is ErrorCode.INVALID_RECORD_STATE or past_end
            for offset in renewed:  # renewals before the mistake hold, and do no harm
                self.model[offset] = replace(
                    self.model[offset], lock_ends_ms=self.lock_of(offset, renewed[offset].lock_ends_ms)
                )
            return
        assert refusal is ErrorCode.NONE
        self.model |= renewed
        self.take(write, expected, at_once=False)

    def lock_of(self, offset: int, renewed_ms: int) -> int:
        run = self.partition._in_flight.at_or_after(offset)
        assert run is not None and run.lock_ends_ms in (renewed_ms, self.model[offset].lock_ends_ms)
        return run.lock_ends_ms

    @rule(member=members)
    def end_session(self, member: str) -> None:
        expected = {
            offset: replace(known, state=self.released(known.count))
            for offset, known in self.model.items()
            if known.owner == member and known.state is RecordState.ACQUIRED and not known.write
        }
        self.take(self.partition.release(member), expected, at_once=False)

    # -- time and the share coordinator -------------------------------------------------------------------------------

    def expired(self) -> dict[int, Known]:
        return {
            offset: Known(self.released(known.count), known.count)
            for offset, known in self.model.items()
            if known.state is RecordState.ACQUIRED and not known.write and known.lock_ends_ms <= self.now
        }

    @rule(ms=st.integers(1, 150))
    def wait(self, ms: int) -> None:
        self.now += ms
        held = [k.lock_ends_ms for k in self.model.values() if k.state is RecordState.ACQUIRED and not k.write]
        assert self.partition.wake_at_ms == min(held, default=None)
        self.take(self.partition.expire(self.now), self.expired(), at_once=True)
        self.advance()

    @precondition(lambda self: self.writes)
    @rule(succeeds=st.booleans())
    def persist(self, succeeds: bool) -> None:
        number, write = self.writes.pop(0)
        mine = {offset: known for offset, known in self.model.items() if known.write == number}
        if not succeeds and write.is_firm:
            # What holds anyway is reported again, as far as it is still true.
            again = {
                offset: self.model[offset]
                for batch in write.batches
                for offset in range(max(batch.first, self.start), batch.last + 1)
                if (known := self.model.get(offset)) is not None
                and (known.state, known.count) == (batch.state, batch.delivery_count)
                and known.write in (0, number)
            }
            self.take(self.partition.failed(write, self.now), again, at_once=True)
        elif succeeds:
            self.partition.committed(write)
            for offset, known in mine.items():
                self.model[offset] = Known(known.state, known.count)
            self.advance()
        else:
            for offset, known in mine.items():
                self.model[offset] = replace(known, state=RecordState.ACQUIRED, write=0)
            self.take(self.partition.failed(write, self.now), self.expired(), at_once=True)
            self.advance()
        for letter in write.dead_letters if succeeds else ():
            offsets = range(letter.first, letter.last + 1)
            archived = {
                offset: replace(self.model[offset], state=RecordState.ARCHIVED, owner="")
                for offset in offsets
                if offset in self.model
                and self.model[offset].state is RecordState.ARCHIVING
                and not self.model[offset].write
            }
            self.take(self.partition.dead_lettered(letter), archived, at_once=True)
            self.advance()

    # -- laws ---------------------------------------------------------------------------------------------------------

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        assert partition.start_offset == self.start
        assert partition.end_offset == self.end
        assert partition.delivery_complete_count == self.completed()
        held = [known for offset, known in self.model.items() if offset >= self.start]
        acquired = [known.count for known in held if known.state is RecordState.ACQUIRED]
        available = [known.count + 1 for known in held if known.state is RecordState.AVAILABLE]
        last = sum(count >= self.settings.delivery_count_limit for count in [*acquired, *available])
        assert partition.tally() == (len(acquired), last)
        states = {
            offset: (batch.state, batch.delivery_count)
            for batch in partition.states()
            for offset in range(batch.first, batch.last + 1)
        }
        assert states == {
            offset: (known.state, known.count) for offset, known in self.model.items() if offset >= self.start
        }
        following = next(
            (offset for offset in range(self.start, self.end + 1) if self.can_be_acquired(offset)), self.end + 1
        )
        assert partition.next_fetch_offset == following
        for offset, known in self.model.items():
            owner = known.owner if known.state is RecordState.ACQUIRED and not known.write else ""
            if offset >= self.start:
                assert partition.owner_of(offset) == owner


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("batches", [[(5, 9)], [(10, 12), (12, 14)], [(12, 10)]])
def test_malformed_state_is_refused(batches: list[tuple[int, int]]) -> None:
    settings = DeliverySettings(record_lock_duration_ms=1, delivery_count_limit=5, max_record_locks=10)
    with pytest.raises(ValueError, match="follow"):
        SharePartition(
            lambda: settings, 10, [StateBatch(first, last, RecordState.AVAILABLE, 1) for first, last in batches]
        )
