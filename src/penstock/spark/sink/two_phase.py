"""Writes a batch of many tasks exactly once: two-phase commit over the tasks' transactions, one decision per batch.

Every task writes in a transaction of its own and leaves it open; its message to the driver names the transaction.
`commit` receives the messages of a batch and decides: one record in `__spark_decisions`, keyed by the sink, lists the
transactions that make up the batch. Any driver that finds a decision carries it out. Everything else that tasks of the
batch left open is aborted.

Nothing here talks to brokers. A protocol is a generator of steps; its driver performs each step and sends the answer
back. So the same code runs against real brokers and against a model, and tests crash it between any two steps.

Tasks may run twice, a repeated batch may be split differently, and a driver that was given up may come back. Laws:

- *A producer epoch is one transaction.* A task takes a new epoch for its transactional id before it writes, so (id,
  producer id, epoch) never means two attempts.
- *A transactional id belongs to one process, and serves one attempt of a batch.* It is used again only two batches
  later: `Slots`. So its name contains the parity of its batch.
- *Batches follow each other.* Tasks of batch n+1 start only when n is committed, so only after n was decided. Hence,
  with n the last decision: every open transaction with the parity of n belongs to n or to an earlier batch, and one
  that the decision does not list will never be committed. Any process may abort it (`_sweep`: first list, then read the
  decision; if it still is n, all listed transactions are obsolete).
- *One driver decides at a time.* `Lock` takes a new epoch of the driver's transactional id, and the decision is written
  in a transaction under that epoch. The lock makes earlier decisions visible and fences drivers that were about to
  decide: for good, as no driver locks twice.
- *Only a commit decides on the transactions in its messages.* So if a commit gives up, it may abort them; no other
  process may, since the commit could still be running. `abandon` is for batches whose commit was never requested,
  because tasks have failed. The run of the query ends with that, so everything that its tasks left open, or open while
  they are being stopped, is to be aborted. Transactional ids contain the run, because it is unknown what other runs
  decide.
- *What is prepared does not change.* `Prepare` verifies that each transaction is open under the epoch in its message.
  On brokers with KIP-939 it also takes the right to end the transaction from all others, and removes the time-out. On
  other brokers it checks that enough time is left.

This differs from the usual two-phase sink in three ways:

- The lock is taken at the commit and not at the start. Spark tells a Python sink neither query nor batch before, and a
  zombie that starts a batch must not fence a healthy driver.
- Every attempt of a task takes a new epoch, so that a pair of producer id and epoch is one transaction.
- Tasks have ordinary time-outs, and only prepared transactions have none. So a query that died while it wrote cannot
  block readers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.client.errors import ClientError

PREFIX = "penstock"


class SinkError(ClientError):
    """The base of the errors that stop a batch."""


class NotDecided(SinkError):
    """The batch is not written, and will not be: it must be repeated."""


class Fenced(NotDecided):
    """Another driver of this sink has taken over."""


class NotCarriedOut(SinkError):
    """The batch is decided, but brokers refuse to commit a part of it."""


class OlderCheckpoint(SinkError):
    """The topic has later batches of this sink than the checkpoint."""


class OtherQuery(SinkError):
    """The sink's id belongs to another query."""


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of one attempt of a task, with the pair that ends it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[str, ...] = field(default=(), compare=False)  # the partitions it wrote to, for messages to users


