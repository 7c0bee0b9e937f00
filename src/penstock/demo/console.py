"""The web console beside the demo: the cluster in a browser, and a board with the fleet and the shop.

The demo does without it: where its packages are missing or no port is free, it says so and goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib.util import find_spec

from penstock.demo.cleanup import Cleanup
from penstock.demo.workload import PIPELINES, pipeline_file
from penstock.local.process import NodeFailed
from penstock.local.web import LocalConsole, console_port

_HOST = "127.0.0.1"
_BOARD = "demo"
_READY_S = 120.0
_ATTEMPTS = 3
_PACKAGES = ("starlette", "uvicorn", "pyarrow")


class NoConsole(Exception):
    """There will be no console; the message says why."""


class DemoConsole:
    def __init__(self, directory: str, bootstrap: str, cleanup: Cleanup) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self._cleanup = cleanup
        self._process: LocalConsole | None = None
        self._stopped = False
        self._changing = threading.Lock()
        self.url: str | None = None
        """The page with the fleet and the shop, once it can be opened."""

    def start(self, cancelled: Callable[[], bool]) -> None:
        """Returns when a browser can open it. Another program may take the port first: then the next one is tried."""
        missing = [name for name in _PACKAGES if find_spec(name) is None]
        if missing:
            raise NoConsole(f"the web console needs pip install 'penstock[console]' ({', '.join(missing)} is missing)")
        failure = ""
        refused: set[int] = set()
        for _ in range(_ATTEMPTS):
            port = console_port(_HOST, refused)
            if port is None:
                raise NoConsole("the web console found no free port from 8080 on")
            try:
                self._start(port, cancelled)
            except NodeFailed as error:
                failure = str(error)
                refused.add(port)
                self._kill()
            else:
                return
        raise NoConsole(failure)

    def stop(self) -> None:
        with self._changing:
            self._stopped = True
        self._kill()

    def _start(self, port: int, cancelled: Callable[[], bool]) -> None:
        files = [word for name in PIPELINES for word in ("--pipeline", pipeline_file(name))]
        process = LocalConsole(
            self._directory,
            bootstrap=self._bootstrap,
            host=_HOST,
            port=port,
            arguments=["--board", board_file(), *files],
        )
        with self._changing:
            if self._stopped:
                return
            process.inherited_fds = (self._cleanup.alive_fd,)
            process.start()
            self._process = process
            assert process.process is not None
            self._cleanup.started(process.process.pid)
        process.wait_ready(_READY_S, cancelled=lambda: self._stopped or cancelled())
        if not self._stopped and not cancelled():
            self.url = f"{process.url}/reports/{_BOARD}"

    def _kill(self) -> None:
        """Its history is about to be deleted anyway."""
        with self._changing:
            self.url = None
            process, self._process = self._process, None
            if process is not None and process.process is not None:
                self._cleanup.ended(process.process.pid)
                process.kill()


def board_file() -> str:
    return os.path.join(os.path.dirname(__file__), "boards", f"{_BOARD}.toml")
