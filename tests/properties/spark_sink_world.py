"""The sink's protocol in a world of its own: brokers that are a dictionary, drivers and tasks that may stop anywhere.

Every actor is a generator, and a scheduler (seeded) says whose turn it is: a driver that is paused, given up and comes
back is only one that has no turn for a while. Steps that take several requests are taken one request at a time.
Answers get lost; drivers, their commits and their tasks die independently; attempts are started twice; a driver may
share the worker processes of one before it, as queries do that are started again in one application.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from penstock.spark.sink import two_phase
from penstock.spark.sink.two_phase import (
    Abort,
    Commit,
    Decide,
    Decision,
    Finish,
    Known,
    ListOpen,
    Lock,
    Locked,
    Look,
    NotCarriedOut,
    NotDecided,
    Prepare,
    SinkError,
    Slots,
    Step,
    Steps,
    TaskTransaction,
    ids_of,
)

SINK, QUERY = "sink", "query"

Row = tuple[int, int]
Actor = Generator[None, None, None]


class LostAnswer(Exception):
    """The request was executed, and its response is lost."""


class Refused(Exception):
    """A broker's answer to a task: fenced, or the transaction is not open."""


@dataclass
class Held:
    """A transactional id, as its coordinator knows it."""

    epoch: int = 0  # with which one may act
    begun: int = -1  # the epoch of the open transaction; -1: none is open
    kept: bool = False
    checked: bool = False  # its time-out is far away, or gone
    ended: tuple[int, bool] = (-1, False)  # the last ending: the epoch that asked for it, and whether to commit
    rows: list[Row] = field(default_factory=list)


@dataclass
class Sabotage:
    """Mistakes to be made on purpose, by name."""

    names: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.names


class World:
    def __init__(self, seed: int, *, two_phase: bool, sabotage: frozenset[str] = frozenset()) -> None:
        self.random = random.Random(seed)
        self.two_phase = two_phase
        self.sabotage = Sabotage(sabotage)
        self.held: dict[str, Held] = {}
        self.output: Counter[Row] = Counter()
        self.driver_epoch = 0
        self.known = Known()
        self.done_batch = -1
        self.committed: list[int] = []  # Spark's commit log
        self.rows_of: dict[int, int] = {}
        self.calm = False
        self.trace: list[str] = []
        self.alarm: str | None = None

    # -- requests, each at once

    def init(self, transactional_id: str) -> int:
        held = self.held.setdefault(transactional_id, Held(epoch=-1))
        if held.begun >= 0:
            self._end(transactional_id, held, commit=False)
        held.epoch += 1
        return held.epoch

    def write(self, transactional_id: str, epoch: int, row: Row) -> None:
        held = self.held[transactional_id]
        if held.epoch != epoch or held.kept:
            raise Refused(f"{transactional_id} at {held.epoch}, not {epoch}")
        if held.begun < 0:
            if held.ended[0] == epoch:
                raise Refused(f"{transactional_id}: aborted meanwhile")
            held.begun, held.rows, held.checked = epoch, [], False
        held.rows.append(row)

    def end(self, transaction: TaskTransaction, *, commit: bool) -> bool:
        """Whether that is how it ended; False if it is not ours to end."""
        held = self.held[transaction.transactional_id]
        if transaction.producer_epoch != held.epoch:
            return False
        if held.begun < 0:
            return held.ended == (held.epoch, commit)
        self._end(transaction.transactional_id, held, commit=commit)
        return True

    def _end(self, transactional_id: str, held: Held, *, commit: bool) -> None:
        self.note(f"{'commit' if commit else 'abort'} {transactional_id}@{held.begun} {held.rows}")
        if commit:
            self.output.update(held.rows)
        held.ended = (held.epoch, commit)
        held.begun, held.kept, held.rows = -1, False, []

    def keep(self, transactional_id: str) -> tuple[int, int]:
        """The epoch to act with from now on, and that of the open transaction."""
        held = self.held[transactional_id]
        held.epoch += 1
        held.kept = held.checked = held.begun >= 0
        return held.epoch, held.begun

    def expire_one(self) -> None:
        candidates = [name for name, held in self.held.items() if held.begun >= 0 and not held.checked]
        if candidates:
            name = self.random.choice(sorted(candidates))
            held = self.held[name]
            self.note(f"{name} expires")
            self._end(name, held, commit=False)
            held.epoch += 1

    def note(self, text: str) -> None:
        self.trace.append(text)

    # -- steps of the protocol, request by request

    def perform(self, step: Step, who: str) -> Generator[None, None, Any]:
        self.note(f"{who} {step}")
        answer = yield from self._requests(step)
        if not self.calm and self.random.random() < 0.01:
            raise LostAnswer(str(step))
        return answer

    def _requests(self, step: Step) -> Generator[None, None, Any]:  # noqa: C901
        match step:
            case Look():
                return Known() if "blind" in self.sabotage else self._known()
            case Lock():
                self.driver_epoch += 1
                return Locked(0, self.driver_epoch)
            case Prepare(_, transactions):
                return (yield from self._prepare(transactions))
            case Decide(locked, decision):
                yield
                self._decide(locked, decision)
                if not self.calm and self.random.random() < 0.2:  # the answer is lost, and the request repeated
                    yield
                    if locked.producer_epoch != self.driver_epoch:
                        raise two_phase.Fenced("another driver, since")
            case Commit(decision):
                for each in decision.transactions:
                    yield
                    if not self.end(each, commit=True):
                        self.alarm = f"decided and refused: {each} of batch {decision.batch}"
                        raise NotCarriedOut(self.alarm)
            case Finish(batch):
                self.done_batch = batch
            case ListOpen(parity, run):
                return self._list_open(parity, run)
            case Abort(transactions):
                for each in transactions:
                    yield
                    yield from self._abort(each)
        return None

    def _known(self) -> Known:
        return Known(self.known.decision, self.known.batch == self.done_batch)

    def _prepare(self, transactions: tuple[TaskTransaction, ...]) -> Generator[None, None, tuple[TaskTransaction, ...]]:
        prepared = []
        for each in transactions:
            yield
            held = self.held[each.transactional_id]
            if "unprepared" in self.sabotage:
                prepared.append(each)
            elif self.two_phase:
                epoch, begun = self.keep(each.transactional_id)
                if begun != each.producer_epoch:
                    raise NotDecided(f"{each} is not open")
                prepared.append(TaskTransaction(each.transactional_id, 0, epoch))
            else:
                if held.begun != each.producer_epoch or held.epoch != each.producer_epoch:
                    raise NotDecided(f"{each} is not open")
                held.checked = True
                prepared.append(each)
        return tuple(prepared)

    def _decide(self, locked: Locked, decision: Decision) -> None:
        if locked.producer_epoch != self.driver_epoch and "unfenced" not in self.sabotage:
            raise two_phase.Fenced("another driver")
        if decision.batch <= self.known.batch:
            self.alarm = f"decided twice: {decision.batch} after {self.known.batch}"
        self.known = Known(decision)

    def _list_open(self, parity: int, run: str | None) -> tuple[TaskTransaction, ...]:
        prefix = ids_of(SINK, parity, None if "any run" in self.sabotage else run)
        if "any parity" in self.sabotage:
            prefix = prefix[: len(ids_of(SINK, parity)) - 2]
        return tuple(
            TaskTransaction(name, 0, held.begun)
            for name, held in sorted(self.held.items())
            if held.begun >= 0 and name.startswith(prefix)
        )

    def _abort(self, transaction: TaskTransaction) -> Generator[None, None, None]:
        name = transaction.transactional_id
        if not self.end(transaction, commit=False) and self.two_phase and self.held[name].kept:
            epoch, begun = self.keep(name)
            yield
            if begun == transaction.producer_epoch:
                self.end(TaskTransaction(name, 0, epoch), commit=False)

    def open_ids(self) -> list[str]:
        return sorted(name for name, held in self.held.items() if held.begun >= 0)


