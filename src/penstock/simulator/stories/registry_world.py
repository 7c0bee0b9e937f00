"""Twins around the registry's core: the topic `_schemas`, the group that elects the writer, and the nodes.

A node here does what `registry.node` does, in the same order, with the real state and the real decisions. Its writes
and its take-over are generators: each `yield` is a moment at which the real node waits for a thread, a broker or a
lock, and at which the process may be paused for any time, or killed. A request on its way outlives its sender.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.registry.core import records
from penstock.registry.core.candidate import Parser
from penstock.registry.core.decision import Decision
from penstock.registry.core.errors import RegistryError
from penstock.registry.core.records import SchemasRecord
from penstock.registry.core.state import State

SESSION: Final = 30  # steps, as all times here
TIMEOUT: Final = 25
Decide = Callable[[State, Parser], Decision]
Work = Generator[None, None, None]


class Stored(NamedTuple):
    offset: int
    batch: int  # the offset of its batch
    key: bytes
    value: bytes | None


@dataclass(eq=False)
class Append:
    """A batch on its way to the topic."""

    epoch: int
    batch: Sequence[SchemasRecord]
    decided_at: int | None  # what its writer had read when it decided; None if nothing was decided
    arrives: bool
    is_answered: bool  # whether the answer arrives, too
    not_before: int  # when it arrives
    is_done: bool = False
    is_fenced: bool = False
    end: int = -1  # the offset after the batch


class SchemasTopic:
    """The log of the topic's only partition, and the producer epochs of the registry's transactional id."""

    def __init__(self, chance: random.Random, events: Counter[str], clock: Callable[[], int]) -> None:
        self._chance = chance
        self._events = events
        self._clock = clock
        self.is_faulty = True
        self.log: list[Stored] = []
        self.end = 0
        self.last_epoch = 0  # given
        self.epoch = 0  # of the last batch
        self.under_way: list[Append] = []

    def take_epoch(self) -> int:
        self.last_epoch += 1
        return self.last_epoch

    def send(self, epoch: int, batch: Sequence[SchemasRecord], decided_at: int | None) -> Append:
        arrives = not self.is_faulty or self._chance.random() > 0.03
        is_answered = not self.is_faulty or self._chance.random() > 0.05
        is_late = self.is_faulty and self._chance.random() < 0.06
        late = self._chance.randint(10, 80) if is_late else 0
        append = Append(epoch, batch, decided_at, arrives, is_answered, self._clock() + late)
        self.under_way.append(append)
        if not arrives or not is_answered:
            self._events["requests and answers lost"] += 1
        return append

    def is_refused(self, append: Append) -> bool:
        return append.epoch < self.epoch

    def deliver(self, append: Append) -> bool:
        """The partition's leader takes or refuses a batch that has arrived; whether it took it."""
        self.under_way.remove(append)
        if not append.arrives:
            return False
        if self.is_refused(append):
            self._events["batches of fenced writers refused"] += 1
            append.is_fenced = append.is_done = append.is_answered
            return False
        self.epoch = max(self.epoch, append.epoch)
        first = self.end
        for record in append.batch:
            self.log.append(Stored(self.end, first, *record.encoded()))
            self.end += 1
        append.end = self.end
        append.is_done = append.is_answered
        return True

    def read(self, position: int, count: int) -> tuple[list[Stored], int]:
        """About so many records from an offset on, in whole batches, and the offset to go on at."""
        first = next((place for place, each in enumerate(self.log) if each.offset >= position), len(self.log))
        last = first + count
        while last < len(self.log) and self.log[last].batch == self.log[last - 1].batch:
            last += 1
        return self.log[first:last], self.log[last].offset if last < len(self.log) else self.end

    def compact(self, before: int, read_by_all: int) -> None:
        """Keep the last record of each key. Tombstones stay until all who read have seen them, as `delete.retention.ms`
        sees to."""
        last = {each.key: each.offset for each in self.log if each.offset < before}
        kept = []
        for each in self.log:
            if each.offset < before and (
                last[each.key] != each.offset or (each.value is None and each.offset < read_by_all)
            ):
                self._events["tombstones removed"] += each.value is None
                continue
            kept.append(each)
        self.log = kept


class Group:
    """The coordinator: who is a member, and who is elected."""

    def __init__(self) -> None:
        self.heard: dict[str, int] = {}
        self.elected: str | None = None
        self.elections = 0

    def expire(self, now: int) -> None:
        for name in [name for name, since in self.heard.items() if now - since > SESSION]:
            del self.heard[name]
        if self.elected not in self.heard:
            self.elected = None

    def heartbeat(self, name: str, now: int) -> str | None:
        """Join, or stay; the elected member, which stays so as long as it is one."""
        self.expire(now)
        self.heard[name] = now
        if self.elected is None:
            self.elected = name
            self.elections += 1
        return self.elected


