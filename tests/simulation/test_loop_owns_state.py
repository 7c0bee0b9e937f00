"""What a broker gives to threads is nothing that its event loop owns."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.io import threads
from penstock.io.threads import LoopOwnsState
from penstock.model.errors import ErrorCode
from penstock.replication.producers import ProducerStates
from penstock.simulator import requests
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

TOPIC = "t"


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_fetch_of_what_left_the_page_cache(isolation_level: int) -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1)
        await world.start()
        async with world.client() as client:
            assert await client.create_topic(TOPIC) == ErrorCode.NONE
            for number in range(3):
                data = requests.batch(f"value {number}", timestamp=world.now_ms)
                assert (await client.produce(TOPIC, data)).error_code == ErrorCode.NONE
            await world.stop()
            await world.start()
        world.disk.cold = lambda path, position, size: path.endswith(".log")
        async with world.client() as client:
            answer = await client.fetch(TOPIC, 0, isolation_level=isolation_level)
            assert answer.error_code == ErrorCode.NONE
            assert [record.value for record in requests.records(answer.records)] == [b"value 0", b"value 1", b"value 2"]
            assert answer.aborted_transactions == ([] if isolation_level else None)
            # What is not there is not there on a thread, either.
            assert (await client.fetch(TOPIC, 7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await world.stop()

    quietly()
    simulate(story)


def test_a_real_worker_is_told() -> None:
    states = ProducerStates()
    with ThreadPoolExecutor(1, initializer=threads.begin_worker) as workers:
        with pytest.raises(LoopOwnsState, match=r"ProducerStates\.last_stable_offset"):
            workers.submit(states.last_stable_offset, 7).result()
        with pytest.raises(LoopOwnsState, match=r"ProducerStates\.expiration_ms"):
            workers.submit(setattr, states, "expiration_ms", 1).result()
        assert workers.submit(threads.handed_over(lambda: states.last_stable_offset(7))).result() == 7
    assert states.last_stable_offset(7) == 7
    assert len(threads.violations) == 2
    threads.violations.clear()


def test_a_process_ends_even_where_the_error_is_caught() -> None:
    program = """
from penstock.io import threads
from penstock.replication.producers import ProducerStates

states = ProducerStates()
threads.enforce()
threads.end_process_on_violation()
states.last_stable_offset(7)
threads.begin_worker()
try:
    states.last_stable_offset(7)
except AssertionError:
    pass
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == threads.VIOLATION_STATUS, ended
    assert "LoopOwnsState: a worker thread touches ProducerStates.last_stable_offset" in ended.stderr
