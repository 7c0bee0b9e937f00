"""Checks of credentials that may block or take long: key derivations, password plug-ins, keys from the network.

They run in threads, a few at a time; hosts take turns, and the checks of one host keep their order. So clients that
guess passwords delay those of their own host, and not the requests of clients that are in. A client that has gone while
its check waited costs none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
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
        # By host, the next one first; of each, by asker, the oldest first.
        self._waiting: OrderedDict[str, OrderedDict[Hashable, tuple[Work, Done]]] = OrderedDict()
        self._running = 0

    def run(self, host: str, asker: Hashable, work: Work, done: Done) -> None:
        """`done` gets the outcome, later."""
        self._waiting.setdefault(host, OrderedDict())[asker] = work, done
        self._begin()

    def forget(self, host: str, asker: Hashable) -> None:
        """Drop its work if that has not begun: the client has gone."""
        of_host = self._waiting.get(host)
        if of_host is not None:
            of_host.pop(asker, None)
            if not of_host:
                del self._waiting[host]

    def _begin(self) -> None:
        while self._waiting and self._running < AT_A_TIME:
            host, of_host = self._waiting.popitem(last=False)
            _, (work, done) = of_host.popitem(last=False)
            if of_host:
                self._waiting[host] = of_host  # behind the others
            self._running += 1
            self._loop.run_in_executor(None, _attempt, work).add_done_callback(
                lambda future, done=done: self._ended(future, done)  # type: ignore[misc]
            )

    def _ended(self, future: asyncio.Future[Verdict], done: Done) -> None:
        self._running -= 1
        try:
            if not future.cancelled():
                done(future.result())
        finally:
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
