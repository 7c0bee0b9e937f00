"""Worker threads of the simulator that interleave with the event loop, and still depend only on the seed.

The work runs on a real thread, but never at the same time as the loop: one of them always waits for the other. Before a
file operation (`switch_point`) the work may pause, as chance decides; then the loop continues, time passes, callbacks
run, and the work is resumed later. So a worker meets state that the loop has changed meanwhile, and the reverse, at all
the places where a real worker would wait for its disk.

Work does not pause while it holds a lock: the loop might have to wait for it. A thread of a killed process is unwound:
every operation of its clean-up raises `ProcessKilled`, because nothing of a dead process continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

from penstock.io.threads import as_worker, holds_lock


class ProcessKilled(BaseException):
    """The process that does this is gone. Not an `Exception`: no error handling of a dead process may continue."""


class _Current(threading.local):
    thread: SimulatedThread | None = None


_current = _Current()


def switch_point() -> None:
    """Call it before a file operation. On a simulated thread, the loop may run first."""
    thread = _current.thread
    if thread is not None:
        thread.pause()


class SimulatedThread:
    """One piece of work. The loop calls `run` until it is done; `outcome` is then what it returned or raised."""

    def __init__(self, work: Callable[[], Any], context: Context, pauses: Callable[[], bool]) -> None:
        self.is_done = False
        self.outcome: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._context = context
        self._pauses = pauses
        self._is_killed = False
        self._may_run = threading.Semaphore(0)
        self._has_stopped = threading.Semaphore(0)
        self._runner: _Runner | None = None

    @property
    def is_current(self) -> bool:
        return _current.thread is self

    def run(self) -> bool:
        """Run it until it pauses or is done; returns whether it is done."""
        if self._runner is None:
            self._runner = _idle.pop() if _idle else _Runner()
            self._runner.begin(self)
        else:
            self._may_run.release()
        self._has_stopped.acquire()
        return self.is_done

    def kill(self) -> None:
        """Its process is gone, and it does nothing more."""
        self._is_killed = True
        if self._runner is not None:
            while not self.is_done:
                self.run()

    # -- On the thread itself.

    def pause(self) -> None:
        if self._is_killed:
            raise ProcessKilled
        if holds_lock() or not self._pauses():
            return
        self._has_stopped.release()
        self._may_run.acquire()
        if self._is_killed:
            raise ProcessKilled

    def execute(self) -> None:
        _current.thread = self
        try:
            with as_worker():
                self.outcome = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the work gets it
            self.error = error
        finally:
            _current.thread = None
            self.is_done = True

    def stopped(self) -> None:
        self._has_stopped.release()


class _Runner(threading.Thread):
    """A real thread, reused for the next piece of work."""

    def __init__(self) -> None:
        super().__init__(name="simulated", daemon=True)
        self._wanted = threading.Semaphore(0)
        self._thread: SimulatedThread | None = None
        self.start()

    def begin(self, thread: SimulatedThread) -> None:
        self._thread = thread
        self._wanted.release()

    def run(self) -> None:
        while True:
            self._wanted.acquire()
            thread, self._thread = self._thread, None
            assert thread is not None
            thread.execute()
            _idle.append(self)
            thread.stopped()
            del thread


_idle: list[_Runner] = []
