"""A wait that fails says what it waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.simulator.twins.loop import SimulatedLoop, simulate
from waiting import wait_until, wait_until_async


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, None, 7])
    attempts: list[str] = []
    assert wait_until(lambda: next(values), between=lambda: attempts.append("again")) == 7
    assert attempts == ["again"] * 2


def test_a_failure_says_what_was_waited_for(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(AssertionError, match="not within 0 s: a file"):
        wait_until(missing.exists, "a file", 0)
    with pytest.raises(AssertionError, match="not within 0 s: a file, not \\[\\]"):
        wait_until(missing.exists, lambda: f"a file, not {list(tmp_path.iterdir())}", 0)
    with pytest.raises(AssertionError, match=r"not within 0 s: \w+.exists"):
        wait_until(missing.exists, seconds=0)
    with pytest.raises(AssertionError, match=r"wait_until\(lambda: missing.is_dir\(\), seconds=0\)"):
        wait_until(lambda: missing.is_dir(), seconds=0)


def test_conditions_may_be_awaited_in_virtual_time() -> None:
    async def program(loop: SimulatedLoop) -> None:
        async def later() -> float | None:
            await asyncio.sleep(1)
            return loop.time() if loop.time() > began + 50 else None

        began = loop.time()
        assert await wait_until_async(later) > began + 50
        assert await wait_until_async(lambda: loop.time() > began + 55)
        with pytest.raises(AssertionError, match="not within 5 s: the end of time"):
            await wait_until_async(lambda: False, "the end of time", 5)
        assert loop.time() > began + 60

    simulate(program)
