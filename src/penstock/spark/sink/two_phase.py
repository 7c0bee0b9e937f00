"""A batch of many tasks, written once: two-phase commit over the transactions of tasks, with one decision a batch.

Every task writes in a transaction of its own and leaves it open; its message to the driver names it. `commit` takes the
messages of a batch and decides: one record, keyed by the sink, says which transactions make up the batch. What is
decided is carried out, by whoever finds it; everything else that tasks of the batch left open is aborted.

Nothing here talks to brokers: a protocol is a generator of steps, whoever drives it performs each and sends the answer
back. So the same text runs against real brokers and against a model that crashes between any two steps.

Tasks may run twice, a batch that is repeated may be cut differently, a driver that was given up may come back. Laws:

- *A producer epoch is one transaction.* A task takes a new epoch for its transactional id before it writes, so
  (id, producer id, epoch) never means two attempts.
- *A transactional id belongs to one process, and serves one attempt of a batch.* It is used again only two batches
  later: `Slots`. So the parity of its batch is in its name.
- *Batches follow each other.* Tasks of batch n+1 start only when n is committed, so only after n was decided. Hence,
  with n the last decision: whatever of the parity of n is open belongs to n or to batches before it, and what the
  decision does not list will never be committed. Anybody may abort it (`_sweep`: first list, then look at the
  decision; if it still is n, all that was listed was of the past).
- *One decides at a time.* `Lock` takes a new epoch of the driver's transactional id, and the decision is written in a
  transaction under it. Who has decided before is visible then, and who wanted to is fenced: for good, as nobody locks
  twice.
- *Only a commit decides on what it was told.* So, if it gives up, it may abort that; nobody else may, since it could be
  running somewhere still. `abandon` is for batches whose commit was never asked for, because tasks have failed: a run
  of the query ends with that, so whatever its tasks left open, or open while they are being stopped, is to be aborted.
  The run is in the name of transactional ids, because of other runs nobody knows what they decide.
- *What is prepared does not change.* `Prepare` verifies that each transaction is open under the epoch that was told. On
  brokers with KIP-939 it also takes the right to end it away from everybody else, and the time-out with it. On others
  it makes sure that there is time enough left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.client.errors import ClientError

PREFIX = "penstock"


class SinkError(ClientError):
    """The base of what stops a batch."""


class NotDecided(SinkError):
    """The batch is not written, and will not be: it has to be done again."""


class Fenced(NotDecided):
    """Another driver of this sink took over."""


class NotCarriedOut(SinkError):
    """The batch is decided, and brokers refuse to commit a part of it."""


class OlderCheckpoint(SinkError):
    """The topic has later batches of this sink than the checkpoint knows."""


class OtherQuery(SinkError):
    """The sink's id is that of another query."""


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of one attempt of a task, by the pair with which it is to be ended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[str, ...] = field(default=(), compare=False)  # that it wrote to, for messages to people


@dataclass(frozen=True, slots=True)
class Decision:
    batch: int
    query: str  # whose batches they are; empty for writes that are no stream
    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What the decisions' topic says of a sink."""

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


# -- steps, each with the answer it gets


@dataclass(frozen=True, slots=True)
class Look:
    """-> Known. All that was decided before the question."""


@dataclass(frozen=True, slots=True)
class Lock:
    """-> Locked. Fences every earlier lock, and ends what it left half decided."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """-> the transactions, by the pairs that end them from now on. NotDecided if one is not open."""

    batch: int
    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True)
class Decide:
    """Fenced if there was another lock since."""

    locked: Locked
    decision: Decision


@dataclass(frozen=True, slots=True)
class Commit:
    """What is committed already is no error. NotCarriedOut if it cannot be."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Finish:
    """A note that saves others the work; not fenced, and nothing depends on it."""

    batch: int


