"""Who asks for the next transaction while the one before is being completed waits for that, but not for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from coordinator_harness import sleep
from penstock.broker.coordinators.completion import Completion
from penstock.broker.coordinators.shard import Waiting
from penstock.coordinator.decision import Decision
from penstock.simulator.twins.loop import SimulatedLoop, simulate

PATIENCE_S = 0.1


class Transactions:
    """A coordinator with one partition, and one transaction that is prepared or not."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.is_prepared = True
        self.submitted: list[str] = []
        shard = SimpleNamespace(get=lambda name: SimpleNamespace(prepared=self.is_prepared) if name == "a" else None)
        self.partitions: dict[int, Any] = {0: SimpleNamespace(shard=shard)}

    def partition_of(self, key: str) -> int:
        return 0

    def submit(self, key: str, operation: Any, waiting: Waiting, *, writes: bool) -> None:
        assert writes  # even a refusal must be one of the current coordinator
        self.submitted.append(key)


def submit(completion: Completion, name: str) -> None:
    waiting = Waiting(lambda answer: None, lambda code: code)
    completion.submit(name, lambda shard, token, now_ms: Decision([], []), waiting)


def test_it_goes_on_when_the_transaction_completes() -> None:
    async def story(loop: SimulatedLoop) -> None:
        transactions = Transactions(loop)
        completion = Completion(cast(Any, transactions), PATIENCE_S)
        submit(completion, "a")
        submit(completion, "a")
        submit(completion, "b")
        assert transactions.submitted == ["b"]
        completion.completed("c")
        completion.completed("a")
        assert transactions.submitted == ["b", "a", "a"]
        completion.completed("a")
        await sleep(loop, 10 * PATIENCE_S)
        assert len(transactions.submitted) == 3

    simulate(story)


def test_it_does_not_wait_for_long() -> None:
    async def story(loop: SimulatedLoop) -> None:
        transactions = Transactions(loop)
        completion = Completion(cast(Any, transactions), PATIENCE_S)
        submit(completion, "a")
        await sleep(loop, PATIENCE_S / 2)
        submit(completion, "a")
        assert transactions.submitted == []
        await sleep(loop, PATIENCE_S * 0.6)
        assert len(transactions.submitted) == 1
        await sleep(loop, PATIENCE_S)
        assert len(transactions.submitted) == 2
        completion.completed("a")
        assert len(transactions.submitted) == 2

    simulate(story)


def test_where_there_is_no_shard_nobody_waits() -> None:
    async def story(loop: SimulatedLoop) -> None:
        transactions = Transactions(loop)
        transactions.partitions[0].shard = None
        completion = Completion(cast(Any, transactions), PATIENCE_S)
        submit(completion, "a")
        transactions.partitions.clear()
        submit(completion, "a")
        assert len(transactions.submitted) == 2

    simulate(story)
