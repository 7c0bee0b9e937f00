"""Exactly once, whenever a process dies: the sink's protocol against a model of brokers; mistakes in it are noticed."""

from __future__ import annotations

import pytest

from penstock.spark.sink.two_phase import Slots
from properties.spark_sink_world import play

SEEDS = 300
MISTAKES = {
    "blind": "replays are not noticed",
    "unfenced": "whoever decides last wins",
    "unprepared": "nobody looks whether transactions are open",
    "stale look": "the decision of who had the lock before is not seen",
    "aborts decided": "after a failed commit everything is aborted",
    "aborts blindly": "transactions are aborted while a commit may be deciding on them",
    "any run": "what other runs have open is aborted with a failed batch",
    "any parity": "the next batch is swept with this one",
}


@pytest.mark.parametrize("two_phase", [True, False], ids=["two-phase", "one-phase"])
def test_every_row_once_and_nothing_left_open(two_phase: bool) -> None:
    for seed in range(SEEDS):
        problems = play(seed, two_phase=two_phase)
        assert not problems, f"play({seed}, two_phase={two_phase})\n" + "\n".join(problems)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str) -> None:
    noticed = (
        bool(play(seed, two_phase=two_phase, sabotage=frozenset({mistake})))
        for seed in range(200)
        for two_phase in (True, False)
    )
    assert any(noticed), f"nobody notices that {MISTAKES[mistake]}"


def test_slots_come_again_two_batches_later_and_not_before() -> None:
    slots = Slots("w")
    first = [slots.take("s", "r", 4), slots.take("s", "r", 4)]
    assert len(set(first)) == 2
    others = [slots.take("s", "r", 5), slots.take("other", "r", 4), slots.take("s", "another", 4)]
    assert set(first).isdisjoint(others)
    again = slots.take("s", "r", 4)  # the batch comes again in the same process
    assert again not in first
    assert [slots.take("s", "r", 6) for _ in range(3)] == [*first, again]
    assert slots.take("s", "r", 4) not in [*first, again]
