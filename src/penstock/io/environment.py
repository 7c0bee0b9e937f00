"""The environment of a node: all its interfaces to the outside. Each has a simulated implementation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.io.clock import Clock, Randomness
from penstock.io.files import FileSystem
from penstock.io.neighbours import Neighbours
from penstock.io.processes import Processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    loop: asyncio.AbstractEventLoop
    files: FileSystem
    clock: Clock
    randomness: Randomness
    processes: Processes
    neighbours: Neighbours
