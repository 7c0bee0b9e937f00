"""Simulates child processes without processes: the module's `main` runs here, on a simulated disk."""

from __future__ import annotations

import asyncio
import importlib
import random
import signal
from collections.abc import Sequence

from penstock.io.threads import as_owner
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop
from penstock.simulator.twins.mount import Mount, ProcessKilled


class SimulatedProcesses:
    """Each child has its own `Mount` of the disk, and runs without a pause when the loop's executor gets to it.

    A cancelled child has done part of its work by then: it runs up to a change that `chance` picks. With a
    `death_rate`, children also die that way by themselves, as when the system is short of memory.
    """

    in_one_go = True
    """For the loop: its threads may pause half-way, children do not."""

    def __init__(self, disk: SimulatedDisk, chance: random.Random, *, death_rate: float = 0.0) -> None:
        self.death_rate = death_rate
        self.deaths = 0
        self._disk = disk
        self._chance = chance

    async def run(self, module: str, arguments: Sequence[str]) -> int:
        main = importlib.import_module(module).main
        generation = self._disk.generation

        def child(operations: int | None) -> int:
            if self._disk.generation != generation:
                return -signal.SIGKILL  # the machine went down with the child
            mount = Mount(self._disk, operations=operations)
            try:
                with as_owner():  # the child owns what is in its memory
                    code: int = main(mount, list(arguments))
            except ProcessKilled:
                self.deaths += 1
                return -signal.SIGKILL
            finally:
                mount.kill()
            return code

        doomed = self._chance.random() < self.death_rate
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        work = loop.run_in_executor(self, child, self._moment() if doomed else None)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancel():
                child(self._moment())
            raise

    def _moment(self) -> int:
        """The number of changes before it dies: mostly small, sometimes large."""
        return self._chance.choice(
            (0, self._chance.randrange(8), self._chance.randrange(64), self._chance.randrange(512))
        )
