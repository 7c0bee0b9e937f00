"""The demo with a display and keys."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live

from penstock.demo.demo import Demo, DemoResult, Worker
from penstock.demo.display import SWITCH_KEY, Display
from penstock.demo.ledger import Verdict

_REFRESH_S = 0.25
_KEY_POLL_S = 0.2


def run_interactive(demo: Demo, duration: float | None, console: Console) -> DemoResult | None:
    """Until q, or for `duration` seconds once everything runs. None if the demo ended before events flowed."""
    display = Display(demo)
    quitting, hurrying = threading.Event(), threading.Event()
    actions: dict[str, Callable[[], None]] = {
        "k": demo.kill_broker,
        "b": demo.restart_broker,
        "p": demo.send_poison,
        "r": demo.replay,
    }

    def handle(key: str) -> None:
        key = key.lower()
        if key == "q":
            (hurrying if quitting.is_set() else quitting).set()
        elif key == SWITCH_KEY:
            display.switch_page()
        elif key in actions and demo.clients is not None and not quitting.is_set():
            Worker(f"key {key}", actions[key], demo.failed).start()

    with (
        _keys(handle),
        Live(display.page(console), console=console, screen=True, auto_refresh=False) as live,
    ):

        def wait(until: Callable[[], bool]) -> None:
            while not until() and not demo.stopping.is_set():
                live.update(display.page(console), refresh=True)
                time.sleep(_REFRESH_S)

        starting = Worker("start", demo.start, demo.failed)
        starting.start()
        wait(lambda: not starting.is_alive())
        started = demo.elapsed
        running: float | None = None

        def is_over() -> bool:
            nonlocal running
            if running is None and demo.everything_runs:
                running = demo.elapsed
                demo.log(f"everything runs after {running:.0f} s")
            if quitting.is_set() or duration is None:
                return quitting.is_set()
            return bool(demo.failures) or (running is not None and demo.elapsed - running >= duration)

        if demo.clients is None:
            return None
        wait(is_over)
        quitting.set()
        display.note = "ending: waiting for the last events to come out; press q again to quit at once"
        verdicts: list[Verdict] = []
        judging = Worker("judging", lambda: verdicts.extend(demo.finish(hurrying.is_set)), demo.failed)
        judging.start()
        wait(lambda: not judging.is_alive())
    return demo.result(verdicts, started, running or demo.elapsed)


@contextlib.contextmanager
def _keys(handle: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `handle` is called for every key of the terminal, without echo and in a thread of its own.
    Ctrl-C still interrupts."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    stopping = threading.Event()

    def listen() -> None:
        while not stopping.is_set():
            readable, _, _ = select.select([descriptor], [], [], _KEY_POLL_S)
            if not readable:
                continue
            try:
                keys = os.read(descriptor, 64)
            except OSError:  # the terminal is gone; SIGHUP says so as well
                return
            if not keys:
                return
            for key in keys.decode(errors="replace"):
                handle(key)

    thread = threading.Thread(target=listen, name="keys", daemon=True)
    tty.setcbreak(descriptor)
    try:
        thread.start()
        yield
    finally:
        stopping.set()
        thread.join()
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
