"""Processes that are away for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.testing.nodes import RunningNode


class Pausable(Protocol):
    def pause(self) -> None: ...

    def resume(self) -> None: ...


@contextlib.contextmanager
def killed(*nodes: RunningNode) -> Iterator[None]:
    for node in nodes:
        node.kill()
    yield
    for node in reversed(nodes):
        node.start()


def kill_and_restart(nodes: Sequence[RunningNode]) -> None:
    """All at once: none of them waits for another."""
    for node in nodes:
        node.kill()
    for node in nodes:
        node.begin_start()
    for node in nodes:
        node.wait_ready()


@contextlib.contextmanager
def stopped(node: RunningNode) -> Iterator[None]:
    assert node.stop() == 0
    yield
    node.start()


@contextlib.contextmanager
def paused(process: Pausable) -> Iterator[None]:
    process.pause()
    try:
        yield
    finally:
        process.resume()
