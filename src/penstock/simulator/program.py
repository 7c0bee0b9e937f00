"""Runs a story as a program on a simulated loop: real broker code, from beginning to end.

The loop's trace is the story's trace: every packet that arrived, with the CRC of its bytes, every thread's work, every
connection, and the times.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from penstock.io.threads import enforce
from penstock.simulator.moments import Moments
from penstock.simulator.story import StoryResult
from penstock.simulator.twins.loop import SimulatedLoop

COLLECTIONS: Final = (50_000, 20, 50)
PAUSES = "pauses of threads"
INTERLEAVING_SHARE = 0.3


def interleaves(seed: int) -> bool:
    """Whether a seed of a campaign does: threads that pause take time to simulate, so only some seeds have them."""
    return random.Random(f"{seed}/interleaving").random() < INTERLEAVING_SHARE


class Program(Protocol):
    @property
    def events(self) -> Counter[str]: ...

    @property
    def moments(self) -> Moments[Any]: ...

    async def run(self) -> None: ...


def play_on_loop(seed: int, make: Callable[[SimulatedLoop], Program], *, interleaves: bool = False) -> StoryResult:
    """`interleaves`: threads pause while the loop continues."""
    enforce()
    with _rare_collections(), asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.interleaves = interleaves
        program = make(loop)
        violation: str | None = None
        recent: list[str] = []
        try:
            runner.run(program.run())
        except Exception as error:  # noqa: BLE001 - whatever it ends with is the story's outcome
            cause = first_cause(error)
            violation = str(cause) if isinstance(cause, AssertionError) else repr(cause)
            recent = [" ".join(map(str, event)) for event in loop.trace.recent]
            recent += "".join(traceback.format_exception(cause)).splitlines()
        finally:
            loop.watcher = None  # no law applies to what is torn down now
            if interleaves:
                program.events[PAUSES] += loop.pauses
        critical = frozenset(program.moments.pairs)
        return StoryResult(violation, program.events, loop.trace.digest(), recent, critical)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A story allocates much and leaves few cycles: at Python's default rate, collections take a tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class VirtualTime(logging.Filter):
    """For a replay with the nodes' logs: adds the simulated time and the host."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        record.host = loop.host if isinstance(loop, SimulatedLoop) else ""
        record.virtual = loop.time() if loop is not None else 0.0
        return True


def aloud() -> None:
    """Show the nodes' logs."""
    handler = logging.StreamHandler()
    handler.addFilter(VirtualTime())
    handler.setFormatter(logging.Formatter("%(virtual)12.6f %(host)-12s %(levelname)-8s %(name)s: %(message)s"))
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