@dataclass
class Worker:
    """A process that runs one attempt at a time."""

    slots: Slots
    busy: bool = False


@dataclass
class Story:
    """Drivers over the same checkpoint, one after the other and sometimes two at once."""

    world: World
    batches: int
    actors: list[tuple[str, Actor]] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    runs: int = 0

    def play(self, turns: int) -> None:
        world = self.world
        for _ in range(turns):
            if not self.drivers() or (len(self.drivers()) < 3 and world.random.random() < 0.01):
                self.start_driver()
            chance = world.random.random()
            if chance < 0.006:
                self.kill(world.random.randrange(len(self.actors)))
            elif chance < 0.012:
                world.expire_one()
            else:
                self.turn(world.random.randrange(len(self.actors)))
            if world.alarm is not None or len(world.committed) >= self.batches:
                return

    def finish(self) -> None:
        """Everybody dies; one driver goes on undisturbed, over the rest and two batches more."""
        while self.actors:
            self.kill(0)
        self.world.calm = True
        self.batches = max(self.batches, len(self.world.committed)) + 2
        while len(self.world.committed) < self.batches and self.world.alarm is None:
            if not self.actors:
                self.start_driver()
            self.turn(self.world.random.randrange(len(self.actors)))
        while self.actors:
            self.turn(0)

    def drivers(self) -> list[str]:
        return [name for name, _ in self.actors if name.startswith("driver")]

    def start_driver(self) -> None:
        self.runs += 1
        if not self.workers or self.world.random.random() < 0.6:
            self.workers = [Worker(Slots(f"w{self.runs}-{number}")) for number in range(3)]
        self.actors.append((f"driver-{self.runs}", self.driver(f"driver-{self.runs}", self.workers)))

    def turn(self, number: int) -> None:
        name, actor = self.actors[number]
        try:
            next(actor)
        except StopIteration:
            self.actors = [each for each in self.actors if each[1] is not actor]
        except (LostAnswer, Refused, two_phase.SinkError) as error:
            self.world.note(f"{name} fails: {error!r}")
            self.actors = [each for each in self.actors if each[1] is not actor]

    def kill(self, number: int) -> None:
        name, actor = self.actors.pop(number)
        self.world.note(f"{name} dies")
        actor.close()

    # -- who acts

    def driver(self, name: str, workers: list[Worker]) -> Actor:
        world = self.world
        while len(world.committed) < self.batches:
            batch = len(world.committed)
            world.rows_of.setdefault(batch, world.random.randint(1, 5))
            messages: list[list[TaskTransaction]] = []
            try:
                yield from self.run_tasks(name, batch, workers, messages)
                told = self.told(messages)
                protocol = two_phase.commit(SINK, batch, QUERY, told)
                if not world.calm and world.random.random() < 0.05:
                    # The thread that waits for the commit is interrupted; the process that does it goes on.
                    self.actors.append((f"commit of {name}", self.drive(protocol, f"commit of {name}")))
                    if "aborts blindly" in world.sabotage:
                        yield from self.drive(two_phase.abandon(batch, name), f"{name} (abort)")
                    return
                yield from self.drive(protocol, name)
            except (LostAnswer, Refused, two_phase.SinkError) as error:
                world.note(f"{name} batch {batch}: {error!r}")
                if world.calm:
                    raise
                if not all(messages) or "aborts decided" in world.sabotage:
                    yield from self.drive(two_phase.abandon(batch, name), f"{name} (abort)")
                return
            yield
            if batch != len(world.committed):
                return  # "concurrent update to the log": Spark stops
            world.committed.append(batch)

    def drive(self, protocol: Steps, who: str) -> Actor:
        answer: Any = None
        failure: Exception | None = None
        looks = 0
        first: Any = None
        while True:
            try:
                step = protocol.send(answer) if failure is None else protocol.throw(failure)
            except StopIteration:
                return
            yield
            try:
                answer, failure = (yield from self.world.perform(step, who)), None
            except (LostAnswer, two_phase.SinkError) as error:
                failure = error
                continue
            if isinstance(step, Look):
                looks += 1
                first = first or answer
                if "stale look" in self.world.sabotage and looks == 2:
                    answer = first

    def told(self, messages: list[list[TaskTransaction]]) -> list[TaskTransaction]:
        """One message a task; which attempt of it sent it is chance."""
        chosen = [self.world.random.choice(found) for found in messages if found]
        return [each for each in chosen if each.transactional_id]

    def run_tasks(self, name: str, batch: int, workers: list[Worker], messages: list[list[TaskTransaction]]) -> Actor:
        world = self.world
        rows = [(batch, number) for number in range(world.rows_of[batch])]
        cut = world.random.randint(1, 3)
        tasks = [rows[number::cut] for number in range(cut)]
        messages.extend([] for _ in tasks)
        attempts: list[tuple[str, Actor]] = []
        for number, task in enumerate(tasks):
            for attempt in range(1 if world.random.random() < 0.8 else 2):
                label = f"{name} task {batch}.{number}.{attempt}"
                attempts.append((label, self.attempt(name, batch, task, workers, messages[number].append)))
        self.actors.extend(attempts)
        while not all(messages):
            yield
            alive = {id(actor) for _, actor in self.actors}
            if not any(id(actor) in alive for _, actor in attempts) and not all(messages):
                raise NotDecided("tasks failed")

    def attempt(
        self, run: str, batch: int, rows: list[Row], workers: list[Worker], told: Callable[[TaskTransaction], None]
    ) -> Actor:
        world = self.world
        while True:
            free = [worker for worker in workers if not worker.busy]
            if free:
                break
            yield
        worker = world.random.choice(free)
        worker.busy = True
        try:
            known: Known = yield from world.perform(Look(), "task")
            two_phase.check_order(SINK, known, batch, QUERY)
            if known.batch == batch or not rows:
                told(TaskTransaction("", 0, 0))
                return
            name = worker.slots.take(SINK, run, batch)
            epoch = world.init(name)
            for row in rows:
                yield
                world.write(name, epoch, row)
            yield
            told(TaskTransaction(name, 0, epoch))
        finally:
            worker.busy = False


def play(seed: int, *, two_phase: bool, sabotage: frozenset[str] = frozenset(), turns: int = 1500) -> list[str]:
    """What is wrong in the end; nothing, hopefully."""
    world = World(seed, two_phase=two_phase, sabotage=sabotage)
    story = Story(world, batches=6)
    story.play(turns)
    problems = []
    try:
        if world.alarm is None:
            story.finish()
    except SinkError as error:
        problems.append(f"an undisturbed driver fails: {error!r}")
    if world.alarm is not None:
        problems.append(world.alarm)
    elif not problems:
        expected = Counter((batch, row) for batch in world.committed for row in range(world.rows_of[batch]))
        if world.output != expected:
            missing, extra = expected - world.output, world.output - expected
            problems.append(f"missing {dict(missing)}, too often {dict(extra)}")
        if world.open_ids():
            problems.append(f"left open: {world.open_ids()}")
    if problems:
        problems += ["---", *world.trace[-200:]]
    return problems
