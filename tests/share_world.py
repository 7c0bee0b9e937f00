"""A share partition with a log, a clock and members, driven by lines of text.

    log 0-4 5-9                   the batches of the log
    settings limit=3 lock=1000    of the group
    restore start=2 2-4:AVAILABLE:1
    fetch ada max=5               also: strict, batch=N, read=N (batches), aborted=5-9
    ack ada 0-2 ACCEPT 3-4 REJECT,RELEASE
    persist, fail                 the oldest write
    dead-lettered                 the oldest dead letters
    wait 1000, end ada, delete 3

Each command tells what was acquired or written, and ends with the states: `+` marks those that wait for a write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from penstock.model.errors import KafkaError
from penstock.shares.share_partition import SharePartition
from penstock.shares.states import (
    Acknowledgement,
    AcknowledgeType,
    AcquireMode,
    DeadLetter,
    DeliverySettings,
    RecordState,
    Span,
    StateBatch,
    Write,
)


def span(text: str) -> Span:
    first, _, last = text.partition("-")
    return Span(int(first), int(last or first))


class ShareWorld:
    def __init__(self) -> None:
        self.now = 1000
        self.log: list[Span] = []
        self.settings = DeliverySettings(record_lock_duration_ms=1000, delivery_count_limit=5, max_record_locks=200)
        self.writes: deque[Write] = deque()
        self.letters: deque[DeadLetter] = deque()
        self.partition = SharePartition(lambda: self.settings, 0)
        self._commands: dict[str, Callable[..., Iterable[str]]] = {
            "settings": self.set_settings,
            "log": self.set_log,
            "restore": self.restore,
            "fetch": self.fetch,
            "ack": self.ack,
            "end": self.end,
            "wait": self.wait,
            "delete": self.delete,
            "persist": self.persist,
            "fail": self.fail,
            "dead-lettered": self.dead_lettered,
        }

    def execute(self, command: str) -> Iterable[str]:
        for line in command.splitlines():
            name, *words = line.split()
            options = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [word for word in words if "=" not in word]
            try:
                yield from self._commands[name](*plain, **options)
            except KafkaError as error:
                yield f"! {error.code.name}"
        yield self.state()

    def state(self) -> str:
        partition = self.partition
        runs = [
            f"{run.first}-{run.last} {run.state.name}{'+' if run.transition else ''} x{run.delivery_count}"
            f"{' ' + run.member if run.member else ''}"
            for run in partition._in_flight
        ]
        offsets = f"start={partition.start_offset} end={partition.end_offset} next={partition.next_fetch_offset}"
        return "= " + "; ".join([offsets, *runs])

    # -- commands -----------------------------------------------------------------------------------------------------

    def set_settings(self, **options: str) -> Iterator[str]:
        self.settings = DeliverySettings(
            record_lock_duration_ms=int(options.get("lock", 1000)),
            delivery_count_limit=int(options.get("limit", 5)),
            max_record_locks=int(options.get("locks", 200)),
            renew_enabled=options.get("renew") != "no",
            has_dead_letter_queue=options.get("letters") == "yes",
        )
        yield from ()

    def set_log(self, *batches: str) -> Iterator[str]:
        self.log = [span(each) for each in batches]
        yield from ()

    def restore(self, *batches: str, start: str) -> Iterator[str]:
        found = []
        for each in batches:
            offsets, state, count = each.split(":")
            found.append(StateBatch(*span(offsets), RecordState[state], int(count)))
        self.partition = SharePartition(lambda: self.settings, int(start), found)
        self.letters.extend(self.partition.dead_letters())
        yield from (self._told(letter) for letter in self.letters)

    def fetch(self, member: str, *flags: str, **options: str) -> Iterator[str]:
        offset = self.partition.next_fetch_offset
        batches = [each for each in self.log if each.last >= offset][: int(options.get("read", 99))]
        acquired = self.partition.acquire(
            member,
            offset,
            batches,
            self.now,
            max_records=int(options.get("max", 500)),
            batch_size=int(options.get("batch", 500)),
            mode=AcquireMode.RECORD_LIMIT if "strict" in flags else AcquireMode.BATCH_OPTIMIZED,
            aborted=[span(each) for each in options.get("aborted", "").split(",") if each],
        )
        yield from (f"> {member} {first}-{last} x{count}" for first, last, count in acquired)
        if not acquired:
            yield f"> {member} nothing"

    def ack(self, member: str, *words: str) -> Iterator[str]:
        acknowledgements = [
            Acknowledgement(*span(offsets), tuple(AcknowledgeType[kind] for kind in types.split(",")))
            for offsets, types in zip(words[::2], words[1::2], strict=True)
        ]
        yield from self._wrote(self.partition.acknowledge(member, acknowledgements, self.now))

    def end(self, member: str) -> Iterator[str]:
        yield from self._wrote(self.partition.release(member))

    def wait(self, ms: str) -> Iterator[str]:
        self.now += int(ms)
        yield from self._wrote(self.partition.expire(self.now))

    def delete(self, log_start: str) -> Iterator[str]:
        self.partition.log_starts_at(int(log_start))
        yield from ()

    def persist(self) -> Iterator[str]:
        write = self.writes.popleft()
        self.partition.committed(write)
        self.letters.extend(write.dead_letters)
        yield from (self._told(letter) for letter in write.dead_letters)

    def fail(self) -> Iterator[str]:
        yield from self._wrote(self.partition.failed(self.writes.popleft(), self.now))

    def dead_lettered(self) -> Iterator[str]:
        yield from self._wrote(self.partition.dead_lettered(self.letters.popleft()))

    def _wrote(self, write: Write | None) -> Iterator[str]:
        if write is not None:
            self.writes.append(write)
            batches = [f"{first}-{last} {state.name} x{count}" for first, last, state, count in write.batches]
            kind = "tell" if write.is_firm else "write"
            done = f"start={write.start_offset} done={write.delivery_complete_count}"
            yield f"+ {kind} " + "; ".join([done, *batches])

    @staticmethod
    def _told(letter: DeadLetter) -> str:
        return f"> dead letters {letter.first}-{letter.last} x{letter.delivery_count} {letter.reason.name}"
