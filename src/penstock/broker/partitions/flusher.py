"""Group commit: logs are flushed in worker threads, one flush of a log at a time.

What is appended while a flush runs is covered by the next one, so the number of fdatasync calls adapts itself to the
disk: the slower it is, the more acknowledgements one call pays for.

After a flush that fails nobody can say what is on the disk: the log directory goes offline, and the node ends if it
cannot do without that one. A full disk is different: it is found before anything was entrusted to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.log.log import NoRoom
from penstock.model.ownership import owned_by_loop

if TYPE_CHECKING:
    from penstock.broker.partitions.replica import Replica

NO_ROOM_RETRY_S = 0.5


class _Flush:
    """A flush under way, and whether another must follow it."""

    __slots__ = ("again", "waiters", "waiters_of_next")

    def __init__(self, waiters: list[asyncio.Future[None]]) -> None:
        self.again = False
        self.waiters = waiters
        self.waiters_of_next: list[asyncio.Future[None]] = []


@owned_by_loop()
class Flusher:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, after: Callable[[], None], failed: Callable[[Replica, str], None]
    ) -> None:
        """`after` runs when acknowledgements have been released; `failed` if a disk cannot be trusted any more."""
        self._loop = loop
        self._after = after
        self._failed = failed
        self._running: dict[Replica, _Flush] = {}
        self._is_closing = False

    def request(self, replica: Replica) -> None:
        """Flush what has been appended by now, soon."""
        running = self._running.get(replica)
        if running is None:
            self._start(replica, [])
        else:
            running.again = True

    def flush(self, replica: Replica) -> asyncio.Future[None]:
        """As `request`; done when what has been appended by now is on the disk."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        running = self._running.get(replica)
        if running is None:
            self._start(replica, [waiter])
        else:
            running.again = True
            running.waiters_of_next.append(waiter)
        return waiter

    def close(self) -> None:
        """From now on a flush that finds no room fails, instead of waiting for some."""
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
            _finish(flush.waiters + flush.waiters_of_next)  # stopped, or deleted under the flush
        elif isinstance(error, NoRoom) and not self._is_closing:
            # Nothing is lost, and nothing is acknowledged either: that waits until there is room.
            self._loop.call_later(NO_ROOM_RETRY_S, self._run, replica)
        elif error is not None:
            del self._running[replica]
            # After a failed fsync nobody can say what is on the disk; the only safe state is the one found at a start.
            self._failed(replica, f"cannot flush {replica.topic_partition}: {error}")
            if replica.is_offline:
                _finish(flush.waiters + flush.waiters_of_next)
                return
            for waiter in flush.waiters + flush.waiters_of_next:
                if not waiter.done():
                    waiter.set_exception(error)
        else:
            # What is asked for meanwhile (an acknowledgement lets the next request in) counts as asked for during it.
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
