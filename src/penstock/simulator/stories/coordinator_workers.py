"""Transactional producers of a simulated cluster, and the readers of their committed records.

Each transaction writes its number to all partitions of the topic, and commits it as its group's offset. Producers use
transaction version 2, or are older ones that announce the partitions they will write to. Some vanish in the middle of a
transaction. Some are wrongly considered dead: they continue after another has replaced them. Older ones also abort
while a batch is still in flight, or being rewritten by its broker.

- `NoAbortedRecord`: a reader of committed data sees nothing of a transaction that was aborted, or is open.
- `AllOrNothing`: the outcome that a producer got for its transaction is the outcome in all partitions.
- `OffsetsWithTransaction`: and in its group's offset, which is not visible before that.
- `ExactlyOnce`: in order, and no transaction twice.
- `FencedProducer`: a producer that has been replaced is refused, whatever it tries.
- `FreshTransactionsLive`: no transaction is aborted before its time-out, unless a clock was wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.records.batch import iterate_headers
from penstock.records.compression import Codec
from penstock.records.control import read_transaction_marker
from penstock.records.record import iterate_records
from penstock.simulator import requests
from penstock.simulator.client import FETCH_VERSION, Client
from penstock.simulator.stories.coordinator_clients import (
    GROUP,
    NOTHING_COMMITTED,
    PARTITION,
    TRANSACTION,
    Ask,
    CoordinatorClients,
    Over,
    Place,
)
from penstock.simulator.story import Violation

TIMEOUT_MS: Final = 8000
NOBODY: Final = (-1, -1)


class Dialect(NamedTuple):
    """The versions of the requests that a producer sends."""

    init: int
    produce: int
    txn_offset_commit: int
    end: int
    announces: bool


NEW: Final = Dialect(5, 12, 5, 5, announces=False)
OLD: Final = Dialect(4, 11, 4, 4, announces=True)


class Step(NamedTuple):
    place: Place
    ask: Ask


class TransactionalWriter:
    def __init__(
        self, clients: CoordinatorClients, name: str, partitions: int, dialect: Dialect, codec: int = Codec.NONE
    ) -> None:
        self._clients = clients
        self._dialect = dialect
        self._partitions = range(partitions)
        self.name = name
        self.group = f"{name}-group"
        self._coordinator = Place(TRANSACTION, name)
        self._producer = NOBODY
        self._first_numbers: dict[tuple[int, int], int] = {}
        self._codec = codec
        self._zombies: list[asyncio.Task[None]] = []
        self.outcomes: dict[int, bool | None] = {}  # None: unknown

    async def run(self) -> None:
        clients = self._clients
        number = -1
        while not clients.over:
            number += 1
            self.outcomes[number] = False
            began, suspends = clients.time, clients.events["suspends"]
            try:
                if self._producer == NOBODY:
                    self._producer = await self._initialize()
                    began, suspends = clients.time, clients.events["suspends"]
                await self._write(number)
            except Over as over:
                clients.events["transactions given up"] += 1
                is_fresh = clients.time - began < TIMEOUT_MS / 1000 and clients.events["suspends"] == suspends
                if is_fresh and not clients.events["clock jumps"]:
                    age = clients.time - began
                    text = f"{self.name} in {number}: {over} after {age:.1f} s"
                    raise Violation("FreshTransactionsLive", text) from None
                self._producer = NOBODY
            await clients.rest()
        await asyncio.gather(*self._zombies)
        if clients.chance.random() < 0.5:
            await self._initialize()  # aborts everything that is still open
        else:
            await self._leave_open(number + 1)

    async def _initialize(self) -> tuple[int, int]:
        async def ask(client: Client) -> tuple[ErrorCode, tuple[int, int]]:
            request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
            answer = await client.ask(request, self._dialect.init)
            return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)

        producer: tuple[int, int] = await self._clients.until_answered(self._coordinator, ask)
        return producer

    async def _write(self, number: int) -> None:
        clients, chance = self._clients, self._clients.chance
        with_offset = chance.random() < 0.8
        commits = with_offset and chance.random() < 0.7
        steps = self._steps(number, self._producer, with_offset)
        end = Step(self._coordinator, self._end(self._producer, commits=commits))
        if self._dialect.announces and chance.random() < 0.15:
            await self._cut_short(steps)
            return
        stops_at = chance.randrange(len(steps) + 1) if chance.random() < 0.2 else None
        for position, (place, ask) in enumerate(steps):
            if position == stops_at:
                break
            await clients.until_answered(place, ask)
        if with_offset and chance.random() < 0.3:
            await self._look_at_offset()
        if stops_at is not None:
            await self._disappear(number, [*steps[stops_at:], end])
            return
        if commits:
            self.outcomes[number] = None
        producer: tuple[int, int] = await clients.until_answered(*end)
        if not self._dialect.announces:
            self._producer = producer
        self.outcomes[number] = commits
        clients.events["transactions committed" if commits else "transactions aborted"] += 1

    # -- other ends -------------------------------------------------------------------------------------------------

    async def _disappear(self, number: int, left: list[Step]) -> None:
        """For good, so that the transaction must time out; or until another producer has replaced it."""
        clients = self._clients
        self._producer = NOBODY
        if clients.chance.random() < 0.3:
            clients.events["producers vanished"] += 1
            await asyncio.sleep(TIMEOUT_MS / 1000 * clients.chance.choice((0.5, 2.0)))
            return
        clients.events["producers taken for dead"] += 1
        self._producer = await self._initialize()
        self._zombies.append(asyncio.create_task(self._haunt(number, left)))

    async def _cut_short(self, steps: list[Step]) -> None:
        """A batch takes longer than the producer waits: it aborts under the same epoch, and starts again."""
        clients = self._clients
        last = clients.chance.choice([number for number, step in enumerate(steps) if step.place.kind == PARTITION])
        for place, ask in steps[:last]:
            await clients.until_answered(place, ask)
        self._zombies.append(asyncio.create_task(self._send_late(*steps[last])))
        await asyncio.sleep(clients.chance.choice((0.001, 0.02, 0.2)))
        await clients.until_answered(self._coordinator, self._end(self._producer, commits=False))
        clients.events["transactions cut short"] += 1
        self._producer = NOBODY

    async def _send_late(self, place: Place, ask: Ask) -> None:
        if (await self._clients.attempt(place, ask)).code is ErrorCode.INVALID_TXN_STATE:
            self._clients.events["batches too late"] += 1

    async def _leave_open(self, number: int) -> None:
        """The last transaction, which must time out."""
        clients = self._clients
        self.outcomes[number] = False
        producer = await self._initialize()
        steps = self._steps(number, producer, with_offset=True)
        for place, ask in steps[: clients.chance.randint(1, len(steps))]:
            await clients.until_answered(place, ask)
        clients.events["transactions left open"] += 1

    async def _haunt(self, number: int, left: list[Step]) -> None:
        clients = self._clients
        await asyncio.sleep(clients.chance.choice((0.0, 0.5, 5.0)))
        for place, ask in left:
            code = (await clients.attempt(place, ask)).code
            if code is ErrorCode.NONE:
                raise Violation("FencedProducer", f"{self.name} in {number}: {place} still takes what it says")
            clients.events["zombies refused"] += 1

    async def _look_at_offset(self) -> None:
        clients = self._clients
        ask = clients.fetch_offset(self.group, stable=False)
        code, offset, _ = await clients.attempt(Place(GROUP, self.group), ask)
        if code is ErrorCode.NONE and self.outcomes.get(offset) is False:
            raise Violation("OffsetsWithTransaction", f"{self.group} is at {offset}, which was not committed")

    # -- requests ---------------------------------------------------------------------------------------------------

    def _steps(self, number: int, producer: tuple[int, int], with_offset: bool) -> list[Step]:
        steps = [
            Step(Place(PARTITION, str(index)), self._produce(number, index, producer)) for index in self._partitions
        ]
        if self._dialect.announces:
            steps.insert(0, Step(self._coordinator, self._announce_partitions(producer)))
        if with_offset:
            if self._dialect.announces:
                steps.append(Step(self._coordinator, self._announce_offsets(producer)))
            steps.append(Step(Place(GROUP, self.group), self._send_offset(number, producer)))
        return steps

    def _produce(self, number: int, index: int, producer: tuple[int, int]) -> Ask:
        async def ask(client: Client) -> tuple[ErrorCode, None]:
            data = requests.batch(
                f"{self.name}:{number}",
                key=f"{self.name}:{number}".encode(),
                codec=self._codec,
                timestamp=self._clients.now_ms(),
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=self._sequence(number, producer),
                transactional=True,
            )
            request = requests.produce_request(self._clients.topic, data, partition=index, timeout_ms=3000)
            request.transactional_id = self.name
            answer = requests.only_partition(await client.ask(request, self._dialect.produce))
            return ErrorCode(answer.error_code), None

        return ask

    def _sequence(self, number: int, producer: tuple[int, int]) -> int:
        """Each epoch starts at 0, and each transaction that it ends has one batch in each partition."""
        return number - self._first_numbers.setdefault(producer, number)

    def _announce_partitions(self, producer: tuple[int, int]) -> Ask:
        topic = AddPartitionsToTxnTopic(name=self._clients.topic, partitions=list(self._partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[topic],
        )

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            answer = await client.ask(request, 3)
            ((*results,),) = (each.results_by_partition for each in answer.results_by_topic_v3_and_below)
            (code,) = {result.partition_error_code for result in results}
            return ErrorCode(code), None

        return ask

    def _announce_offsets(self, producer: tuple[int, int]) -> Ask:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], group_id=self.group
        )

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            return ErrorCode((await client.ask(request, 3)).error_code), None

        return ask

    def _send_offset(self, number: int, producer: tuple[int, int]) -> Ask:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=self._clients.topic, partitions=[partition])],
        )

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            answer = await client.ask(request, self._dialect.txn_offset_commit)
            ((result,),) = (each.partitions for each in answer.topics)
            return ErrorCode(result.error_code), None

        return ask

    def _end(self, producer: tuple[int, int], *, commits: bool) -> Ask:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], committed=commits
        )

        async def ask(client: Client) -> tuple[ErrorCode, tuple[int, int]]:
            answer = await client.ask(request, self._dialect.end)
            return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)

        return ask

    # -- the end ----------------------------------------------------------------------------------------------------

    async def check(self, found: list[list[int]]) -> None:
        """`found`: the numbers of this writer that readers of committed data see, by partition."""
        for index, numbers in enumerate(found):
            if numbers != sorted(set(numbers)):
                raise Violation("ExactlyOnce", f"{self.name} in partition {index}: {numbers}")
        if any(set(numbers) != set(found[0]) for numbers in found):
            raise Violation("AllOrNothing", f"{self.name}: {found}")
        for number, outcome in self.outcomes.items():
            if outcome is not None and outcome != (number in found[0]):
                told = "committed" if outcome else "aborted"
                raise Violation("AllOrNothing", f"{self.name}: {number} was {told}, readers see {found[0]}")
        offset = await self._clients.offset_of(self.group)
        if offset != max(found[0], default=NOTHING_COMMITTED):
            raise Violation("OffsetsWithTransaction", f"{self.group} is at {offset}, readers see {found[0]}")


class CommittedReader:
    """Reads committed data of one partition, and continues where it was."""

    def __init__(
        self, clients: CoordinatorClients, index: int, outcomes: Mapping[str, Mapping[int, bool | None]]
    ) -> None:
        """`outcomes`: of the transactions of each writer, as far as they are known."""
        self._clients = clients
        self._place = Place(PARTITION, str(index))
        self._outcomes = outcomes
        self._index = index
        self._offset = 0
        self.found: list[tuple[str, int]] = []

    async def run(self) -> None:
        while not self._clients.over:
            await self._clients.attempt(self._place, self._read)
            await asyncio.sleep(0.3)

    async def read_all(self) -> list[tuple[str, int]]:
        """From the leader: a follower may answer, too, and know less of what is committed."""
        self._clients.forget(self._place)
        await self._clients.until_answered(self._place, self._read)
        return self.found

    async def _read(self, client: Client) -> tuple[ErrorCode, None]:
        while True:
            request = requests.fetch_request(
                self._clients.topic, self._offset, partition=self._index, isolation_level=1
            )
            ((answer,),) = (each.partitions for each in (await client.ask(request, FETCH_VERSION)).responses)
            if answer.error_code or not answer.records:
                return ErrorCode(answer.error_code), None
            begins = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
            self._take(answer.records, begins)

    def _take(self, data: Any, aborted: list[tuple[int, int]]) -> None:
        """As consumers do it: records of an aborted transaction are skipped up to its marker."""
        passed_over: set[int] = set()
        for position, header in iterate_headers(data):
            while aborted and aborted[0][0] <= header.last_offset:
                passed_over.add(aborted.pop(0)[1])
            if header.last_offset < self._offset:
                continue
            if header.is_control:
                marker = read_transaction_marker(data, position, header)
                if marker is not None and not marker.committed:
                    passed_over.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in passed_over):
                for record in iterate_records(data, position, header, max_size=requests.MAX_RECORDS_SIZE):
                    name, _, number = (record.value or b"").decode().partition(":")
                    self._see(name, int(number))
            self._offset = header.next_offset

    def _see(self, name: str, number: int) -> None:
        if self._outcomes[name][number] is False:
            raise Violation("NoAbortedRecord", f"partition {self._index}: {name}:{number} was not committed")
        self.found.append((name, number))
        self._clients.events["committed records read"] += 1
