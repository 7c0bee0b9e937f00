"""What the tests of `penstock`'s own clients share."""

from __future__ import annotations

from collections.abc import Callable

DEADLINE_S = 60.0
NewTopic = Callable[..., str]