@dataclass(frozen=True, slots=True)
class Decision:
    batch: int
    query: str  # the query of the batches; empty for batch writes
    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What the decisions topic says about a sink."""

    decision: Decision | None = None
    done: bool = False  # everything decided is known to be committed

    @property
    def batch(self) -> int:
        return -1 if self.decision is None else self.decision.batch

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(each.transactional_id for each in self.decision.transactions) if self.decision else frozenset()


@dataclass(frozen=True, slots=True)
class Locked:
    producer_id: int
    producer_epoch: int


# -- The steps, each with its answer.


@dataclass(frozen=True, slots=True)
class Look:
    """-> Known. Everything that was decided before the step."""


@dataclass(frozen=True, slots=True)
class Lock:
    """-> Locked. Fences every earlier lock, and ends the transaction that it left open."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """-> the transactions, with the pairs that end them from now on. NotDecided if one is not open."""

    batch: int
    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True)
class Decide:
    """Fenced if another lock was taken since."""

    locked: Locked
    decision: Decision


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction that is committed already is no error. NotCarriedOut if one cannot be committed."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Finish:
    """A note that saves others the work. It is not fenced, and nothing depends on it."""

    batch: int


@dataclass(frozen=True, slots=True)
class ListOpen:
    """-> the open transactions of the sink's tasks, of batches with this parity; of all runs, if `run` is None."""

    parity: int
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Aborts each transaction only if it is still the open one of its id."""

    transactions: tuple[TaskTransaction, ...]


Step: TypeAlias = Look | Lock | Prepare | Decide | Commit | Finish | ListOpen | Abort
Steps: TypeAlias = Generator[Step, Any, None]


# -- The driver.


def commit(sink: str, batch: int, query: str, transactions: Sequence[TaskTransaction]) -> Steps:
    """Commit the whole batch or nothing of it; if it was decided before, write nothing."""
    try:
        agreed = yield from _prepare(sink, batch, query, tuple(transactions))
    except Exception:
        yield Abort(tuple(transactions))
        raise
    if isinstance(agreed, Known):
        yield from _settle(agreed, batch, transactions)
        return
    try:
        yield agreed
    except Fenced:
        # A repeated request is fenced, too, if the first one was received: only the record tells.
        known: Known = yield Look()
        if known.decision != agreed.decision:
            yield Abort(tuple(transactions))
            raise
    yield from _carry_out(Known(agreed.decision))
    yield from _sweep(batch)


def abandon(batch: int, run: str) -> Steps:
    """Tasks of the batch have failed, so it is not committed: abort what the other tasks wrote."""
    found: tuple[TaskTransaction, ...] = yield ListOpen(batch % 2, run)
    yield Abort(found)


def check_order(sink: str, known: Known, batch: int, query: str) -> None:
    """Check that a batch of the same query follows the last decided one, or is that one again."""
    decision = known.decision
    if decision is None:
        return
    if decision.query != query:
        owner = f"query {decision.query}" if decision.query else "writes that are no stream"
        raise OtherQuery(
            f"sinkId={sink!r} belongs to {owner}, which wrote batch {decision.batch}: "
            f"choose another sinkId, or start from the checkpoint of that query"
        )
    if batch < decision.batch:
        what = f"the checkpoint is older than the topic: batch {batch}" if query else f"version={batch}"
        way_out = "restore the checkpoint" if query else "give a later version"
        raise OlderCheckpoint(
            f"{what} comes after {decision.batch} was written by sink {sink!r}; "
            f"{way_out}, or choose another sinkId to write everything again"
        )


def _prepare(
    sink: str, batch: int, query: str, transactions: tuple[TaskTransaction, ...]
) -> Generator[Step, Any, Known | Decide]:
    """The decision to make; or what is known, if there is none to make."""
    known: Known = yield Look()
    check_order(sink, known, batch, query)
    if known.batch == batch or not transactions:
        return known
    locked: Locked = yield Lock()
    known = yield Look()
    check_order(sink, known, batch, query)
    if known.batch == batch:
        return known
    yield from _carry_out(known)
    prepared: tuple[TaskTransaction, ...] = yield Prepare(batch, transactions)
    return Decide(locked, Decision(batch, query, prepared))


def _settle(known: Known, batch: int, transactions: Sequence[TaskTransaction]) -> Steps:
    """Nothing is left to decide: carry out the decision, and abort what tasks wrote a second time."""
    yield from _carry_out(known)
    losers = _without(known, transactions)
    if losers:
        yield Abort(losers)
    if known.batch == batch:
        yield from _sweep(batch)


def _carry_out(known: Known) -> Steps:
    if known.decision is not None and not known.done:
        yield Commit(known.decision)
        yield Finish(known.decision.batch)


def _sweep(batch: int) -> Steps:
    """Abort attempts that lost, and transactions that earlier runs of the batch left open."""
    found: tuple[TaskTransaction, ...] = yield ListOpen(batch % 2)
    if found:
        known: Known = yield Look()
        if known.batch == batch:
            yield Abort(_without(known, found))


def _without(known: Known, transactions: Iterable[TaskTransaction]) -> tuple[TaskTransaction, ...]:
    return tuple(each for each in transactions if each.transactional_id not in known.ids)


# -- The tasks.


class Slots:
    """The transactional ids of one process: as many as the attempts of one batch that it has run."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._used: dict[str, tuple[int, int]] = {}

    def take(self, sink: str, run: str, batch: int) -> str:
        """An id for one attempt of a task. If a batch is repeated, its earlier ids are not given again."""
        names = ids_of(sink, batch % 2, run)
        last, used = self._used.get(names, (batch, 0))
        slot = 0 if batch > last else used
        self._used[names] = (max(batch, last), slot + 1)
        return f"{names}{self._worker}.{slot}"


def ids_of(sink: str, parity: int, run: str | None = None) -> str:
    """The prefix of the transactional ids of a sink's tasks."""
    return f"{PREFIX}.{sink}.{parity}." + ("" if run is None else f"{run}.")


def driver_id(sink: str) -> str:
    return f"{PREFIX}.{sink}.driver"
