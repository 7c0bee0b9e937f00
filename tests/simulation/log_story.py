"""One partition's log on a disk that crashes and loses power: a seeded story, and the model that judges it.

The story does to a `Log` what brokers, operators and bad luck do, one random step after the other. The model is a list
of the batches that were appended. After every restart the log is compared with it, by the durability table of the
design:

- a process crash loses nothing;
- a power loss loses nothing below what `flush` had returned, and what it keeps above that is the beginning of what the
  log held, cut at a batch: nothing torn, nothing that had been truncated, no hole;
- whatever is served has the bytes that were appended, and the producers, epochs and aborted transactions are those of
  exactly these batches;
- an offset that was flushed is never given to another record.

The story also plays the log directory: it keeps the recovery point and the log start offset in checkpoints, which are
durable at once and may be behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.io.files import write_file_atomically
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.records.batch import BatchHeader, check_crc, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker, read_transaction_marker
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.clock import SimulatedClock
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.mount import Mount, ProcessKilled
from verified_appends import append_verified

DIRECTORY = "/data/events-0"
PARTITION = TopicPartition("events", 0)
CLEAN_MARKER = "/data/.kafka_cleanshutdown"


class Stored(NamedTuple):
    """A batch as the log has it."""

    header: BatchHeader
    data: bytes


class ProducerModel(NamedTuple):
    epoch: int
    last_sequence: int


class Story:
    def __init__(self, seed: int | str, *, faults: bool = True, focus: Sequence[str] = ()) -> None:
        """The steps in `focus` happen more often than others."""
        self._weights = [weight * 6 if action.__name__ in focus else weight for action, weight in WEIGHTED]
        self.chance = random.Random(f"{seed}")
        self.faults = faults
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(clock=self.clock)
        self.disk.make_directories("/data")
        self.disk.sync_directory("/")
        self.steps: list[str] = []
        self.counts: dict[str, int] = {}
        self.settings = TopicSettings(
            segment_bytes=self.chance.choice((1_000, 4_000, 20_000)),
            index_interval_bytes=self.chance.choice((0, 300, 4_096)),
            segment_index_bytes=self.chance.choice((48, 10_240)),
            retention_bytes=self.chance.choice((-1, 6_000)),
            retention_ms=-1,
        )
        self.batches: list[Stored] = []
        self.flushed = 0
        self.recovery_checkpoint = 0
        self.start_checkpoint = 0
        self.highest_start = 0
        self.known_end = 0
        self.truncated_during_flush: int | None = None
        self._refused: list[list[Stored]] = []
        self.leader_epoch = 0
        self.sequences: dict[int, int] = {}
        self.to_remove: list[str] = []
        self.log = self._open()

    # -- telling it

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self._step()
            self.stop_cleanly()
        except BaseException as error:
            error.add_note("The story so far:\n  " + "\n  ".join(self.steps[-60:]))
            raise

    def _step(self) -> None:
        action = self.chance.choices(ACTIONS, self._weights)[0]
        self.clock.jump(self.chance.choice((0, 1, 50, 5_000)))
        self._tell(action.__name__.strip("_"))
        action(self)

    def _tell(self, what: str) -> None:
        self.steps.append(what)
        name = what.split(" ", 1)[0]
        self.counts[name] = self.counts.get(name, 0) + 1

    def _detail(self, what: str) -> None:
        if self.steps:
            self.steps[-1] += f" ({what})"

    # -- appending

    def append(self) -> None:
        self._append_as_leader(self._new_batch())

    def append_many(self) -> None:
        for _ in range(self.chance.randrange(2, 12)):
            self.append()

    def append_run(self) -> None:
        """Several batches with one write, where the log sees no reason against it."""
        run = [self._new_batch() for _ in range(self.chance.randrange(2, 6))]
        batches = [(memoryview(batch), read_header(batch)) for batch in run]
        end = self.log.log_end_offset
        try:
            first = self.log.append_run(batches, self.leader_epoch, self.clock.now_ms())
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert self.log.log_end_offset == end
            self._refused.append([Stored(read_header(batch), bytes(batch)) for batch in run])
            self._detail("refused")
            return
        if first is None:
            assert self.log.log_end_offset == end
            for batch in run:
                self._append_as_leader(batch)
            return
        assert first == end
        stored = [Stored(read_header(batch), bytes(batch)) for batch in run]
        assert self.log.log_end_offset == stored[-1].header.next_offset
        self.batches += stored
        self._detail(f"at once: {_ranges(stored)}")

    def append_idempotent(self) -> None:
        producer_id = self.chance.randrange(3)
        sequence = self.sequences.get(producer_id, 0)
        batch = self._new_batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        self._append_as_leader(batch)

    def append_duplicate(self) -> None:
        """A producer that got no answer sends its last batch again."""
        mine = [batch for batch in self.batches if 0 <= batch.header.producer_id < 3]
        if not mine:
            return
        original = self.chance.choice(mine[-3:])
        last = [batch for batch in mine if batch.header.producer_id == original.header.producer_id][-1]
        if original is not last or original.header.last_offset < self.log.log_start_offset:
            return  # after a restart only the last batch of a producer is remembered for sure
        data = bytearray(original.data)
        end = self.log.log_end_offset
        appended = self.log.append_as_leader(data, read_header(data), self.leader_epoch, self.clock.now_ms())
        assert appended.duplicate
        assert appended.base_offset == original.header.base_offset
        assert self.log.log_end_offset == end

    def append_in_transaction(self) -> None:
        producer_id = self.chance.randrange(10, 13)
        sequence = self.sequences.get(producer_id, 0)
        batch = self._new_batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        self._append_as_leader(batch)

    def end_transaction(self) -> None:
        open_transactions, _ = transactions(self.batches)
        if not open_transactions:
            return
        producer_id = self.chance.choice(sorted(open_transactions))
        marker = build_transaction_marker(
            committed=self.chance.random() < 0.5,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        self._append_as_leader(bytearray(marker))

    def append_as_follower(self) -> None:
        data = bytearray()
        stored = []
        offset = self.log.log_end_offset + self.chance.choice((0, 0, 0, 5))
        for _ in range(self.chance.randrange(1, 4)):
            batch = self._new_batch(base_offset=offset, leader_epoch=self.leader_epoch)
            header = read_header(batch)
            stored.append(Stored(header, bytes(batch)))
            data += batch
            offset = header.next_offset
        try:
            self.log.append_preassigned(data, self.clock.now_ms())
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            stored = [batch for batch in stored if batch.header.last_offset < self.log.log_end_offset]
        self.batches += stored
        self._detail(_ranges(stored))

    def append_transactions_as_follower(self) -> None:
        """What a leader sends at once: batches of producers of all kinds, and the ends of their transactions."""
        stored: list[Stored] = []
        for _ in range(self.chance.randrange(2, 9)):
            offset = stored[-1].header.next_offset if stored else self.log.log_end_offset
            stored.append(self._new_replicated([*self.batches, *stored], offset))
        try:
            self.log.append_preassigned(b"".join(batch.data for batch in stored), self.clock.now_ms())
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            stored = [batch for batch in stored if batch.header.last_offset < self.log.log_end_offset]
            self._detail("refused")
        self.batches += stored
        self._settle_sequences()
        self._detail(_ranges(stored))

    def _new_replicated(self, before: list[Stored], offset: int) -> Stored:
        open_transactions, _ = transactions(before)
        kind = self.chance.choice(("idempotent", "transactional", "marker", "marker"))
        if kind == "marker" and open_transactions:
            batch = build_transaction_marker(
                committed=self.chance.random() < 0.3,
                producer_id=self.chance.choice(sorted(open_transactions)),
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=self.clock.now_ms(),
                base_offset=offset,
                leader_epoch=self.leader_epoch,
            )
        else:
            is_transactional = kind == "transactional"
            producer_id = self.chance.randrange(10, 13) if is_transactional else self.chance.randrange(3)
            known = producers(before).get(producer_id)
            batch = self._new_batch(
                base_offset=offset,
                leader_epoch=self.leader_epoch,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0 if known is None else known.last_sequence + 1,
                transactional=is_transactional,
            )
        return Stored(read_header(batch), bytes(batch))

    def append_to_a_failing_disk(self) -> None:
        """A full disk or one that refuses; the log is as before, and goes on when the disk does."""
        if not self.faults:
            return
        fate = self.chance.random()
        if fate < 0.4:
            self.disk.fill(leave=self.chance.randrange(1_000))
        elif fate < 0.7:
            self.disk.fill(leave=self.chance.choice((0, 512, 1024)), block_size=512)
        else:
            pattern = self.chance.choice(("*", "*.txnindex", "*.log"))
            operation = self.chance.choice(("write", "create", "truncate"))
            self.disk.fail(operation, pattern, times=self.chance.randrange(1, 4))
        for _ in range(self.chance.randrange(1, 6)):
            self.chance.choice(
                (
                    *(self.append, self.append_run, self.append_idempotent, self.append_as_follower),
                    *(self.append_in_transaction, self.end_transaction, self.append_transactions_as_follower),
                )
            )()
            self._judge_producers()
            self._judge_transactions()
        self.disk.heal()
        self.check_reads()

    def truncate_on_a_failing_disk(self) -> None:
        """The log ends where it was cut; nothing is appended behind files that could not be cut yet."""
        candidates = [batch.header.base_offset for batch in self.batches[-8:]]
        candidates = [offset for offset in candidates if offset > self.log.log_start_offset]
        if not self.faults or not candidates:
            return
        offset = self.chance.choice(candidates)
        self._detail(f"to {offset} of {self.log.log_end_offset}")
        pattern = self.chance.choice(("*", "*.log", "*.snapshot", "*index"))
        self.disk.fail(self.chance.choice(("truncate", "remove", "open")), pattern, times=self.chance.randrange(1, 4))
        before = self.log.log_end_offset
        is_finished = True
        try:
            self.log.truncate_to(offset)
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            self._detail("refused")
            is_finished = False
        if self.log.log_end_offset < before:
            left = [batch for batch in self.batches if batch.header.base_offset < offset]
            self._truncated(offset, left, is_finished=is_finished)
        self.append_many()
        self.disk.heal()
        self.append()
        self._judge_producers()
        self._judge_transactions()
        self.check_reads()

    def _append_as_leader(self, batch: bytearray) -> None:
        header = read_header(batch)
        end = self.log.log_end_offset
        try:
            appended = append_verified(self.log, batch, self.leader_epoch, self.clock.now_ms())
        except KafkaError as error:
            assert self.log.log_end_offset == end
            forgotten = error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self._has_data_of(
                header.producer_id
            )
            assert error.code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.RECORD_LIST_TOO_LARGE) or forgotten, error
            self._detail("refused")
            return
        assert not appended.duplicate
        assert appended.base_offset == end
        header = read_header(batch)
        assert header.base_offset == end
        self.batches.append(Stored(header, bytes(batch)))
        self._detail(f"{header.base_offset}-{header.last_offset}, {header.size} bytes, producer {header.producer_id}")
        if header.base_sequence >= 0:
            self.sequences[header.producer_id] = header.base_sequence + header.last_offset_delta + 1

    def _has_data_of(self, producer_id: int) -> bool:
        """Where a producer's data was deleted and only a marker is left, it has to begin again; Kafka is as strict."""
        return any(
            batch.header.producer_id == producer_id
            and not batch.header.is_control
            and batch.header.base_offset >= self.log.log_start_offset
            for batch in self.batches
        )

    def _new_batch(self, **options: int) -> bytearray:
        now = self.clock.now_ms()
        count = self.chance.choice((1, 1, 3))
        size = self.chance.choice((10, 100, 480, 2_000))
        records = [(now, None, self.chance.randbytes(self.chance.randrange(size)), ()) for _ in range(count)]
        return build_batch(records, **options)  # type: ignore[arg-type]

    # -- the log's housekeeping

    def roll(self) -> None:
        self.log.roll(self.clock.now_ms())

    def flush(self) -> None:
        """On a worker thread in life: things happen to the log meanwhile, and the process may end before its result is
        taken."""
        self.truncated_during_flush = None
        if self.chance.random() < 0.3:
            self.disk.before_sync = self._something_during_a_sync
        returned = offset = self.log.flush()
        self.disk.before_sync = None
        self._detail(f"{offset}")
        cut = self._cut_during_flush()
        if cut is not None:
            offset = min(offset, cut)
        self.flushed = max(self.flushed, min(offset, self._end(self.batches)))
        if cut is None:
            self._refused.clear()
        if self.chance.random() < 0.2:
            self.append()
        if self.chance.random() < 0.9:
            self.log.flushed(returned)
            if self.chance.random() < 0.6:
                self._write_checkpoints()

    def _something_during_a_sync(self, path: str) -> None:
        if self.chance.random() < 0.6:
            return  # at a later one, perhaps
        self.disk.before_sync = None
        action = self.chance.choice(
            (
                Story.append_many,
                Story.roll,
                Story.truncate,
                Story.truncate_and_append,
                Story.truncate_twice,
                Story.delete_records,
                Story.delete_old_segments,
            )
        )
        self._detail(f"{action.__name__} meanwhile")
        action(self)

    def _write_checkpoints(self) -> None:
        self.recovery_checkpoint = self.log.recovery_point
        self.start_checkpoint = self.log.log_start_offset

    def truncate(self) -> None:
        """A follower finds out that its tail is not its leader's; a new leader epoch follows."""
        candidates = [batch.header.base_offset for batch in self.batches[-8:]]
        candidates = [offset for offset in candidates if offset >= self.log.log_start_offset]
        if not candidates:
            return
        offset = self.chance.choice(candidates)
        self._detail(f"to {offset} of {self.log.log_end_offset}")
        self.log.truncate_to(offset)
        self._truncated(offset, [batch for batch in self.batches if batch.header.base_offset < offset])

    def truncate_and_append(self) -> None:
        self.truncate()
        self.append_many()

    def truncate_twice(self) -> None:
        """Of what is left the middle was written between the cuts."""
        self.truncate_and_append()
        cut = self.truncated_during_flush
        self.truncate_and_append()
        if cut is not None and self.truncated_during_flush is not None:
            self.truncated_during_flush = min(cut, self.truncated_during_flush)

    def _cut_during_flush(self) -> int | None:
        return self.truncated_during_flush

    def truncate_fully(self) -> None:
        if self.chance.random() < 0.8:
            return
        offset = self.log.log_end_offset + self.chance.randrange(100)
        self._detail(f"start at {offset}")
        self.log.truncate_fully_and_start_at(offset)
        self.highest_start = offset
        self._truncated(offset, [])

    def _truncated(self, offset: int, left: list[Stored], *, is_finished: bool = True) -> None:
        self.batches = left
        end = self.truncated_during_flush = self.log.log_end_offset
        assert self._end(left) <= end <= offset, f"the log ends at {end}"
        self.flushed = min(self.flushed, self._end(self.batches))
        self._write_checkpoints()
        self.leader_epoch += 1
        self._settle_sequences()
        if is_finished:
            self._judge_producers()
        self._judge_epochs()

    def new_leader_epoch(self) -> None:
        self.leader_epoch += 1
        if self.chance.random() < 0.5:
            self.log.assign_epoch(self.leader_epoch, self.log.log_end_offset)

    def delete_records(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = self.chance.randint(start, end)
        self._detail(f"below {offset}")
        self.log.advance_log_start(offset)
        assert self.log.log_start_offset == offset
        self.highest_start = max(self.highest_start, offset)

    def delete_old_segments(self) -> None:
        high_watermark = self.chance.choice((self.log.log_end_offset, self.log.log_start_offset))
        end = self.log.log_end_offset
        self.to_remove += self.log.delete_old_segments(self.clock.now_ms(), high_watermark)
        assert self.log.log_end_offset == end
        self.highest_start = max(self.highest_start, self.log.log_start_offset)
        if self.chance.random() < 0.5:
            for path in self.to_remove:
                self.disk.remove(path)
            self.to_remove.clear()

    # -- ends and beginnings

    def stop_cleanly(self) -> None:
        self.log.close()
        self._write_checkpoints()
        write_file_atomically(self.disk, CLEAN_MARKER, b"")
        self.flushed = self.log.log_end_offset
        kind = self.chance.choice(("crash", "power_loss"))
        self._detail(f"then {kind}")
        self._fall_over(kind)
        self._restart()
        assert self.log.recovered_bytes == 0, "nothing needs checking after a clean stop"
        self._judge_nothing_lost()

    def crash(self) -> None:
        self._fall_over("crash")
        self._restart()
        self._judge_nothing_lost()

    def crash_while_recovering(self) -> None:
        """Killed again and again while the log is being opened, at any point, with or without the power."""
        powerless = False
        for _ in range(self.chance.randrange(1, 4)):
            kind = self.chance.choice(("crash", "power_loss"))
            powerless = powerless or kind == "power_loss"
            self._fall_over(kind)
            mount = Mount(self.disk, operations=self.chance.randrange(30))
            try:
                self._open_on(mount)
            except ProcessKilled:
                self._detail("killed")
        self._fall_over("crash")
        self._restart()
        self._detail("powerless" if powerless else "")
        if powerless:
            self._judge_power_loss()
        else:
            self._judge_nothing_lost()

    def power_loss(self) -> None:
        self._fall_over("power_loss")
        self._restart()
        self._judge_power_loss()

    def _fall_over(self, kind: str) -> None:
        self.known_end = self.log.log_end_offset
        if kind == "crash":
            self.disk.crash()
        else:
            self.disk.power_loss(self.chance)

    def _restart(self) -> None:
        self.to_remove.clear()
        self.log = self._open()

    def _open(self) -> Log:
        return self._open_on(Mount(self.disk))

    def _open_on(self, mount: Mount) -> Log:
        clean = mount.exists(CLEAN_MARKER)
        if clean:
            mount.remove(CLEAN_MARKER)
            mount.sync_directory("/data")
        return Log.open(
            mount,
            DIRECTORY,
            PARTITION,
            self.settings,
            clean_shutdown=clean,
            recovery_point=self.recovery_checkpoint,
            log_start_offset=self.start_checkpoint,
            now_ms=self.clock.now_ms(),
        )

    # -- judging it

    def _judge_nothing_lost(self) -> None:
        end = self.log.log_end_offset
        least = self._end(self.batches)
        # Where offsets are missing before the end (as a leader that compacts leaves them), nothing remembers it.
        assert least <= end <= max(least, self.known_end), f"the log ends at {end}, not at {least}"
        self._judge()

    def _judge_power_loss(self) -> None:
        end = self.log.log_end_offset
        assert end >= self.flushed, f"the log ends at {end}, but {self.flushed} was flushed"
        lost = max(0, self.known_end - end)
        self._judge()
        self._refused.clear()
        self._detail(f"{lost} of {lost + end - self.flushed} offsets at risk lost")

    def _judge(self) -> None:
        """What the log holds is the beginning of what it held, from its start offset on; that becomes the model."""
        log = self.log
        start = log.log_start_offset
        assert self.start_checkpoint <= start <= max(log.log_end_offset, self.start_checkpoint)
        found = self.read_everything()
        self._take_refused_for_accepted(found)
        visible = [batch for batch in self.batches if batch.header.last_offset >= start]
        assert [batch.data for batch in visible[: len(found)]] == [batch.data for batch in found], (
            f"from {start} on the log holds {_ranges(found)}, but held {_ranges(visible)}"
        )
        kept = [batch for batch in self.batches if batch.header.last_offset < log.log_end_offset]
        assert self._end(kept) <= log.log_end_offset
        visible = [batch for batch in kept if batch.header.last_offset >= start]
        assert [batch.data for batch in visible] == [batch.data for batch in found], (
            f"a hole: the log ends at {log.log_end_offset} but holds only {_ranges(found)} of {_ranges(visible)}"
        )
        self.batches = kept
        self._settle_sequences()
        self._judge_producers()
        self._judge_epochs()
        self._judge_transactions()
        self.flushed = min(self.flushed, log.log_end_offset)
        assert log.recovery_point <= log.log_end_offset

    def _take_refused_for_accepted(self, found: list[Stored]) -> None:
        """The first batches of a run that did not fit were written whole, and then cut. The error did not say
        that they are not there, only that they may not be: until the next flush a power loss can bring them back."""
        contents = {batch.data for batch in found}
        for run in self._refused:
            if run[0].data in contents:
                base_offset = run[0].header.base_offset
                self.batches = [batch for batch in self.batches if batch.header.base_offset < base_offset] + run
                assert self.flushed <= base_offset

    def _judge_producers(self) -> None:
        log = self.log
        expected = producers(self.batches)
        for entry in log.producers.entries:
            assert entry.producer_id in expected, f"producer {entry.producer_id} is not in the log"
            model = expected[entry.producer_id]
            assert entry.epoch == model.epoch
            if entry.batches:
                assert entry.last_sequence == model.last_sequence, f"of producer {entry.producer_id}"
        remembered = {entry.producer_id for entry in log.producers.entries}
        for producer_id in producers(
            [batch for batch in self.batches if batch.header.base_offset >= self._scan_start()]
        ):
            assert producer_id in remembered, f"producer {producer_id} is forgotten"

    def _scan_start(self) -> int:
        """Producers whose batches all are below may be forgotten."""
        return max(self.log.log_start_offset, self.log.segments[0].base_offset)

    def _judge_epochs(self) -> None:
        for batch in self.batches:
            # The epochs below a start offset are forgotten even if that offset itself was not checkpointed.
            if batch.header.base_offset >= max(self.log.log_start_offset, self.highest_start):
                epoch = self.log.epochs.epoch_for_offset(batch.header.base_offset)
                assert epoch == batch.header.leader_epoch, (
                    f"{epoch} is said to be the epoch of {_ranges([batch])}: {self.log.epochs.entries}"
                )

    def _judge_transactions(self) -> None:
        log = self.log
        _, aborted = transactions(self.batches)
        start = self._scan_start()
        firsts = {(producer_id, last): first for producer_id, first, last in aborted}
        remembered = set()
        for each in log.aborted_transactions(log.log_start_offset, log.log_end_offset):
            key = (each.producer_id, each.last_offset)
            assert key in firsts, f"{each} is not in the log"
            # What is below the start of the log need not be known any more.
            assert each.first_offset == firsts[key] or firsts[key] < start, f"{each} began at {firsts[key]}"
            remembered.add(key)
        for key, first in firsts.items():
            assert first < start or key in remembered, f"{key} was aborted, which is forgotten"

    def read_everything(self) -> list[Stored]:
        log = self.log
        found: list[Stored] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, self.chance.choice((1, 700, 1 << 20)), log.log_end_offset).data
            if not data:
                break
            view = memoryview(data)
            for position, header in iterate_headers(view):
                check_crc(view, position, header)
                found.append(Stored(header, bytes(view[position : position + header.size])))
                offset = header.next_offset
        return found

    def check_reads(self) -> None:
        """From random offsets, cached or not."""
        log = self.log
        self.disk.cold = lambda path, position, size: self.chance.random() < 0.3
        visible = [batch for batch in self.batches if batch.header.last_offset >= log.log_start_offset]
        for _ in range(5):
            if log.log_start_offset == log.log_end_offset:
                break
            offset = self.chance.randrange(log.log_start_offset, log.log_end_offset)
            limit = self.chance.choice((log.log_end_offset, offset + 1))
            found = log.read_cached(offset, 100_000, limit)
            if found is None:
                found = log.read(offset, 100_000, limit)
            expected = [batch for batch in visible if batch.header.last_offset >= offset]
            expected = [batch for batch in expected if batch.header.last_offset < limit]
            self._compare_read(offset, bytes(found.data), expected)
        self.disk.cold = None

    def _compare_read(self, offset: int, data: bytes, expected: list[Stored]) -> None:
        whole = b"".join(batch.data for batch in expected)
        assert whole.startswith(data), f"reading at {offset} gives something else"
        assert bool(data) == bool(whole), f"reading at {offset} gives {len(data)} bytes of {len(whole)}"

    def _settle_sequences(self) -> None:
        self.sequences = {
            producer_id: model.last_sequence + 1
            for producer_id, model in producers(self.batches).items()
            if model.last_sequence >= 0
        }

    def _end(self, batches: Sequence[Stored]) -> int:
        """Where a log of these batches ends, at least; the name of its last segment says it, too."""
        return max(batches[-1].header.next_offset if batches else 0, self.log.segments[-1].base_offset)