@dataclass(eq=False)
class Request:
    """Of a client; `answer` is what it is told, or the error. Neither if it must ask again."""

    subject: str
    about: str
    decide: Decide
    decision: Decision | None = None
    answer: Any = None
    refused: RegistryError | None = None
    at: int = -1  # what the node that answered had read
    is_over: bool = False


@dataclass(eq=False)
class Process:
    """What a node forgets when it dies."""

    state: State = field(default_factory=State)
    parser: Parser = field(default_factory=Parser)
    position: int = 0
    is_loaded: bool = False
    is_mine: bool = False  # the last election
    elsewhere: str | None = None
    member_until: int = -1
    epoch: int | None = None  # as the writer
    waiting: deque[Request] = field(default_factory=deque)
    work: Work | None = None  # what holds `_order`


class NodeTwin:
    def __init__(self, name: str, topic: SchemasTopic, group: Group, clock: Callable[[], int]) -> None:
        self.name = name
        self.topic = topic
        self.group = group
        self.clock = clock
        self.process: Process | None = Process()
        self.paused_until = -1

    @property
    def is_paused(self) -> bool:
        return self.clock() < self.paused_until

    @property
    def is_writer(self) -> bool:
        process = self.process
        return process is not None and process.epoch is not None and self.clock() < process.member_until

    def kill(self) -> None:
        if self.process is not None:
            for request in self.process.waiting:
                request.is_over = True
        self.process = None
        self.paused_until = -1

    def start(self) -> None:
        self.process = Process()

    # -- what its tasks do --------------------------------------------------------------------------------------------

    def follow(self, process: Process, count: int) -> None:
        chunk, position = self.topic.read(process.position, count)
        for each in chunk:
            decoded = records.decode(each.key, each.value)
            process.state.replay(decoded)
            if decoded.value is None:
                process.parser.forget()
        process.position = position
        process.is_loaded = process.is_loaded or position == self.topic.end

    def campaign(self, process: Process) -> None:
        elected = self.group.heartbeat(self.name, self.clock())
        process.member_until = self.clock() + SESSION
        process.is_mine = elected == self.name
        process.elsewhere = None if process.is_mine else elected
        if not process.is_mine:
            process.epoch = None

    def work(self, process: Process) -> None:
        """Go on with what holds the lock, or begin with what waits for it."""
        if process.work is None:
            if process.is_mine and process.epoch is None and process.is_loaded and self.clock() < process.member_until:
                process.work = self.take_over(process)
            elif process.waiting:
                process.work = self.write(process, process.waiting[0])
            else:
                return
        try:
            next(process.work)
        except StopIteration:
            process.work = None

    def take_over(self, process: Process) -> Work:
        process.epoch = None
        epoch = self.topic.take_epoch()
        yield
        noted = None
        while noted != process.state.highest_ids():
            noted = process.state.highest_ids()
            append = self.topic.send(epoch, [records.noop(noted)], None)
            yield from self.answered(append)
            if not append.is_done or append.is_fenced:
                if append.is_fenced:
                    process.is_mine = False
                return
            yield from self.reached(process, append.end)
            if process.position < append.end:
                return
        process.epoch = epoch

    def write(self, process: Process, request: Request) -> Work:
        try:
            yield from self._write(process, request)
        finally:
            if process.waiting and process.waiting[0] is request:
                process.waiting.popleft()
            request.is_over = True

    def _write(self, process: Process, request: Request) -> Work:
        epoch = process.epoch
        if epoch is None or not self.is_writer:
            return
        decided_at = process.position
        try:
            decision = request.decision = request.decide(process.state, process.parser)
        except RegistryError as error:
            request.refused = error
            return
        if not decision.records:
            request.answer, request.at = decision.answer, decided_at
            return
        yield
        if process.epoch is None or self.clock() >= process.member_until:  # no longer the writer
            return
        yield  # paused here, nothing but the epoch keeps it from writing
        append = self.topic.send(epoch, decision.records, decided_at)
        yield from self.answered(append)
        if not append.is_done or append.is_fenced:
            process.epoch = None
            if append.is_fenced:
                process.is_mine = False
            return
        yield from self.reached(process, append.end)
        if process.position < append.end:
            process.epoch = None
            return
        request.answer, request.at = decision.answer, append.end

    def answered(self, append: Append) -> Work:
        deadline = self.clock() + TIMEOUT
        while not append.is_done and self.clock() < deadline:
            yield

    def reached(self, process: Process, offset: int) -> Work:
        deadline = self.clock() + TIMEOUT
        while process.position < offset and self.clock() < deadline:
            yield
