"""False alarms for an hour, and the laws of that story catch who believes them."""

from __future__ import annotations

import pytest

from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.simulator.stories.alarm_story import SECONDS, play
from penstock.simulator.story import StoryResult, quietly

SEEDS = range(10)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_election_without_a_death_in_an_hour() -> None:
    quietly()
    outcome = play(1, seconds=3600.0)
    assert outcome.violation is None, outcome.violation
    print(dict(outcome.events))


def first_violation(seconds: float = SECONDS, properties: dict[str, str] | None = None) -> str:
    quietly()
    outcomes = (play(seed, seconds, properties) for seed in SEEDS)
    broken: StoryResult | None = next((each for each in outcomes if each.violation is not None), None)
    assert broken is not None and broken.violation is not None, "nothing was seen"
    return broken.violation.split(":")[0]


def test_whoever_takes_a_lost_connection_for_a_death_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_dead(self: Neighbourhood, incarnation_id: bytes | None, host: str, *, refused: bool) -> bool:
        return True

    monkeypatch.setattr(Neighbourhood, "is_dead", is_dead)
    assert first_violation() == "NoElectionWithoutADeath"


def test_whoever_takes_a_refused_connection_for_a_death_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_dead(self: Neighbourhood, incarnation_id: bytes | None, host: str, *, refused: bool) -> bool:
        return refused

    monkeypatch.setattr(Neighbourhood, "is_dead", is_dead)
    assert first_violation() == "NoElectionWithoutADeath"


def test_whoever_waits_for_a_second_only_is_caught() -> None:
    assert first_violation(properties={"penstock.broker.refused.ms": "1000"}) == "NoElectionWithoutADeath"


def test_whoever_does_not_notice_a_death_is_caught() -> None:
    assert first_violation(5.0, {"penstock.broker.refused.ms": "600000"}) == "DeathsAreNoticed"
