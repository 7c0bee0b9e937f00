"""One partition's log that moves between two log directories, on disks that crash and lose power.

The story appends, cuts, deletes, flushes and moves, one random step after the other; the model is the list of batches
in the log. The process dies between any two changes to the disk, or with the power. After every restart the laws hold:

- `OneLog`: exactly one directory has a log of the partition that counts;
- `NothingLost`: it has what was flushed, and after a crash without power loss everything;
- `NothingComesBack`: nothing that was cut or deleted (durably) is there;
- `SameBytes`: what it has is what was appended, with the epochs and aborted transactions of exactly these batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.log.directory import LogDirectory, future_directory
from penstock.log.future import FutureLog
from penstock.log.log import Log
from penstock.log.promotion import finish_promotion, read_former_directories, settle_promotions
from penstock.model.ids import TopicPartition
from penstock.records.batch import check_crc, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.clock import SimulatedClock
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.mount import Mount, ProcessKilled
from simulation.log_story import Stored, transactions
from verified_appends import append_verified

PARTITION = TopicPartition("events", 0)
TOPIC_ID = bytes(range(16))
PATHS = ("/a", "/b")
PIECES_MAX = 10_000
LONG_MAX = (1 << 63) - 1


class Violation(AssertionError):
    def __init__(self, law: str, message: str) -> None:
        super().__init__(f"{law}: {message}")
        self.law = law


class MovingStory:
    def __init__(self, seed: int | str) -> None:
        self.chance = random.Random(f"{seed}")
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(clock=self.clock)
        self.settings = TopicSettings(
            segment_bytes=self.chance.choice((1_000, 4_000)),
            index_interval_bytes=self.chance.choice((0, 300)),
            retention_ms=-1,
        )
        self.steps: list[str] = []
        self.moves = 0
        self.restarts = 0
        self.deaths = 0  # between two changes to the disk
        self.batches: list[Stored] = []
        self.maybe: Stored | None = None  # a batch whose append the process did not survive
        self.certain_end = LONG_MAX  # where the log may end, if the process did not survive a cut
        self.flushed = 0  # everything below survives a power loss
        self.deleted = 0  # the log start offset that is durable
        self.leader_epoch = 0
        self.sequences: dict[int, int] = {}
        self.future: FutureLog | None = None
        self.cut_off: set[bytes] = set()
        self._start(None)
        self.log = self._open(0)
        self.flush()

    # -- start and stop

    def _start(self, operations: int | None) -> None:
        self.mount = Mount(self.disk, operations=operations)
        self.directories = [LogDirectory(self.mount, path) for path in PATHS]
        settle_promotions(self.mount, self.directories, self._unique)

    def _open(self, number: int) -> Log:
        log = self.directories[number].open(PARTITION, self.settings, now_ms=self.clock.now_ms(), topic_id=TOPIC_ID)
        self._follow_cuts(log)
        return log

    def _follow_cuts(self, log: Log) -> None:
        lower = log.before_cut

        def before_cut(offset: int) -> None:
            if self.future is not None:
                self.future.cut(offset)
            lower(offset)

        log.before_cut = before_cut

    def _unique(self) -> str:
        return self.chance.randbytes(16).hex()

    def restart(self, *, power_loss: bool, operations: int | None = None) -> None:
        """The process dies and is started again; it will be killed before the change after `operations` of its own."""
        self.restarts += 1
        self.future = None
        while True:
            self.steps.append("power loss" if power_loss else "crash")
            if power_loss:
                self.disk.power_loss(self.chance)
            else:
                self.disk.crash()
            try:
                self._start(operations)
                self.log = self._open(self._only_home())
                break
            except ProcessKilled:
                self.deaths += 1
                operations = None
        self._judge(power_loss)
        try:
            self._continue(self._home())
        except ProcessKilled:
            self.deaths += 1
            self.restart(power_loss=power_loss)

    def _only_home(self) -> int:
        homes = [number for number, each in enumerate(self.directories) if PARTITION in each.partitions()]
        if len(homes) != 1:
            names = {path: self.disk.list(path) for path in PATHS}
            raise Violation("OneLog", f"{len(homes)} logs after a restart: {names}")
        return homes[0]

    def _continue(self, home: int) -> None:
        for number, directory in enumerate(self.directories):
            for partition, name in directory.future_directories():
                assert partition == PARTITION
                assert number != home, "a future log beside the current one"
                self._open_future(home, number, name)

    # -- laws

    def _judge(self, power_loss: bool) -> None:
        log = self.log
        found = read_everything(log)
        if self.maybe is not None and found and found[-1].data == self.maybe.data:
            self.batches.append(self.maybe)
        kept = [batch for batch in self.batches if batch.header.last_offset >= log.log_start_offset]
        expected_end = min(self._end(), self.certain_end)
        if log.log_start_offset < self.deleted:
            raise Violation("NothingComesBack", f"the log starts at {log.log_start_offset} and not at {self.deleted}")
        if log.log_end_offset < self.flushed or (not power_loss and log.log_end_offset < expected_end):
            raise Violation(
                "NothingLost", f"it ends at {log.log_end_offset}: {self.flushed} were flushed of {expected_end}"
            )
        if any(batch.data in self.cut_off for batch in found):
            raise Violation("NothingComesBack", "a batch that was cut off")
        if [batch.data for batch in found] != [batch.data for batch in kept[: len(found)]]:
            raise Violation("SameBytes", f"{len(found)} batches are not those that were appended")
        self._judge_what_is_known(found)
        self.maybe, self.certain_end = None, LONG_MAX
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= log.log_end_offset]
        self.flushed = min(self.flushed, log.log_end_offset)
        self.deleted = log.log_start_offset
        self._settle_sequences()
        self.leader_epoch += 1

    def _judge_what_is_known(self, found: list[Stored]) -> None:
        log = self.log
        for batch in found:
            epoch = log.epochs.epoch_for_offset(batch.header.base_offset)
            if batch.header.base_offset >= log.log_start_offset and epoch != batch.header.leader_epoch:
                raise Violation("SameBytes", f"{epoch} is said to be the epoch of {batch.header}")
        open_since, aborted = transactions(found)
        known = {
            (each.producer_id, each.last_offset)
            for each in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        }
        if {(producer_id, last) for producer_id, _, last in aborted} - known:
            raise Violation("SameBytes", f"{aborted} were aborted, of which {known} are known")
        for producer_id, last in last_sequences(found).items():
            entry = log.producers.get(producer_id)
            if entry is None or entry.last_sequence != last:
                raise Violation("SameBytes", f"producer {producer_id} has sent {last}, and {entry} is known")
        stable = log.last_stable_offset(log.log_end_offset)
        if stable > min(open_since.values(), default=log.log_end_offset):
            raise Violation("SameBytes", f"the last stable offset is {stable}: {open_since} are open")

    def check_running(self) -> None:
        """The log as it is used, without a restart."""
        found = read_everything(self.log)
        kept = [batch for batch in self.batches if batch.header.last_offset >= self.log.log_start_offset]
        if [batch.data for batch in found] != [batch.data for batch in kept]:
            raise Violation("SameBytes", f"{len(found)} batches are read of {len(kept)}")
        self._judge_what_is_known(found)

    # -- what happens to the log

    def append(self) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            kind = self.chance.randrange(4)
            if kind == 3:
                self._append_transactional()
            else:
                self._append(build_batch([self._record() for _ in range(self.chance.choice((1, 3)))]))

    def _append_transactional(self) -> None:
        open_since, _ = transactions(self.batches)
        if open_since and self.chance.random() < 0.6:
            producer_id = self.chance.choice(sorted(open_since))
            marker = build_transaction_marker(
                committed=self.chance.random() < 0.3,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=self.clock.now_ms(),
            )
            self._append(bytearray(marker))
            return
        producer_id = self.chance.randrange(10, 13)
        entry = self.log.producers.get(producer_id)
        sequence = self.sequences.get(producer_id, 0) if entry is None else entry.last_sequence + 1
        self.sequences[producer_id] = sequence + 1
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        self._append(build_batch([self._record()], transactional=True, **options))  # type: ignore[arg-type]

    def _append(self, batch: bytearray) -> None:
        try:
            append_verified(self.log, batch, self.leader_epoch, self.clock.now_ms())
        except ProcessKilled:
            self.maybe = Stored(read_header(batch), bytes(batch))
            raise
        self.batches.append(Stored(read_header(batch), bytes(batch)))

    def _record(self) -> tuple[int, None, bytes, tuple[()]]:
        return self.clock.now_ms(), None, self.chance.randbytes(self.chance.choice((10, 300))), ()

    def cut(self) -> None:
        """A follower's tail was not its leader's; another epoch follows."""
        candidates = [
            batch.header.base_offset
            for batch in self.batches[-6:]
            if batch.header.base_offset > self.log.log_start_offset
        ]
        if candidates:
            offset = self.chance.choice(candidates)
            self.flushed = min(self.flushed, offset)
            self.certain_end = offset
            self.log.truncate_to(offset)
            self.certain_end = LONG_MAX
            self.cut_off |= {batch.data for batch in self.batches if batch.header.base_offset >= offset}
            self.batches = [batch for batch in self.batches if batch.header.base_offset < offset]
            self._settle_sequences()
        self.leader_epoch += 1

    def delete_records(self) -> None:
        offset = self.chance.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.log.advance_log_start(offset)
        self._checkpoint()
        for path in self.log.delete_old_segments(self.clock.now_ms(), self.log.log_end_offset):
            self.mount.remove(path)

    def flush(self) -> None:
        self.log.flushed(self.log.flush())
        self.flushed = max(self.flushed, self.log.recovery_point)
        if self.chance.random() < 0.5:
            self._checkpoint()

    def _checkpoint(self) -> None:
        for directory in self.directories:
            directory.write_checkpoint(directory.checkpoint({}))
        self.deleted = self.log.log_start_offset

    # -- the move

    def ask(self) -> None:
        """For a move, if there is none; else it is cancelled, sometimes."""
        if self.future is None:
            source = self._home()
            current, target = self.log.directory, 1 - source
            if self.disk.exists(f"{PATHS[target]}/{PARTITION}") or PATHS[target] in read_former_directories(
                self.mount, current
            ):
                finish_promotion(self.mount, current, self.directories[target].directory_of(PARTITION))
            self._open_future(source, target, future_directory(PARTITION, self._unique()))
        elif self.chance.random() < 0.2:
            future, self.future = self.future, None
            self.mount.remove_tree(future.target.delete_future(PARTITION, self._unique()))

    def _home(self) -> int:
        return next(number for number, each in enumerate(self.directories) if PARTITION in each.logs)

    def _open_future(self, source: int, target: int, name: str) -> None:
        directory = self.directories[target]
        log = directory.open_future(PARTITION, name, self.settings, now_ms=self.clock.now_ms(), topic_id=TOPIC_ID)
        self.future = FutureLog(self.log, log, self.directories[source], directory)

    def copy(self) -> None:
        """A piece or two, and something may happen while one is read."""
        for _ in range(self.chance.randrange(1, 4)):
            if self.future is None or not self._copy_piece():
                return

    def _copy_piece(self) -> bool:
        future = self.future
        assert future is not None
        offset = future.next_copy(self.clock.now_ms(), self._remove)
        if offset is None:
            return False
        piece = future.read(offset)()
        if self.chance.random() < 0.3:
            self.chance.choice((self.append, self.cut, self.delete_records))()
        future.append(piece, self.clock.now_ms())
        if self.chance.random() < 0.3:
            future.log.flushed(future.log.flush())
        return True

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self.mount.remove(path)

    def swap(self) -> None:
        future = self.future
        if future is None:
            return
        for _ in range(PIECES_MAX):
            if not self._copy_piece():
                break
        future.log.take_epochs(self.log)
        future.log.flushed(future.log.flush())
        future.prepare(self.mount, future.target.checkpoint({}))
        if self.chance.random() < 0.5:
            self.chance.choice((self.append, self.cut, self.delete_records, self.flush))()
        if not future.complete(self.clock.now_ms(), 1 << 20, self._remove):
            return
        former = self.log.directory
        old = future.swap(self.mount, self._unique())
        self.future = None
        self._follow_cuts(self.log)
        self.moves += 1
        if self.chance.random() < 0.3:
            self.append()
            self.flush()
        finish_promotion(self.mount, self.log.directory, former)
        assert old is not None
        self.mount.remove_tree(old)

    # -- telling it

    def step(self) -> None:
        action = self.chance.choices(ACTIONS, WEIGHTS)[0]
        self.clock.jump(self.chance.choice((0, 1, 50)))
        self.steps.append(action.__name__)
        try:
            action(self)
        except ProcessKilled:
            self.steps[-1] += " (killed)"
            self.deaths += 1
            self._die()

    def _die(self) -> None:
        operations = self.chance.choice((None, self.chance.randrange(30), self.chance.randrange(500)))
        self.restart(power_loss=self.chance.random() < 0.6, operations=operations)

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self.step()
            self.check_running()
            self.restart(power_loss=False)
            self.finish()
        except BaseException as error:
            error.add_note("The story so far:\n  " + "\n  ".join(self.steps[-60:]))
            raise

    def finish(self) -> None:
        """A move that is under way comes to its end."""
        for _ in range(100):
            if self.future is None:
                break
            self.swap()
        assert self.future is None, "the move does not come to an end"
        self.check_running()
        left = [name for path in PATHS for name in self.disk.list(path) if name.endswith("-future")]
        assert not left, left

    def _end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.deleted

    def _settle_sequences(self) -> None:
        self.sequences = {producer_id: last + 1 for producer_id, last in last_sequences(self.batches).items()}


def last_sequences(batches: list[Stored]) -> dict[int, int]:
    return {
        batch.header.producer_id: batch.header.base_sequence
        for batch in batches
        if batch.header.producer_id >= 0 and not batch.header.is_control
    }


def read_everything(log: Log) -> list[Stored]:
    found: list[Stored] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, log.log_end_offset).data
        if not data:
            break
        view = memoryview(data)
        for position, header in iterate_headers(view):
            check_crc(view, position, header)
            found.append(Stored(header, bytes(view[position : position + header.size])))
            offset = header.next_offset
    return found


WEIGHTED: list[tuple[Callable[[MovingStory], None], int]] = [
    (MovingStory.append, 20),
    (MovingStory.cut, 4),
    (MovingStory.delete_records, 3),
    (MovingStory.flush, 8),
    (MovingStory.ask, 10),
    (MovingStory.copy, 20),
    (MovingStory.swap, 8),
    (MovingStory.check_running, 4),
    (MovingStory._die, 4),
]
ACTIONS = [action for action, _ in WEIGHTED]
WEIGHTS = [weight for _, weight in WEIGHTED]
