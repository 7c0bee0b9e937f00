"""A machine sleeps: what its clocks make of that, and who is caught that uses the wrong one."""

from __future__ import annotations

import pytest

from penstock.broker.coordinators import coordinators
from penstock.broker.coordinators.steady_clock import SteadyClock
from penstock.io.clock import Clock
from penstock.testing.simulated_clock import SimulatedClock
from penstock.testing.simulated_loop import SimulatedLoop, simulate
from penstock.testing.simulation.cluster_world import ClusterWorld
from penstock.testing.simulation.story import quietly
from penstock.testing.simulation.suspend_story import play

SEEDS = range(12)


class Awake:
    """The clocks of a machine, without the one that goes on while it sleeps."""

    def __init__(self, clock: Clock) -> None:
        assert isinstance(clock, SimulatedClock)
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def boottime_ms(self) -> int:
        return self._clock.boottime_ms() - self._clock.suspended_ms


def test_a_coordinator_whose_clock_lags_after_a_suspend_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    quietly()
    monkeypatch.setattr(coordinators, "SteadyClock", lambda clock: SteadyClock(Awake(clock)))
    violations = (play(seed).violation for seed in SEEDS)
    found = next((violation for violation in violations if violation is not None), "nothing")
    assert found.startswith("FreshTransactionsLive"), found


def test_a_broker_that_was_asleep_is_not_sure_to_be_alive() -> None:
    """Its session has ended meanwhile, and others may lead what it led."""

    async def story(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, 1, controllers=1, brokers=1)
        await world.start_all()
        broker = world.machines["broker-1"]
        assert broker.node is not None
        lifecycle = broker.node.lifecycle
        await world.until(lambda: lifecycle.is_surely_alive, "it was heard of")
        broker.clock.suspend(3_600_000)
        assert not lifecycle.is_surely_alive
        assert lifecycle.may_be_replaced
        await world.until(lambda: lifecycle.is_surely_alive, "it was heard of again")

    quietly()
    simulate(story, 1)
