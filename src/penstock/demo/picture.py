"""The picture of the demo in the README: the display, drawn with what a real run has on it."""

from __future__ import annotations

import threading

from penstock.demo.display import Display, recorded
from penstock.demo.script import Outcome, perform
from penstock.demo.show import Show

WIDTH, HEIGHT = 144, 38


def pictured(show: Show, duration: float, path: str) -> Outcome | None:
    """The picture is the last one before the load stops, when there is a story on the page."""
    display = Display(show)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            svg = recorded(display, WIDTH, HEIGHT, "penstock demo")
            if show.traffic is not None and show.traffic.letters.count and not show.traffic.load.is_stopped:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(svg)

    watching = threading.Thread(target=watch, name="picture", daemon=True)
    watching.start()
    try:
        return perform(show, duration)
    finally:
        done.set()
        watching.join()
