"""Clusters whose nodes log in to each other, on a simulated network: sessions that end, controllers that die."""

from __future__ import annotations

import pytest

from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.story import Violation, quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="{password}" user_node="secret";'
)
# The clients of simulations have no login, so the listener of brokers stays open.
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": LOGIN.format(password="secret"),
    "connections.max.reauth.ms": "3000",
}


@pytest.mark.parametrize("seed", range(3))
def test_nodes_log_in_to_controllers_that_die(seed: int) -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, seed, controllers=3, brokers=2, properties=PROPERTIES)
        await world.start_all()
        async with world.client("broker-1") as client:
            await client.create_topic("before")
        # Longer than several sessions: nodes authenticate again, and none is fenced meanwhile.
        epochs = {broker.name: broker.image.brokers for broker in world.brokers}
        end = loop.time() + 20
        await world.until(lambda: loop.time() > end, "time passes")
        image = await world.settled()
        assert all(not broker.fenced for broker in image.brokers.values())
        assert {name: set(brokers) for name, brokers in epochs.items()} == {name: set(image.brokers) for name in epochs}
        active = world.active_controller()
        assert active is not None
        active.crash()
        await world.until(lambda: world.active_controller() not in (None, active), "another controller is active")
        async with world.client("broker-2") as client:
            await client.create_topic("after")
        active.start()
        await world.until(lambda: active.is_ready, "the controller is back")
        image = await world.settled()
        assert {topic.name for topic in image.topics} >= {"before", "after"}

    simulate(program, seed)


def test_a_node_with_a_wrong_password_takes_no_part() -> None:
    """The law of these simulations is Progress: a cluster whose nodes cannot log in makes none."""
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        wrong = {**PROPERTIES, "listener.name.controller.plain.sasl.jaas.config": LOGIN.format(password="wrong")}
        world = ClusterWorld(loop, 1, controllers=3, brokers=1, properties=wrong)
        with pytest.raises(Violation, match="Progress"):
            await world.start_all()
        assert world.active_controller() is None

    simulate(program, 1)
