"""Questions with many keys: other work has its turn meanwhile, and a client that has gone is not answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from coordinator_harness import World, run, sleep
from penstock.broker.coordinators.questions import ask_each
from penstock.broker.slices import SLICE_S, Slices


def test_timers_do_not_wait_for_the_last_key() -> None:
    async def story(world: World) -> None:
        loop, asked = world.loop, list[str]()
        slices = Slices(loop)
        request: Any = SimpleNamespace(connection=SimpleNamespace(is_closed=False))

        def ask(key: str) -> None:
            asked.append(key)
            loop.advance(SLICE_S)
            if key == "a2":
                slices.once(lambda: asked.append("tick"))

        ask_each(slices, request, ["a1", "a2", "a3", "a4"], ask)
        ask_each(slices, request, ["b1", "b2"], ask)
        await sleep(loop, 1)
        assert asked == ["a1", "b1", "a2", "b2", "tick", "a3", "a4"]

    run(story, alone=True)


def test_nothing_more_is_asked_for_a_client_that_has_disconnected() -> None:
    async def story(world: World) -> None:
        loop, asked = world.loop, list[int]()
        connection = SimpleNamespace(is_closed=False)
        request: Any = SimpleNamespace(connection=connection)

        def ask(key: int) -> None:
            asked.append(key)
            loop.advance(SLICE_S)
            connection.is_closed = key == 2

        ask_each(Slices(loop), request, range(100), ask)
        await sleep(loop, 1)
        assert asked == [0, 1, 2]

    run(story, alone=True)
