"""Runs handlers that build large responses in slices: metadata of all topics, settings of many resources.

Such a handler is a generator: it yields between two steps of its work and returns the response. Most finish within one
slice and answer at once. For the others, the event loop runs other work between slices, the connection waits, and a
thread encodes the response. That is safe because nothing else holds the response; and it pays because a large response
takes as long to encode as to build.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from functools import partial
from typing import Any, Final

from penstock.broker.net.connection import PendingReply
from penstock.broker.net.request import Request
from penstock.broker.slices import SLICE_S, Slices
from penstock.protocol.primitives import Part

logger = logging.getLogger("penstock.router")

Steps = Generator[None, None, Any]

_UNFINISHED: Final = object()


class LongAnswers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slices = Slices(loop)

    def begin(self, request: Request, steps: Steps) -> Any | None:
        """The response; None if it is sent later."""
        response = self._go_on(steps, self._loop.time() + SLICE_S)
        if response is not _UNFINISHED:
            return response
        reply = request.connection.park(mute=True)
        self._slices.add(partial(self._slice, request, steps, reply))
        return None

    def _go_on(self, steps: Steps, until: float) -> Any:
        try:
            while not self._slices.is_over(until):
                next(steps)
        except StopIteration as end:
            return end.value
        return _UNFINISHED

    def _slice(self, request: Request, steps: Steps, reply: PendingReply, until: float) -> bool:
        if not reply.is_wanted:
            steps.close()
            return False
        try:
            response = self._go_on(steps, until)
        except Exception:
            # A defect in the handler; it must not affect other requests.
            logger.exception("API %d v%d cannot be answered", request.api_key, request.version)
            request.connection.abort()
            return False
        if response is _UNFINISHED:  # the other answers have a slice before the next one of this
            self._slices.add(partial(self._slice, request, steps, reply))
            return False
        request.settle(response)
        encoding = self._loop.run_in_executor(None, request.parts, response)
        encoding.add_done_callback(partial(self._encoded, request, reply))
        return False

    @staticmethod
    def _encoded(request: Request, reply: PendingReply, encoding: asyncio.Future[list[Part]]) -> None:
        error = encoding.exception()
        if error is not None:
            logger.error("API %d v%d cannot be answered", request.api_key, request.version, exc_info=error)
            request.connection.abort()
        elif reply.is_wanted:
            reply.complete(encoding.result())
