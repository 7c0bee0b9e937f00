"""Checks of credentials that may block or take long: key derivations, password plug-ins, keys from the network.

They run in threads, a few at a time, in the order in which they came. So clients that guess passwords delay each other
and not the requests of clients that are in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.model.ownership import owned_by_loop
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Challenge

logger = logging.getLogger("penstock.authentication")

AT_A_TIME: Final = 2

Verdict = Challenge | Accepted | AuthenticationFailed
Work = Callable[[], Challenge | Accepted]
Done = Callable[[Verdict], None]


@owned_by_loop()
class Verifications:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Work, Done]] = deque()
        self._running = 0

    def run(self, work: Work, done: Done) -> None:
        """`done` gets the outcome, later."""
        self._waiting.append((work, done))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._running < AT_A_TIME:
            work, done = self._waiting.popleft()
            self._running += 1
            self._loop.run_in_executor(None, _attempt, work).add_done_callback(
                lambda future, done=done: self._ended(future, done)  # type: ignore[misc]
            )

    def _ended(self, future: asyncio.Future[Verdict], done: Done) -> None:
        self._running -= 1
        if not future.cancelled():
            done(future.result())
        self._begin()


def _attempt(work: Work) -> Verdict:
    try:
        return work()
    except AuthenticationFailed as failure:
        return failure
    except Exception as error:  # noqa: BLE001
        # A defect, or a plug-in that failed. No client gets in because of it, and the message may contain secrets.
        logger.error("a credential could not be checked: %s", type(error).__name__)
        return AuthenticationFailed(f"the credential could not be checked: {type(error).__name__}")