def producers(batches: Sequence[Stored]) -> dict[int, ProducerModel]:
    found: dict[int, ProducerModel] = {}
    for batch in batches:
        header = batch.header
        if header.producer_id >= 0:
            last = header.base_sequence + header.last_offset_delta
            if header.is_control:
                earlier = found.get(header.producer_id)
                last = earlier.last_sequence if earlier is not None else -1
            found[header.producer_id] = ProducerModel(header.producer_epoch, last)
    return found


def transactions(batches: Sequence[Stored]) -> tuple[dict[int, int], set[tuple[int, int, int]]]:
    """Open ones by producer id with their first offset, and (producer id, first, last offset) of aborted ones."""
    open_since: dict[int, int] = {}
    aborted: set[tuple[int, int, int]] = set()
    for batch in batches:
        header = batch.header
        if header.is_control:
            first = open_since.pop(header.producer_id, None)
            if first is not None and not is_commit(batch):
                aborted.add((header.producer_id, first, header.base_offset))
        elif header.is_transactional:
            open_since.setdefault(header.producer_id, header.base_offset)
    return open_since, aborted


def is_commit(batch: Stored) -> bool:
    marker = read_transaction_marker(batch.data, 0, batch.header)
    assert marker is not None
    return marker.committed


def _ranges(batches: Sequence[Stored]) -> str:
    return ", ".join(
        f"{batch.header.base_offset}-{batch.header.last_offset}@{batch.header.leader_epoch}" for batch in batches
    )


WEIGHTED: list[tuple[Callable[[Story], None], int]] = [
    (Story.append, 20),
    (Story.append_many, 10),
    (Story.append_run, 6),
    (Story.append_idempotent, 12),
    (Story.append_duplicate, 4),
    (Story.append_in_transaction, 8),
    (Story.end_transaction, 6),
    (Story.append_as_follower, 6),
    (Story.append_transactions_as_follower, 5),
    (Story.append_to_a_failing_disk, 4),
    (Story.truncate_on_a_failing_disk, 2),
    (Story.roll, 4),
    (Story.flush, 10),
    (Story.truncate, 3),
    (Story.truncate_and_append, 3),
    (Story.truncate_fully, 1),
    (Story.new_leader_epoch, 4),
    (Story.delete_records, 2),
    (Story.delete_old_segments, 5),
    (Story.check_reads, 4),
    (Story.crash, 4),
    (Story.power_loss, 6),
    (Story.crash_while_recovering, 2),
    (Story.stop_cleanly, 2),
]
ACTIONS = [action for action, _ in WEIGHTED]
