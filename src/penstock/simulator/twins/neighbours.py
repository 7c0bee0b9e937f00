"""Lets the processes of simulated hosts find each other as if they ran on one machine."""

from __future__ import annotations

from penstock.simulator.twins.loop import Process, SimulatedLoop


class SimulatedNeighbours:
    """Shared by all neighbours."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._named: dict[str, Process] = {}

    def announce(self, name: str) -> None:
        process = self._loop.process
        assert process is not None, "only a process can be found"
        self._named[name] = process

    def is_here(self, name: str) -> bool:
        process = self._named.get(name)
        return process is not None and process.alive

    def withdraw(self) -> None:
        withdrawn = self._loop.process
        self._named = {name: process for name, process in self._named.items() if process is not withdrawn}
