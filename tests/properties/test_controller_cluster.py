"""Seeded lives of a cluster as its controller sees them, and proof that each invariant notices when it is broken."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.controller.elections import RECOVERING
from penstock.protocol.messages.metadata_records import PartitionChangeRecord
from penstock.simulator.stories.controller_story import ControllerStory, play
from penstock.simulator.stories.controller_world import directory


@pytest.mark.parametrize("seed", range(25))
def test_a_cluster_keeps_its_invariants(seed: int) -> None:
    """The seed is all there is to a story: the same one fails the same way."""
    assert play(seed).violation is None


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("IsrSubsetOfReplicas", {"isr": [1, 4]}),
        ("ElrSubsetOfReplicas", {"isr": [1], "eligible_leader_replicas": [4]}),
        ("ElrDisjointFromIsr", {"eligible_leader_replicas": [2]}),
        ("LeaderInIsr", {"isr": [2, 3]}),
        ("LeaderNotFenced", {"isr": [1, 2, 3], "leader": 3}),
        ("LeaderHasItsDirectory", {"directories": [directory(9), directory(2), directory(3)]}),
        ("NoStaleIncarnation", {"isr": [2], "leader": 2}),
        ("CleanUnlessAllowed", {"isr": [1, 2, 3]}),
        ("RecoversAlone", {"leader_recovery_state": RECOVERING}),
        (
            "ReplicationFactorKept",
            {"replicas": [1, 2], "isr": [1], "leader": 1, "directories": [directory(1), directory(2)]},
        ),
    ],
)
def test_the_invariants_notice(rule: str, change: dict[str, Any]) -> None:
    """Each of these breaks one rule, and the check that bears its name says so."""
    story = ControllerStory(elr=True, min_insync_replicas=2, unclean=False, random=Random(1))
    story.assign("a", (1, 2, 3))
    topic_id = story.image.topics.id_of("a")
    assert topic_id is not None
    story.fence(3)
    if rule == "NoStaleIncarnation":
        story.next_lives[2] += 1  # a crash that only the model knows of
    with pytest.raises(AssertionError, match=rule):
        story.commit([PartitionChangeRecord(topic_id=topic_id, partition_id=0, **change)])
