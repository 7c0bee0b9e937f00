"""Critical moments: when a fault does most harm, and which faults have struck then in a seed.

That a broker was killed at some time says little; that it was killed between an append and its replication says
something. A story declares its moments, each a predicate over a subject of faults (a machine, a replica). When a fault
strikes, the predicates that hold are recorded with the name of the fault. A campaign counts in how many seeds each pair
occurred.

A story can wait for moments that chance alone would miss: `come` returns when the predicate holds for a subject, before
anything else happens, so that a fault can be aimed at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from penstock.io.threads import as_owner

Subject = TypeVar("Subject")


class Pair(NamedTuple):
    """A fault that struck at a moment."""

    moment: str
    fault: str


class Moments(Generic[Subject]):
    def __init__(self, declared: Mapping[str, Callable[[Subject], bool]]) -> None:
        self.pairs: set[Pair] = set()
        self._declared = declared
        self._awaited: tuple[Callable[[Subject], bool], asyncio.Future[Subject]] | None = None

    def strike(self, fault: str, *subjects: Subject) -> None:
        """Call it before the fault changes anything, also if the fault is a failing operation of a thread: the
        predicates do not run as that thread."""
        with as_owner():
            for moment, holds in self._declared.items():
                pair = Pair(moment, fault)
                if pair not in self.pairs and any(map(holds, subjects)):
                    self.pairs.add(pair)

    async def come(self, moment: str, patience_s: float) -> Subject | None:
        """The subject for which the moment has come; None if it did not come in time."""
        future: asyncio.Future[Subject] = asyncio.get_running_loop().create_future()
        self._awaited = self._declared[moment], future
        try:
            async with asyncio.timeout(patience_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._awaited = None

    def look(self, subjects: Iterable[Subject]) -> None:
        """Checks whether the awaited moment has come. `subjects`: those that may have changed."""
        if self._awaited is None:
            return
        holds, future = self._awaited
        for subject in subjects:
            if not future.done() and holds(subject):
                future.set_result(subject)
