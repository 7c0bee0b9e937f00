"""The checkers of the metadata story catch someone: the quorum's runtime, broken on purpose, one law at a time.

What the state machine itself must not do is broken in `test_raft_sabotage.py`; these are the real nodes around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.broker.metadata import quorum
from penstock.broker.metadata.store import MetadataStore
from penstock.controller import controller
from penstock.controller.brokers import BrokerHandlers
from penstock.controller.producer_ids import allocate_producer_ids
from penstock.controller.result import Result
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.raft.ballot import Ballot
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.metadata_story import MetadataStory
from penstock.simulator.twins.loop import SimulatedLoop
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = 30


def answer_before_commit(patch: Patch) -> None:
    """What the controller has appended it takes for true."""
    original = quorum.Pending

    def pending(offset: int, change: Any, done: Callable[[Any], None] | None, outcome: Any) -> Any:
        if done is not None:
            done(outcome)
        return original(offset, change, None, None)

    patch.setattr(quorum, "Pending", pending)


def commit_before_sync(patch: Patch) -> None:
    """What is written counts as synced."""
    patch.setattr(MetadataStore, "synced_offset", property(lambda self: self.end_offset))


def lead_without_majority(patch: Patch) -> None:
    """Half of the voters are enough, however few that is."""
    patch.setattr(Ballot, "is_won", property(lambda self: len(self.granting) >= len(self.voters) // 2))


def give_producer_ids_twice(patch: Patch) -> None:
    """The ids that were given are not persisted."""

    def allocate(
        image: MetadataImage, brokers: BrokerHandlers, request: AllocateProducerIdsRequest
    ) -> Result[AllocateProducerIdsResponse]:
        return Result([], allocate_producer_ids(image, brokers, request).response)

    patch.setattr(controller, "allocate_producer_ids", allocate)


class CutOffController(MetadataStory):
    """Brokers reach the one that leads, and the other controllers do not."""

    async def misfortune(self) -> None:
        self.heal()
        active = self.world.active_controller()
        others = [each.name for each in self.world.controllers if each is not active]
        if active is not None:
            self.world.loop.network.partition([active.name], others)


class Variant(NamedTuple):
    sabotage: Callable[[Patch], None]
    checker: str
    story: Callable[[SimulatedLoop, int], MetadataStory] = MetadataStory


VARIANTS = [
    Variant(answer_before_commit, "AnsweredStays", CutOffController),
    Variant(commit_before_sync, "MetadataImagesEqual"),
    Variant(lead_without_majority, "OneLeaderPerEpoch", CutOffController),
    Variant(give_producer_ids_twice, "ProducerIdsUnique"),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.sabotage.__name__)
def test_what_is_broken_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    variant.sabotage(monkeypatch)
    assert_caught(
        variant.checker, range(SEEDS), lambda seed: play_on_loop(seed, lambda loop: variant.story(loop, seed)).violation
    )
