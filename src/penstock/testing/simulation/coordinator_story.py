"""Groups and transactions under faults: the real broker code, three brokers or more, on virtual time.

Groups commit offsets, producers write transactions over all partitions of a topic and their group's offset, while
brokers, among them their coordinators, are killed, stopped, cut off or slowed down. What must hold:

- a committed offset never goes back by itself (`CommittedOffsetsStay`);
- what readers of committed data see of a transaction is all of it or nothing, in all partitions and in the group's
  offset, as its producer was told (`AllOrNothing`, `OffsetsWithTransaction`), once and in order (`ExactlyOnce`);
- no transaction holds readers up for ever, and everybody is answered in the end (`Liveness`).
"""

from __future__ import annotations

import asyncio
import random

from penstock.model.errors import ErrorCode
from penstock.records.batch import iterate_headers
from penstock.records.control import read_transaction_marker
from penstock.records.record import iterate_records
from penstock.testing import requests
from penstock.testing.simulated_loop import SimulatedLoop
from penstock.testing.simulation import cluster_story
from penstock.testing.simulation.client import FETCH_VERSION, Client
from penstock.testing.simulation.cluster_story import TOPIC, ClusterStory
from penstock.testing.simulation.cluster_world import Machine
from penstock.testing.simulation.coordinator_clients import Committer, CoordinatorClients, TransactionalWriter
from penstock.testing.simulation.program import play_on_loop
from penstock.testing.simulation.story import Outcome

EVENTS = (
    "commits", "transactions committed", "transactions aborted", "refused", "connections lost", "process crashes",
    "clean stops", "symmetric partitions", "one-way partitions", "messages delayed", "clock jumps", "controllers lost",
    "in sync again", "offsets checked",
)  # fmt: skip
MISFORTUNES = (
    "kill", "kill", "kill", "stop", "cut", "cut_one_way", "separate", "isolate", "slow_network", "reset", "jump",
    "slow_disk", "lose_controller", "elect",
)  # fmt: skip
PROPERTIES = {
    **cluster_story.PROPERTIES,
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class CoordinatorStory(ClusterStory):
    """Its misfortunes are those of a replicated topic; records that were acknowledged are not lost in any of them."""

    properties = PROPERTIES

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, misfortunes=MISFORTUNES)
        chance = random.Random(f"{seed}/coordinators")
        start_ms = self.world.brokers[0].clock.now_ms() - int(loop.time() * 1000)
        self.asking = CoordinatorClients(
            self.world, TOPIC, chance, self.events, lambda: start_ms + int(loop.time() * 1000)
        )
        self.committers = [Committer(self.asking, f"group-{number}") for number in range(2)]
        self.writers = [TransactionalWriter(self.asking, f"writer-{number}", len(self.promises)) for number in range(2)]

    async def run(self) -> None:
        await self.world.start_all()
        await self.create()
        async with asyncio.TaskGroup() as tasks:
            for committer in self.committers:
                tasks.create_task(committer.run())
            for writer in self.writers:
                tasks.create_task(writer.run())
            for _ in range(self.rounds):
                await self.pause()
                await self.misfortune()
                if self.chance.random() < 0.3:
                    await self.everybody_back()
                    await self.check_offsets()
            await self.everybody_back()
            self.asking.over = True
        await self.check_offsets()
        await self.check_transactions()
        await self.world.settled()

    async def lose_controller(self, machine: Machine) -> None:
        active = self.world.active_controller()
        if active is not None:
            self.events["controllers lost"] += 1
            self.faults.crash(active)
            await self.pause()
            active.start()

    async def check_offsets(self) -> None:
        for committer in self.committers:
            await committer.check()
            self.events["offsets checked"] += 1

    async def check_transactions(self) -> None:
        await self.world.until(self.nothing_is_open, "no transaction is open")
        by_partition = [await self.read_committed(index) for index in range(len(self.promises))]
        for number, writer in enumerate(self.writers):
            mine = f"writer-{number}"
            found = [[int(k) for name, k in values if name == mine] for values in by_partition]
            await writer.check(found)

    def nothing_is_open(self) -> bool:
        for machine in self.world.brokers:
            if machine.node is None:
                return False
            for replica in machine.node.replicas.of_topic(TOPIC):
                if replica.leader is not None and replica.last_stable_offset < replica.log.log_end_offset:
                    return False
        return True

    async def read_committed(self, index: int) -> list[tuple[str, str]]:
        """Writers and numbers, as readers of committed data see them."""
        found: list[tuple[str, str]] = []

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            found.clear()
            offset = 0
            while True:
                request = requests.fetch_request(TOPIC, offset, partition=index, isolation_level=1)
                ((answer,),) = (each.partitions for each in (await client.ask(request, FETCH_VERSION)).responses)
                if answer.error_code:
                    return ErrorCode(answer.error_code), None
                if not answer.records:
                    return ErrorCode.NONE, None
                begins = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
                offset = _decided(answer.records, offset, begins, found)

        await self.asking.until_answered(lambda: self.asking.leader_of(index), ask)
        return found


def _decided(data: memoryview, offset: int, aborted: list[tuple[int, int]], found: list[tuple[str, str]]) -> int:
    """As consumers go about it: what belongs to an aborted transaction is passed over until its marker. Where it
    ends."""
    passed_over: set[int] = set()
    for position, header in iterate_headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            passed_over.add(aborted.pop(0)[1])
        if header.last_offset < offset:
            continue
        if header.is_control:
            marker = read_transaction_marker(data, position, header)
            if marker is not None and not marker.committed:
                passed_over.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in passed_over):
            for record in iterate_records(data, position, header, max_size=requests.MAX_RECORDS_SIZE):
                name, _, number = (record.value or b"").decode().partition(":")
                found.append((name, number))
        offset = header.next_offset
    return offset


def play(seed: int) -> Outcome:
    return play_on_loop(seed, lambda loop: CoordinatorStory(loop, seed))
