"""Performs the steps of the two-phase protocol: a few requests each, to coordinators and the decisions topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import Cluster
from penstock.client.wire.prepared import ONGOING, PreparedTransactions
from penstock.client.wire.transaction import ProducerIdentity, Transaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.spark.sink.decisions import DecisionLog
from penstock.spark.sink.options import ProducerSettings
from penstock.spark.sink.two_phase import (
    Abort,
    Commit,
    Decide,
    Decision,
    Fenced,
    Finish,
    ListOpen,
    Lock,
    Locked,
    Look,
    NotCarriedOut,
    NotDecided,
    Prepare,
    Step,
    Steps,
    TaskTransaction,
    driver_id,
    ids_of,
)

logger = logging.getLogger("penstock.spark")

COORDINATOR_S = 60.0
DECISION_TIMEOUT_MS = 10_000
# Without two-phase commit a decision must be carried out before the transactions time out. This much time must be left,
# or half of the time-out if that is less.
TIME_LEFT_MS = 60_000

_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
_ONE_PHASE_ONLY = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class SinkBrokers:
    """The sink's connections to one cluster; one per process, shared by any number of sinks."""

    def __init__(self, settings: ProducerSettings, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._bootstrap = settings.bootstrap
        self.cluster = Cluster(settings.bootstrap, timeout=settings.request_timeout)
        self.decisions = DecisionLog(
            settings.bootstrap, timeout=settings.delivery_timeout, request_timeout=settings.request_timeout
        )
        self._transactions = PreparedTransactions(self.cluster, timeout=COORDINATOR_S)
        self._two_phase: bool | None = None
        self._adopted = False

    def close(self) -> None:
        self.cluster.close()
        self.decisions.close()

    def run(self, sink: str, steps: Steps) -> None:
        """An error in a step is thrown into the protocol, which decides what it means."""
        answer: Any = None
        failure: Exception | None = None
        while True:
            try:
                step = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            try:
                answer, failure = self.perform(sink, step), None
            except (KafkaError, ClientError) as error:
                failure = error

    def perform(self, sink: str, step: Step) -> Any:
        match step:
            case Look():
                known = self.decisions.known(sink)
                self._adopt()
                return known
            case Lock():
                return self._lock(sink)
            case Prepare(batch, transactions):
                return tuple(self._prepare(sink, batch, each) for each in transactions)
            case Decide(locked, decision):
                return self._decide(sink, locked, decision)
            case Commit(decision):
                for each in decision.transactions:
                    self.commit(sink, decision.batch, each)
            case Finish(batch):
                self.decisions.note_done(sink, batch)
            case ListOpen(parity, run):
                return self._list_open(ids_of(sink, parity, run))
            case Abort(transactions):
                for each in transactions:
                    self._abort_quietly(each)
        return None

    def commit(self, sink: str, batch: int, transaction: TaskTransaction) -> None:
        """Commit one transaction of a decision."""
        try:
            self._transactions.end(transaction.transactional_id, _pair(transaction), commit=True)
        except KafkaError as error:
            raise NotCarriedOut(
                f"batch {batch} of sink {sink!r} is decided, and what it wrote to {', '.join(transaction.partitions)} "
                f"cannot be committed: {error}. The transaction timed out or was aborted by hand: restore these rows, "
                f"and go on with another sinkId"
            ) from error

    def _lock(self, sink: str) -> Locked:
        identity = Transaction(
            self._bootstrap, driver_id(sink), transaction_timeout_ms=DECISION_TIMEOUT_MS, cluster=self.cluster
        ).identity
        return Locked(identity.producer_id, identity.producer_epoch)

    def _prepare(self, sink: str, batch: int, transaction: TaskTransaction) -> TaskTransaction:
        if self._is_two_phase():
            try:
                kept = self._transactions.keep(transaction.transactional_id)
            except KafkaError as error:
                if error.code not in _ONE_PHASE_ONLY:
                    raise NotDecided(f"batch {batch} of sink {sink!r} is not written: {error}") from error
                self._say_one_phase(str(error))
            else:
                if kept.ongoing != _pair(transaction):
                    raise self._not_open(sink, batch, transaction)
                return TaskTransaction(transaction.transactional_id, *kept.pair, transaction.partitions)
        found = self._transactions.describe(transaction.transactional_id)
        if (
            found is None
            or found.state != ONGOING
            or (found.producer_id, found.producer_epoch) != _pair(transaction)
            or found.start_ms is None
        ):
            raise self._not_open(sink, batch, transaction)
        left_ms = found.start_ms + found.timeout_ms - int(self._now() * 1000)
        if left_ms < min(TIME_LEFT_MS, found.timeout_ms // 2):
            raise NotDecided(
                f"batch {batch} of sink {sink!r} is not written: it took too long for a transaction of "
                f"{found.timeout_ms} ms; raise kafka.transaction.timeout.ms, or write smaller batches"
            )
        return transaction

    def _not_open(self, sink: str, batch: int, transaction: TaskTransaction) -> NotDecided:
        return NotDecided(
            f"batch {batch} of sink {sink!r} is not written: {transaction.transactional_id} is not open any more. It "
            f"timed out (raise kafka.transaction.timeout.ms, or write smaller batches) or was aborted"
        )

    def _decide(self, sink: str, locked: Locked, decision: Decision) -> None:
        transaction = Transaction(
            self._bootstrap,
            driver_id(sink),
            identity=ProducerIdentity(locked.producer_id, locked.producer_epoch),
            cluster=self.cluster,
        )
        try:
            self.decisions.write(sink, decision, transaction)
            transaction.commit()
        except KafkaError as error:
            if error.code in _FENCED:
                raise Fenced(
                    f"batch {decision.batch} of sink {sink!r} is not written by this driver: another one took over "
                    f"({error.code.name}); two queries must not share a sinkId or a checkpoint"
                ) from error
            raise

    def _list_open(self, prefix: str) -> tuple[TaskTransaction, ...]:
        described = map(self._transactions.describe, self._transactions.open_ids(prefix))
        return tuple(
            TaskTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
            for each in described
            if each is not None and each.state == ONGOING
        )

    def _abort_quietly(self, transaction: TaskTransaction) -> None:
        """A failure only delays readers: time-outs or the next batch end what stays open."""
        try:
            self._abort(transaction)
        except (KafkaError, ClientError) as error:
            logger.info("%s stays open for now: %s", transaction.transactional_id, error)

    def _abort(self, transaction: TaskTransaction) -> None:
        name, pair = transaction.transactional_id, _pair(transaction)
        try:
            self._transactions.end(name, pair, commit=False)
        except KafkaError as error:
            if error.code not in _FENCED or not self._is_two_phase():
                raise
            found = self._transactions.describe(name)
            if found is None or found.state != ONGOING or (found.producer_id, found.producer_epoch) != pair:
                raise
            kept = self._transactions.keep(name)  # it was prepared, so another pair ends it
            if kept.ongoing == pair:
                self._transactions.end(name, kept.pair, commit=False)

    def _adopt(self) -> None:
        """Commit decided writes without a name whose driver died before it committed them."""
        if self._adopted:
            return
        self._adopted = True
        for sink, decision in self.decisions.nameless().items():
            try:
                for each in decision.transactions:
                    self.commit(sink, decision.batch, each)
                self.decisions.note_done(sink, decision.batch)
            except (KafkaError, ClientError) as error:
                logger.warning("%s", error)

    def _is_two_phase(self) -> bool:
        if self._two_phase is None:
            self._two_phase = self._transactions.supports_two_phase()
            if not self._two_phase:
                self._say_one_phase("transaction.two.phase.commit.enable is off, or not known to them")
        return self._two_phase

    def _say_one_phase(self, why: str) -> None:
        self._two_phase = False
        logger.warning(
            "brokers have no two-phase commit (%s): a batch that is decided must be committed before "
            "transaction.timeout.ms ends, also if the driver dies in between; start it again in time",
            why,
        )


def _pair(transaction: TaskTransaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.producer_epoch
