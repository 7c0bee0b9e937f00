"""The demo without a display and keys: the same incidents, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.demo.demo import POISON, Demo, DemoResult

# Until Spark is installed and has read something: on a slow line the download alone takes minutes.
RUNNING_S = 1800.0
PICTURE_WIDTH, PICTURE_HEIGHT = 144, 38
_POLL_S = 0.1


def run_headless(demo: Demo, duration: float) -> DemoResult | None:
    """`duration` counts from when everything runs, so that every part experiences all incidents. None if the demo was
    stopped before events flowed."""
    demo.start()
    if demo.clients is None:
        return None
    started = demo.elapsed
    _wait(demo, lambda: demo.everything_runs, RUNNING_S)
    running = demo.elapsed
    if not _is_over(demo):
        demo.log(f"everything runs after {running:.0f} s; continuing for {duration:g} s")
    dead_letters = demo.clients.dead_letters

    def pause(part: float) -> None:
        _wait(demo, lambda: demo.elapsed - running >= part * duration, duration)

    incidents: tuple[tuple[float, Callable[[], None]], ...] = (
        (0.15, demo.kill_broker),
        (0.40, demo.restart_broker),
        (0.60, demo.send_poison),
        (0.80, lambda: _wait(demo, lambda: dead_letters.waiting >= POISON, RUNNING_S)),
        (0.80, demo.replay),
        (1.00, lambda: None),
    )
    for part, act in incidents:
        pause(part)
        if _is_over(demo):
            break
        act()
    return demo.result(demo.finish(), started, running)


def run_with_picture(demo: Demo, duration: float, path: str) -> DemoResult | None:
    """Headless, and the display written to a file as SVG: the last one before the producer stops, with dead letters."""
    from penstock.demo.display import Display, as_svg

    display = Display(demo)
    done = threading.Event()

    def draw() -> None:
        while not done.wait(0.5):
            svg = as_svg(display, PICTURE_WIDTH, PICTURE_HEIGHT, "penstock demo")
            clients = demo.clients
            if clients is not None and clients.dead_letters.reasons and not clients.producer.is_stopped:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(svg)

    drawing = threading.Thread(target=draw, name="picture", daemon=True)
    drawing.start()
    try:
        return run_headless(demo, duration)
    finally:
        done.set()
        drawing.join()


def _is_over(demo: Demo) -> bool:
    return demo.stopping.is_set() or bool(demo.failures)


def _wait(demo: Demo, condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and not _is_over(demo):
        if time.monotonic() > deadline:
            demo.failed(f"no progress after {seconds:g} s")
            return
        time.sleep(_POLL_S)
