"""Runs searches through the records of logs in a worker thread, one at a time.

A search may have to decompress a batch, which can take memory and time out of proportion to the request. So only one
search runs at a time, on one thread; the other threads stay free for flushes. Requests take turns, one search each, so
that a request with thousands of searches delays others by no more than one search.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.model.errors import KafkaError
from penstock.model.ownership import owned_by_loop

Found = TypeVar("Found")


class Search(NamedTuple, Generic[Found]):
    work: Callable[[], Found]
    """Runs on a worker thread."""
    done: Callable[[Found | KafkaError], None]


class _SearchRequest(NamedTuple):
    """The searches of one request."""

    searches: deque[Search[Any]]
    all_done: Callable[[], None]
    failed: Callable[[BaseException], None]


@owned_by_loop()
class Searches:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: deque[_SearchRequest] = deque()
        self._is_busy = False

    def run(
        self, searches: Sequence[Search[Any]], all_done: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> Callable[[], None]:
        """Run the searches (at least one); call `all_done` when all are done.

        If a search raises an error other than KafkaError, which is a defect, `failed` is called and the remaining
        searches are dropped. Calling the returned function drops them as well.
        """
        asked = _SearchRequest(deque(searches), all_done, failed)
        self._asked.append(asked)
        if not self._is_busy:
            self._next()
        return asked.searches.clear

    def _next(self) -> None:
        while self._asked:
            asked = self._asked.popleft()
            if asked.searches:
                self._begin(asked, asked.searches.popleft())
                return

    def _begin(self, asked: _SearchRequest, search: Search[Any]) -> None:
        self._is_busy = True
        future = self._loop.run_in_executor(None, search.work)
        future.add_done_callback(lambda done: self._finished(asked, search, done))

    def _finished(self, asked: _SearchRequest, search: Search[Any], future: asyncio.Future[Any]) -> None:
        self._is_busy = False
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, KafkaError):
            asked.failed(error)
        else:
            search.done(future.result() if error is None else error)
            if asked.searches:
                self._asked.append(asked)
            else:
                asked.all_done()
        if not self._is_busy:
            self._next()
