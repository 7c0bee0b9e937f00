"""Answers that take many slices: the loop goes on meanwhile, and the client gets the whole."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.net.long_answers import LongAnswers
from penstock.broker.slices import SLICE_S

STEPS = 100


class Wire:
    """A connection, the request on it and its reply, as far as an answer needs them."""

    api_key, version = 3, 12

    def __init__(self) -> None:
        self.connection = self
        self.is_wanted = True
        self.is_muted = self.is_aborted = False
        self.completed: list[Any] = []
        self.done = asyncio.Event()

    def park(self, *, mute: bool) -> Wire:
        self.is_muted = mute
        return self

    def settle(self, response: Any) -> None:
        """No quota applies."""

    def parts(self, response: Any) -> list[Any]:
        return [response]

    def complete(self, parts: list[Any]) -> None:
        self.completed += parts
        self.done.set()

    def abort(self) -> None:
        self.is_aborted = True
        self.done.set()


def clockwork(loop: asyncio.AbstractEventLoop, step_s: float) -> SimpleNamespace:
    """The loop, on which each look at the clock takes its time."""
    now = iter(range(10**9))
    return SimpleNamespace(
        time=lambda: next(now) * step_s, call_soon=loop.call_soon, run_in_executor=loop.run_in_executor
    )


def steps(seen: list[int], failing_at: int = -1) -> Generator[None, None, str]:
    for number in range(STEPS):
        if number == failing_at:
            raise RuntimeError("a defect")
        seen.append(number)
        yield
    return "whole"


def test_a_short_one_is_answered_at_once() -> None:
    async def play() -> None:
        wire = Wire()
        seen: list[int] = []
        long_answers: Any = LongAnswers(clockwork(asyncio.get_running_loop(), 0.0))  # type: ignore[arg-type]
        assert long_answers.begin(wire, steps(seen)) == "whole"
        assert not wire.is_muted

    asyncio.run(play())


def test_others_have_their_turn_between_slices() -> None:
    async def play() -> None:
        wire = Wire()
        seen: list[int] = []
        turns: list[int] = []
        loop = asyncio.get_running_loop()
        long_answers: Any = LongAnswers(clockwork(loop, SLICE_S / 4))  # type: ignore[arg-type]
        assert long_answers.begin(wire, steps(seen)) is None
        assert wire.is_muted

        def others() -> None:
            turns.append(len(seen))
            if not wire.done.is_set():
                loop.call_soon(others)

        others()
        await wire.done.wait()
        assert wire.completed == ["whole"]
        assert seen == list(range(STEPS))
        assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= 4

    asyncio.run(play())


def test_a_longer_answer_does_not_hold_up_a_later_one() -> None:
    async def play() -> None:
        endless, later = Wire(), Wire()
        long_answers: Any = LongAnswers(clockwork(asyncio.get_running_loop(), SLICE_S))  # type: ignore[arg-type]

        def work() -> Generator[None, None, str]:
            while not later.completed:
                yield
            return "at last"

        assert long_answers.begin(endless, work()) is None
        assert long_answers.begin(later, steps([])) is None
        async with asyncio.timeout(10):
            await endless.done.wait()
        assert (later.completed, endless.completed) == (["whole"], ["at last"])

    asyncio.run(play())


def test_a_client_that_has_gone_is_not_worked_for() -> None:
    async def play() -> None:
        wire = Wire()
        seen: list[int] = []
        long_answers: Any = LongAnswers(clockwork(asyncio.get_running_loop(), SLICE_S))  # type: ignore[arg-type]
        work = steps(seen)
        assert long_answers.begin(wire, work) is None
        wire.is_wanted = False
        done = len(seen)
        for _ in range(STEPS):
            await asyncio.sleep(0)
        assert inspect.getgeneratorstate(work) == inspect.GEN_CLOSED
        assert (len(seen), wire.completed) == (done, [])

    asyncio.run(play())


def test_a_defect_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        broken, whole = Wire(), Wire()
        long_answers: Any = LongAnswers(clockwork(asyncio.get_running_loop(), SLICE_S))  # type: ignore[arg-type]
        assert long_answers.begin(broken, steps([], failing_at=STEPS // 2)) is None
        assert long_answers.begin(whole, steps([])) is None
        await broken.done.wait()
        await whole.done.wait()
        assert broken.is_aborted and not broken.completed
        assert whole.completed == ["whole"]

    with caplog.at_level(logging.ERROR, logger="penstock.router"):
        asyncio.run(play())
    assert "cannot be answered" in caplog.text
