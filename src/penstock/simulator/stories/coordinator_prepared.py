"""A simulated producer that takes part in the two-phase commit of another system (KIP-939).

It writes a transaction, prepares it, and reports that to the other system, which decides. Then it ends the transaction
as decided. Or it crashes first, stays away for longer than any time-out, and returns: it keeps the prepared transaction
and ends it, under the pair it gets for that, while its former instance tries to end it differently.

- `PreparedStays`: a prepared transaction is open until its producer ends it as decided, whatever happens to brokers and
  coordinators meanwhile.
- `FencedProducer`: the producer that prepared it cannot end it after another one has kept it.

The laws of `coordinator_workers` hold for these transactions as well: `AllOrNothing`, `OffsetsWithTransaction`.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.simulator.client import Client
from penstock.simulator.stories.coordinator_clients import CoordinatorClients, Over
from penstock.simulator.stories.coordinator_workers import (
    NEW,
    NOBODY,
    TIMEOUT_MS,
    Step,
    TransactionalWriter,
)
from penstock.simulator.story import Violation

TWO_PHASE_VERSION: Final = 6  # of InitProducerId


class Prepared(NamedTuple):
    """What the other system knows: the transaction, its producer, and the decision."""

    number: int
    producer: tuple[int, int]
    commits: bool


class TwoPhaseWriter(TransactionalWriter):
    def __init__(self, clients: CoordinatorClients, name: str, partitions: int) -> None:
        super().__init__(clients, name, partitions, NEW)
        self.prepared: Prepared | None = None

    async def run(self) -> None:
        clients = self._clients
        number = -1
        while not clients.over:
            number += 1
            self.outcomes[number] = False
            try:
                if self._producer == NOBODY:
                    self._producer = await self._initialize()
                self.prepared = await self._prepare(number)
            except Over:
                clients.events["transactions given up"] += 1
                self._producer = NOBODY
                continue
            if clients.chance.random() < 0.5:
                await self._end_prepared(self._producer)
            else:
                await self._crash()
                await self.complete()
            await clients.rest()
        if clients.chance.random() < 0.5:
            await self._leave_prepared(number + 1)
        else:
            await self._initialize()  # aborts everything that was not prepared

    async def _prepare(self, number: int) -> Prepared:
        """Everything is written and acknowledged; the other system decides, and the decision is final."""
        chance = self._clients.chance
        with_offset = chance.random() < 0.8
        commits = with_offset and chance.random() < 0.7
        for place, ask in self._steps(number, self._producer, with_offset):
            await self._clients.until_answered(place, ask)
        if commits:
            self.outcomes[number] = None
        self._clients.events["transactions prepared"] += 1
        return Prepared(number, self._producer, commits)

    async def _crash(self) -> None:
        self._producer = NOBODY
        self._clients.events["prepared transactions left behind"] += 1
        await asyncio.sleep(TIMEOUT_MS / 1000 * self._clients.chance.choice((0.0, 0.5, 2.0)))

    async def _leave_prepared(self, number: int) -> None:
        """The last one, which stays open until `complete`."""
        self.outcomes[number] = False
        try:
            self._producer = await self._initialize()
            self.prepared = await self._prepare(number)
        except Over:
            return
        self._clients.events["prepared transactions left behind"] += 1

    async def complete(self) -> None:
        """Return, keep the prepared transaction, and end it as decided."""
        prepared = self.prepared
        if prepared is None:
            return
        pair, ongoing = await self._keep()
        if ongoing != prepared.producer:
            raise Violation(
                "PreparedStays", f"{self.name}: {prepared} was prepared, the transaction that is open is of {ongoing}"
            )
        former = Step(self._coordinator, self._end(prepared.producer, commits=not prepared.commits))
        zombie = asyncio.create_task(self._haunt(prepared.number, [former]))
        try:
            await self._end_prepared(pair)
        finally:
            await zombie  # if it caused the failure, its own violation is raised
        self._clients.events["prepared transactions completed"] += 1

    async def _end_prepared(self, pair: tuple[int, int]) -> None:
        prepared = self.prepared
        assert prepared is not None
        try:
            ask = self._end(pair, commits=prepared.commits)
            self._producer = await self._clients.until_answered(self._coordinator, ask)
        except Over as error:
            raise Violation("PreparedStays", f"{self.name}: {prepared} cannot be ended: {error}") from error
        self.outcomes[prepared.number] = prepared.commits
        self.prepared = None

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _initialize(self) -> tuple[int, int]:
        pair, _ = await self._ask_to_initialize(keep=False)
        return pair

    async def _keep(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The pair that ends it, and the pair it was begun with. May be repeated: the last pair counts."""
        return await self._ask_to_initialize(keep=True)

    async def _ask_to_initialize(self, *, keep: bool) -> tuple[tuple[int, int], tuple[int, int]]:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS, enable2_pc=True, keep_prepared_txn=keep
        )

        async def ask(client: Client) -> tuple[ErrorCode, tuple[tuple[int, int], tuple[int, int]]]:
            answer = await client.ask(request, TWO_PHASE_VERSION)
            pair = answer.producer_id, answer.producer_epoch
            ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
            return ErrorCode(answer.error_code), (pair, ongoing)

        found: tuple[tuple[int, int], tuple[int, int]] = await self._clients.until_answered(self._coordinator, ask)
        return found