@dataclass(frozen=True, slots=True)
class ListOpen:
    """-> the open transactions of the sink's tasks, of batches with this parity; of all runs, if none is said."""

    parity: int
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Each only if it still is the one that is open under its id."""

    transactions: tuple[TaskTransaction, ...]


Step: TypeAlias = Look | Lock | Prepare | Decide | Commit | Finish | ListOpen | Abort
Steps: TypeAlias = Generator[Step, Any, None]


# -- the driver


def commit(sink: str, batch: int, query: str, told: Sequence[TaskTransaction]) -> Steps:
    """All of the batch, or none of it; nothing, if it was decided before."""
    try:
        agreed = yield from _prepare(sink, batch, query, tuple(told))
    except Exception:
        yield Abort(tuple(told))
        raise
    if isinstance(agreed, Known):
        yield from _settle(agreed, batch, told)
        return
    try:
        yield agreed
    except Fenced:
        # A request that was repeated is fenced, too, if the first one was heard: only the record tells.
        known: Known = yield Look()
        if known.decision != agreed.decision:
            yield Abort(tuple(told))
            raise
    yield from _carry_out(Known(agreed.decision))
    yield from _sweep(batch)


def abandon(batch: int, run: str) -> Steps:
    """Tasks of the batch have failed, so that it is not committed: abort what the others have written."""
    found: tuple[TaskTransaction, ...] = yield ListOpen(batch % 2, run)
    yield Abort(found)


def check_order(sink: str, known: Known, batch: int, query: str) -> None:
    """Batches of one query, each after the last one that was decided, or that one again."""
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
    sink: str, batch: int, query: str, told: tuple[TaskTransaction, ...]
) -> Generator[Step, Any, Known | Decide]:
    """The decision that can be made; or what is known, if there is none to be made."""
    known: Known = yield Look()
    check_order(sink, known, batch, query)
    if known.batch == batch or not told:
        return known
    locked: Locked = yield Lock()
    known = yield Look()
    check_order(sink, known, batch, query)
    if known.batch == batch:
        return known
    yield from _carry_out(known)
    prepared: tuple[TaskTransaction, ...] = yield Prepare(batch, told)
    return Decide(locked, Decision(batch, query, prepared))


def _settle(known: Known, batch: int, told: Sequence[TaskTransaction]) -> Steps:
    """Nothing is left to be decided: what was is carried out, what tasks wrote once more is aborted."""
    yield from _carry_out(known)
    losers = _without(known, told)
    if losers:
        yield Abort(losers)
    if known.batch == batch:
        yield from _sweep(batch)


def _carry_out(known: Known) -> Steps:
    if known.decision is not None and not known.done:
        yield Commit(known.decision)
        yield Finish(known.decision.batch)


def _sweep(batch: int) -> Steps:
    """Attempts that lost, and what earlier runs of the batch left behind."""
    found: tuple[TaskTransaction, ...] = yield ListOpen(batch % 2)
    if found:
        known: Known = yield Look()
        if known.batch == batch:
            yield Abort(_without(known, found))


def _without(known: Known, transactions: Iterable[TaskTransaction]) -> tuple[TaskTransaction, ...]:
    return tuple(each for each in transactions if each.transactional_id not in known.ids)


# -- the tasks


class Slots:
    """The transactional ids of one process: how many it has is how many attempts of one batch it has run."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._used: dict[str, tuple[int, int]] = {}

    def take(self, sink: str, run: str, batch: int) -> str:
        """For one attempt of a task. Those of a batch that comes again are not given again."""
        names = ids_of(sink, batch % 2, run)
        last, used = self._used.get(names, (batch, 0))
        slot = 0 if batch > last else used
        self._used[names] = (max(batch, last), slot + 1)
        return f"{names}{self._worker}.{slot}"


def ids_of(sink: str, parity: int, run: str | None = None) -> str:
    """How the transactional ids of a sink's tasks begin."""
    return f"{PREFIX}.{sink}.{parity}." + ("" if run is None else f"{run}.")


def driver_id(sink: str) -> str:
    return f"{PREFIX}.{sink}.driver"
