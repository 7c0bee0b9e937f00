"""The demo without anybody at the keys: the same incidents, in order, and a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.demo.ledger import Verdict
from penstock.demo.show import POISON, Show

# Until Spark is there and has read something: on a slow line the download alone takes minutes.
WORKING_SECONDS = 1800.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    verdicts: tuple[Verdict, ...]
    acknowledged: int
    kills: int
    poison: int
    replayed: int
    failures: tuple[str, ...]
    started_seconds: float
    """Until events flowed."""
    working_seconds: float
    """Until they had come out everywhere."""
    seconds: float

    @property
    def is_good(self) -> bool:
        judged = bool(self.verdicts) and self.acknowledged > 0
        return judged and not self.failures and all(verdict.is_good for verdict in self.verdicts)


def perform(show: Show, duration: float) -> Outcome | None:
    """`duration` counts from when everything is at work, so that all that happens happens to all of it. None if it was
    stopped before events flowed."""
    show.start()
    if show.traffic is None:
        return None
    started = _elapsed(show)
    _until(show, lambda: show.everything_works, WORKING_SECONDS)
    working = _elapsed(show)
    if not _over(show):
        show.happened(f"everything is at work after {working:.0f} s; so it goes on for {duration:g} s")
    began = time.monotonic()
    letters = show.flowing.letters

    def pause(part: float) -> None:
        _until(show, lambda: time.monotonic() - began >= part * duration, duration)

    acts: tuple[tuple[float, Callable[[], None]], ...] = (
        (0.15, show.kill_broker),
        (0.40, show.bring_back),
        (0.60, show.send_poison),
        (0.80, lambda: _until(show, lambda: letters.waiting >= POISON, WORKING_SECONDS)),
        (0.80, show.replay),
        (1.00, lambda: None),
    )
    for part, act in acts:
        pause(part)
        if _over(show):
            break
        act()
    return outcome(show, show.finish(), started, working)


def outcome(show: Show, verdicts: list[Verdict], started: float, working: float) -> Outcome:
    return Outcome(
        tuple(verdicts),
        len(show.ledger.acknowledged),
        show.kills,
        show.flowing.load.spoilt,
        show.flowing.letters.replayed,
        tuple(show.failures),
        started,
        working,
        _elapsed(show),
    )


def _elapsed(show: Show) -> float:
    return time.monotonic() - show.started


def _over(show: Show) -> bool:
    return show.stopping.is_set() or bool(show.failures)


def _until(show: Show, condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and not _over(show):
        if time.monotonic() > deadline:
            show.failed(f"nothing moves any more after {seconds:g} s")
            return
        time.sleep(_POLL_SECONDS)
