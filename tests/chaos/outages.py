"""Processes that are away for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
