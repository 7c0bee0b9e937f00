"""The metadata log under crashes: what was answered is true after any of them, and what was not is true or is not."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.model.errors import KafkaError
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from penstock.simulator.twins.mount import ProcessKilled
from property_examples import examples
from quorum_world import QuorumMachine, creating, deleting

SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "700",
    "metadata.max.retention.bytes": "2500",
    "internal.metadata.log.segment.bytes": "900",
}


class Expectation:
    """Topics that must exist, and topics whose creation was not acknowledged."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.unknown: set[str] = set()

    def check(self, quorum: MetadataQuorum) -> None:
        found = {topic.name for topic in quorum.image.topics}
        assert self.present <= found, f"lost: {self.present - found}"
        assert found <= self.present | self.unknown, f"back from the dead: {found - self.present - self.unknown}"
        self.present, self.unknown = found, set()


async def act(quorum: MetadataQuorum, chance: random.Random, expected: Expectation, number: int) -> None:
    """Several requests at once, some of which the process may not live to answer."""
    for part in range(chance.randrange(1, 4)):
        if chance.random() < 0.6 or not expected.present:
            name = f"topic-{number}-{part}"
            expected.unknown.add(name)

            def created(outcome: object, name: str = name) -> None:
                if not isinstance(outcome, KafkaError):
                    expected.unknown.discard(name)
                    expected.present.add(name)

            quorum.submit(creating(name), created)
        else:
            name = chance.choice(sorted(expected.present))
            expected.present.discard(name)
            expected.unknown.add(name)

            def deleted(outcome: object, name: str = name) -> None:
                if not isinstance(outcome, KafkaError):
                    expected.unknown.discard(name)

            quorum.submit(deleting(name), deleted)
    if chance.random() < 0.7:
        await asyncio.sleep(chance.choice([0.0, 0.001, 0.01]))


async def story(loop: SimulatedLoop, seed: int) -> None:
    chance = random.Random(seed)
    machine = QuorumMachine(loop, SMALL)
    expected = Expectation()
    for life in range(chance.randrange(2, 6)):
        operations = chance.choice([None, chance.randrange(1, 120)])
        machine.fatal.clear()
        try:
            quorum = machine.start(operations=operations)
            expected.check(quorum)
            await machine.register(quorum, incarnation=life)
            for number in range(chance.randrange(1, 30)):
                if machine.fatal:
                    break
                await act(quorum, chance, expected, life * 1000 + number)
            if chance.random() < 0.3 and not machine.fatal:
                await quorum.close()
        except (ProcessKilled, KafkaError):
            assert operations is not None, "it was not killed"
        if chance.random() < 0.5:
            machine.disk.power_loss(chance)
        else:
            machine.disk.crash()
    expected.check(machine.start())


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_was_answered_is_lost(seed: int) -> None:
    simulate(lambda loop: story(loop, seed), seed)
