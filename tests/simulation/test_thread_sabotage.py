"""What threads must not do is caught: the real code, broken on purpose, under the law `LoopOwnsState`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.apis.fetch import Fetch
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.storage.storage import Storage
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.node_story import NodeStory
from penstock.simulator.story import quietly
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = 10
FIRST = {False: 1, True: 3}  # seeds in which a client reads what has left the page cache


def fetch_on_a_thread(patch: Patch) -> None:
    """A fetch of cold data looks at replicas, producers and its session there, too."""

    def read_cold(self: Fetch, results: Any, cold: Any) -> None:
        self._is_reading = True

        def read() -> list[Any]:
            found, still_cold = self._read()
            for each in still_cold:
                each.read()
            return found

        future = self._services.loop.run_in_executor(None, read)
        future.add_done_callback(lambda done: self._finish(done.result()))

    patch.setattr(Fetch, "_read_cold", read_cold)


def retain_on_a_thread(patch: Patch) -> None:
    """Segments are deleted where the deletion can wait for the disk."""
    original = Storage._retain
    patch.setattr(
        Storage, "_retain", lambda self, replica: self._loop.run_in_executor(None, original, self, replica) and None
    )


def move_the_recovery_point_on_a_thread(patch: Patch) -> None:
    """Where the flush has just ended."""

    def run(self: Flusher, replica: Any) -> None:
        def flush() -> int:
            end: int = replica.log.flush()
            replica.log.recovery_point = end
            return end

        future = self._loop.run_in_executor(None, flush)
        future.add_done_callback(lambda done: self._finished(replica, done))

    patch.setattr(Flusher, "_run", run)


@pytest.mark.parametrize("interleaves", [False, True], ids=["in one go", "interleaved"])
@pytest.mark.parametrize("sabotage", [fetch_on_a_thread, retain_on_a_thread, move_the_recovery_point_on_a_thread])
def test_a_thread_that_touches_what_the_loop_owns(
    sabotage: Callable[[Patch], None], interleaves: bool, monkeypatch: Patch
) -> None:
    quietly()
    sabotage(monkeypatch)
    first = FIRST[interleaves]
    assert_caught(
        "LoopOwnsState",
        range(first, first + SEEDS),
        lambda seed: (
            play_on_loop(seed, lambda loop: NodeStory(loop, seed, rounds=10), interleaves=interleaves).violation
        ),
    )
