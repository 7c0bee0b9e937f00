"""Worker threads, and the checks in tests that they do not touch objects of the event loop.

Classes declare that their objects belong to the loop (`penstock.model.ownership`). `enforce` turns these declarations
into checks: a worker that calls a method of such an object, or sets an attribute, violates the law `LoopOwnsState`. The
test suite and the simulator enforce it, as do nodes with `PENSTOCK_CHECK_THREADS` in their environment, which tests
start. A thread declares itself a worker (`begin_worker`, `as_worker`). If the loop gives up an object for good, or
until a job is done, a worker may use it exclusively: `handed_over`.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, Final, TypeVar

from penstock.model import ownership

ENVIRONMENT_VARIABLE: Final = "PENSTOCK_CHECK_THREADS"
VIOLATION_STATUS: Final = 70

Result = TypeVar("Result")


class LoopOwnsState(AssertionError):
    """A worker thread has accessed an object of the event loop."""

    def __init__(self, what: str) -> None:
        super().__init__(f"LoopOwnsState: a worker thread touches {what}")


class _Thread(threading.local):
    is_worker = False
    locks = 0


_thread = _Thread()
_is_enforced = False

violations: list[LoopOwnsState] = []
"""All violations in this process: the code that raised one may have swallowed it."""
on_violation: list[Callable[[LoopOwnsState], None]] = []


# -- threads


def begin_worker() -> None:
    """Mark the calling thread as a worker."""
    _thread.is_worker = True


@contextmanager
def as_worker() -> Iterator[None]:
    with _being(True):
        yield


@contextmanager
def as_owner() -> Iterator[None]:
    with _being(False):
        yield


@contextmanager
def _being(is_worker: bool) -> Iterator[None]:
    before, _thread.is_worker = _thread.is_worker, is_worker
    try:
        yield
    finally:
        _thread.is_worker = before


def handed_over(work: Callable[[], Result]) -> Callable[[], Result]:
    """Wrap work on objects that the loop does not use until the work is done."""

    def run() -> Result:
        with as_owner():
            return work()

    return run


class SharedLock:
    """A lock between the event loop and workers.

    The simulator does not interrupt its holder, as the loop may wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        _thread.locks += 1

    def __exit__(self, *exc_info: object) -> None:
        _thread.locks -= 1
        self._lock.release()


def holds_lock() -> bool:
    return _thread.locks > 0


# -- checks


def is_asked_for() -> bool:
    return bool(os.environ.get(ENVIRONMENT_VARIABLE))


def end_process_on_violation() -> None:
    """End the process on a violation, for nodes: tests notice a node that is gone, even if the error is caught."""
    on_violation.append(_end_process)


def _end_process(error: LoopOwnsState) -> None:
    traceback.print_stack()
    print(error, file=sys.stderr, flush=True)
    os._exit(VIOLATION_STATUS)


def enforce() -> None:
    """Start checking in this process."""
    global _is_enforced
    if not _is_enforced:
        _is_enforced = True
        ownership.listeners.append(_guard)
        for entry in ownership.notes:
            _guard(entry)


def _guard(entry: ownership.Owned) -> None:
    owned = entry.owned
    for name, member in list(vars(owned).items()):
        if name.startswith("__") or name in entry.anywhere:
            continue
        if isinstance(member, FunctionType):
            setattr(owned, name, _checked(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(owned, name, property(_checked(member.fget), member.fset, member.fdel, member.__doc__))
    _guard_attributes(owned, entry.shared)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    thread = _thread

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        if thread.is_worker:
            _violated(function.__qualname__)
        return function(*arguments, **options)

    return checked


def _guard_attributes(owned: Any, shared: frozenset[str]) -> None:
    set_attribute = owned.__setattr__
    thread = _thread

    def checked(self: object, name: str, value: object) -> None:
        if thread.is_worker and name not in shared:
            _violated(f"{type(self).__qualname__}.{name}")
        set_attribute(self, name, value)

    owned.__setattr__ = checked


def _violated(what: str) -> None:
    error = LoopOwnsState(what)
    violations.append(error)
    for callback in on_violation:
        callback(error)
    raise error
