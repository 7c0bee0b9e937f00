"""Group commit: flushes logs in worker threads, at most one flush of a log at a time.

The next flush covers everything appended while a flush runs. The number of fdatasync calls thus adapts to the disk: the
slower the disk, the more acknowledgements each call covers.

After a failed flush the state of the disk is unknown (the kernel may have dropped the dirty pages). The log directory
goes offline; the node stops if it cannot work without that directory. A full disk is different: it is detected before
any data depends on it, and the flush is retried until there is space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.log.log import NoRoom
from penstock.model.ownership import owned_by_loop

if TYPE_CHECKING:
    from penstock.broker.partitions.replica import Replica

NO_ROOM_RETRY_S = 0.5


@dataclass(slots=True, eq=False)
class _Flush:
    """A running flush, and whether another one must follow it."""

    waiters: list[asyncio.Future[None]]
    again: bool = field(default=False, init=False)
    waiters_of_next: list[asyncio.Future[None]] = field(default_factory=list, init=False)


@owned_by_loop()
class Flusher:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, after: Callable[[], None], failed: Callable[[Replica, str], None]
    ) -> None:
        """`after` runs after acknowledgements were released; `failed` when a disk can no longer be trusted."""
        self._loop = loop
        self._after = after
        self._failed = failed
        self._running: dict[Replica, _Flush] = {}
        self._is_closing = False

    def request(self, replica: Replica) -> None:
        """Flush soon everything appended until now."""
        running = self._running.get(replica)
        if running is None:
            self._start(replica, [])
        else:
            running.again = True

    def flush(self, replica: Replica) -> asyncio.Future[None]:
        """Like `request`; the future is done when everything appended until now is on disk."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        running = self._running.get(replica)
        if running is None:
            self._start(replica, [waiter])
        else:
            running.again = True
            running.waiters_of_next.append(waiter)
        return waiter

    def close(self) -> None:
        """From now on a flush fails on a full disk, instead of waiting for space."""
        self._is_closing = True

    def _start(self, replica: Replica, waiters: list[asyncio.Future[None]]) -> None:
        self._running[replica] = _Flush(waiters)
        self._run(replica)

    def _run(self, replica: Replica) -> None:
        future = self._loop.run_in_executor(None, replica.log.flush)
        future.add_done_callback(lambda done: self._finished(replica, done))

    def _finished(self, replica: Replica, future: asyncio.Future[int]) -> None:
        flush = self._running[replica]
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or (error is not None and replica.is_offline):
            del self._running[replica]
            _finish(flush.waiters + flush.waiters_of_next)  # stopped, or deleted during the flush
        elif isinstance(error, NoRoom) and not self._is_closing:
            # Nothing is lost. Acknowledgements wait until the disk has space.
            self._loop.call_later(NO_ROOM_RETRY_S, self._run, replica)
        elif error is not None:
            del self._running[replica]
            # After a failed fsync the state of the disk is unknown; only the state found at the next start is safe.
            self._failed(replica, f"cannot flush {replica.topic_partition}: {error}")
            if replica.is_offline:
                _finish(flush.waiters + flush.waiters_of_next)
                return
            for waiter in flush.waiters + flush.waiters_of_next:
                if not waiter.done():
                    waiter.set_exception(error)
        else:
            # Requests made meanwhile (an acknowledgement admits the next append) count as made during this flush.
            replica.flushed(future.result())
            del self._running[replica]
            _finish(flush.waiters)
            if flush.again and not replica.is_offline:
                self._start(replica, flush.waiters_of_next)
            else:
                _finish(flush.waiters_of_next)
            self._after()


def _finish(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
