"""Keys, one at a time and unseen, from the terminal that the demo runs in. Ctrl-C stays what it is."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator

_LOOK_SECONDS = 0.2


@contextlib.contextmanager
def pressed(handle: Callable[[str], None]) -> Iterator[None]:
    """Within the block `handle` is called for every key, in a thread of its own."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    stopping = threading.Event()

    def listen() -> None:
        while not stopping.is_set():
            readable, _, _ = select.select([descriptor], [], [], _LOOK_SECONDS)
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
