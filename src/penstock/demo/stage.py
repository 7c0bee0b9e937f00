"""The demo with somebody at the keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from penstock.demo.clients import Worker
from penstock.demo.display import TURN, Display
from penstock.demo.keys import pressed
from penstock.demo.ledger import Verdict
from penstock.demo.script import Outcome, outcome
from penstock.demo.show import Show

_REFRESH_SECONDS = 0.25


def play(show: Show, duration: float | None, console: Console) -> Outcome | None:
    """Until q, or for so long once everything is at work. None if there was nothing to judge."""
    display = Display(show)
    quitting, hurrying = threading.Event(), threading.Event()
    actions: dict[str, Callable[[], None]] = {
        "k": show.kill_broker,
        "b": show.bring_back,
        "p": show.send_poison,
        "r": show.replay,
    }

    def handle(key: str) -> None:
        key = key.lower()
        if key == "q":
            (hurrying if quitting.is_set() else quitting).set()
        elif key == TURN:
            display.turn()
        elif key in actions and show.traffic is not None and not quitting.is_set():
            Worker(f"key {key}", actions[key], show.failed).start()

    with (
        pressed(handle),
        Live(display.page(console), console=console, screen=True, auto_refresh=False) as live,
    ):

        def wait(until: Callable[[], bool]) -> None:
            while not until() and not show.stopping.is_set():
                live.update(display.page(console), refresh=True)
                time.sleep(_REFRESH_SECONDS)

        starting = Worker("start", show.start, show.failed)
        starting.start()
        wait(lambda: not starting.is_alive())
        started = time.monotonic() - show.started
        working: float | None = None

        def over() -> bool:
            nonlocal working
            if working is None and show.everything_works:
                working = time.monotonic() - show.started
                show.happened(f"everything is at work after {working:.0f} s")
            if quitting.is_set() or duration is None:
                return quitting.is_set()
            elapsed = time.monotonic() - show.started
            return bool(show.failures) or (working is not None and elapsed - working >= duration)

        if show.traffic is None:
            return None
        wait(over)
        quitting.set()
        display.note = "ending: the last events come out everywhere; q once more ends at once"
        verdicts: list[Verdict] = []
        judging = Worker("judging", lambda: verdicts.extend(show.finish(hurrying.is_set)), show.failed)
        judging.start()
        wait(lambda: not judging.is_alive())
    return outcome(show, verdicts, started, working or time.monotonic() - show.started)
