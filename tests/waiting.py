"""Waiting for a condition, at most for so long. A failure says what was waited for."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

PATIENCE_S = 60.0
_INTERVAL_S = 0.02

Found = TypeVar("Found")
What = str | Callable[[], object]
"""What is waited for; a function where the text depends on how things are when the wait fails."""


def wait_until(
    condition: Callable[[], Found | None],
    what: What = "",
    seconds: float = PATIENCE_S,
    *,
    between: Callable[[], object] = lambda: None,
) -> Found:
    """The first true value of the condition. `between` is called before each further attempt."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, _failure(condition, what, seconds)
        between()
        time.sleep(_INTERVAL_S)
    return found


@overload
async def wait_until_async(
    condition: Callable[[], Awaitable[Found | None]], what: What = "", seconds: float = PATIENCE_S
) -> Found: ...
@overload
async def wait_until_async(
    condition: Callable[[], Found | None], what: What = "", seconds: float = PATIENCE_S
) -> Found: ...
async def wait_until_async(
    condition: Callable[[], Found | Awaitable[Found | None] | None], what: What = "", seconds: float = PATIENCE_S
) -> Found:
    """The first true value of the condition, or of what it awaits; by the event loop's time, real or virtual."""
    now = asyncio.get_running_loop().time
    deadline = now() + seconds
    while True:
        answer = condition()
        found = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        assert now() < deadline, _failure(condition, what, seconds)
        await asyncio.sleep(_INTERVAL_S)


def _failure(condition: Callable[[], object], what: What, seconds: float) -> str:
    return f"not within {seconds:g} s: {what() if callable(what) else what or _name(condition)}"


def _name(condition: Callable[[], object]) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    return inspect.getsource(condition).strip() if "<lambda>" in name else name
