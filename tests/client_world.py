"""What the tests of `penstock`'s own clients share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 60.0
NewTopic = Callable[..., str]


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
