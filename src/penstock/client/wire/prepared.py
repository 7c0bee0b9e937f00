"""Open transactions of other processes: find them, take over the right to end them, and end them.

For a coordinator of a commit of many transactions. It needs no producer, only the transactional ids and pairs that the
writers have reported. With two-phase commit (KIP-939) `keep` takes over an open transaction: it continues under the
pair it was begun with, without a time-out, and only the pair that `keep` returns can end it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.admin.transactions import TransactionDescription, Transactions
from penstock.client.wire.cluster import Cluster, CoordinatorType
from penstock.client.wire.transaction import END_NEWEST, persistently
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ONGOING = "Ongoing"
TWO_PHASE_SINCE = 6
_PATTERN_SINCE = 2

Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class KeptTransaction:
    pair: Pair  # the pair that can end it
    ongoing: Pair | None  # the pair it was begun with; None: no transaction is open


class PreparedTransactions:
    def __init__(self, cluster: Cluster, *, timeout: float) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._transactions = Transactions(cluster)
        self._coordinators: dict[str, int] = {}

    def supports_two_phase(self) -> bool:
        return persistently(
            self._cluster,
            self._timeout,
            lambda: self._cluster.served(ApiKey.INIT_PRODUCER_ID) >= TWO_PHASE_SINCE,
        )

    def keep(self, transactional_id: str) -> KeptTransaction:
        """Take over a transaction and fence the previous owner. May be repeated: the last pair is valid."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=1, enable2_pc=True, keep_prepared_txn=True
        )

        def attempt() -> KeptTransaction:
            answer = self._ask(transactional_id, request, InitProducerIdResponse, draft=TWO_PHASE_SINCE)
            raise_for(answer.error_code, None, f"transactional id {transactional_id!r}: cannot be prepared")
            ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            return KeptTransaction((answer.producer_id, answer.producer_epoch), ongoing if ongoing[0] >= 0 else None)

        return self._persistently(transactional_id, attempt)

    def end(self, transactional_id: str, pair: Pair, *, commit: bool) -> None:
        """End a transaction. May be repeated, unless a new epoch was taken."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )

        def attempt() -> None:
            answer = self._ask(transactional_id, request, EndTxnResponse, newest=END_NEWEST)
            what = "commit" if commit else "abort"
            raise_for(answer.error_code, None, f"transactional id {transactional_id!r}: cannot {what}")

        self._persistently(transactional_id, attempt)

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        def attempt() -> TransactionDescription | None:
            try:
                (found,) = self._transactions.describe([transactional_id])
            except KafkaError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return None
                raise
            return found

        return persistently(self._cluster, self._timeout, attempt)

    def open_ids(self, prefix: str) -> list[str]:
        """Return the transactional ids with this prefix that have an open transaction."""

        def attempt() -> list[str]:
            served = self._cluster.version(ApiKey.LIST_TRANSACTIONS)
            pattern = re.escape(prefix) + ".*" if served >= _PATTERN_SINCE else None
            found = self._transactions.list(states=[ONGOING], pattern=pattern)
            return [each.transactional_id for each in found if each.transactional_id.startswith(prefix)]

        return persistently(self._cluster, self._timeout, attempt)

    def _ask(
        self,
        transactional_id: str,
        message: Message,
        response: type[Response],
        *,
        newest: int | None = None,
        draft: int | None = None,
    ) -> Response:
        if transactional_id not in self._coordinators:
            (found,) = self._cluster.coordinators(CoordinatorType.TRANSACTION, [transactional_id])
            self._coordinators[transactional_id] = found
        coordinator = self._coordinators[transactional_id]
        return self._cluster.request_broker(coordinator, message, response, newest=newest, draft=draft)

    def _persistently(self, transactional_id: str, attempt: Callable[[], Result]) -> Result:
        def at_the_coordinator() -> Result:
            try:
                return attempt()
            except (KafkaError, ClientError):
                self._coordinators.pop(transactional_id, None)  # the coordinator may have moved
                raise

        return persistently(self._cluster, self._timeout, at_the_coordinator)
