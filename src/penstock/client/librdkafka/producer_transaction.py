"""Transactions: records, and the offsets of their input, that take effect together or not at all.

    with producer.transaction() as transaction:
        for record in consumer.batch(500):
            producer.send("counts", count(record))
        transaction.send_offsets(consumer)

Leaving the block commits. An exception in it aborts; then consumers that read committed records, as ours and all of
librdkafka do by default, see nothing of the block. The consumer's position is still after the records it has read:
`consumer.rewind()` moves it back to the committed offsets.

If the cluster refuses the commit of this transaction only, `TransactionAborted` is raised: repeat the work. `Fenced`
ends the producer: another one with its `transactional_id` has started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from confluent_kafka import KafkaException

from penstock.client.errors import ClientError, TransactionAborted
from penstock.client.librdkafka.library import client_error, logger


class ReadsInGroup(Protocol):
    """The interface of a consumer for a transaction."""

    def offsets_for_transaction(self) -> tuple[list[Any], Any]: ...


class Transactions:
    """A producer's transactions, one after the other. Each step blocks until the coordinator has executed it."""

    def __init__(
        self, client: Any, transactional_id: str | None, timeout: float, forget_failures: Callable[[], None]
    ) -> None:
        """`forget_failures` drops failed records of a transaction that is aborted, which no longer matter."""
        self._client = client
        self._transactional_id = transactional_id
        self._timeout = timeout
        self._forget_failures = forget_failures
        self._ready = False
        self.open = False

    def begin(self) -> None:
        if self._transactional_id is None:
            raise ClientError('transactions need Producer(..., transactional_id="...")')
        if self.open:
            raise ClientError("this producer has a transaction open already; they do not nest")
        if not self._ready:
            self._step("init_transactions")
            self._ready = True
        self._step("begin_transaction", bounded=False)
        self.open = True

    def send_offsets(self, offsets: list[Any], group: Any) -> None:
        self._step("send_offsets_to_transaction", offsets, group)

    def commit(self) -> None:
        self.open = False
        try:
            self._step("commit_transaction")
        except TransactionAborted:
            self.abort()
            raise

    def abort(self) -> None:
        """Abort the transaction; records not sent yet are not sent."""
        self.open = False
        self._step("abort_transaction")
        self._forget_failures()

    def close(self) -> None:
        """Abort a transaction that is open when its producer closes, as if its block had raised."""
        if self.open:
            self.abort()

    def _step(self, name: str, *arguments: Any, bounded: bool = True) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            try:
                getattr(self._client, name)(*arguments, *([left] if bounded else []))
                return
            except KafkaException as error:
                cause = error.args[0]
                about = f"{name} of {self._transactional_id!r}"
                if cause.retriable() and time.monotonic() < deadline:
                    logger.info("%s: %s; again", about, cause.str())
                elif cause.txn_requires_abort():
                    raise TransactionAborted(f"{about}: {cause.str()}; nothing of it counts, do it again") from error
                else:
                    raise client_error(error, about) from error


class Transaction:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __enter__(self) -> Transaction:
        self._transactions.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._transactions.commit()
            return
        try:
            self._transactions.abort()
        except ClientError as failure:
            error.add_note(f"and the transaction could not be aborted: {failure}")

    def send_offsets(self, consumer: ReadsInGroup) -> None:
        """Commit the consumer's positions with the transaction; all records that it has returned count as processed."""
        self._transactions.send_offsets(*consumer.offsets_for_transaction())
