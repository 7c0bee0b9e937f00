"""What is left behind when the demo ends, however it ends, is taken away: `python -m penstock.demo.janitor DIRECTORY`.

The demo holds the writing end of our standard input and tells us the process groups it starts (`+PGID`) and has ended
(`-PGID`), a line each. When the demo is gone, even by `kill -9` or with its terminal, the kernel closes that end. Then
the groups that are left are killed and the directory is removed. (Brokers watch their parent themselves, see
`penstock.local.lifeline`, but take their leave first.)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

_AGAIN_SECONDS = 0.1
_TIMES = 300


class Janitor:
    """The demo's side."""

    def __init__(self, directory: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.demo.janitor", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a terminal that goes takes its session with it
        )

    def started(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def ended(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Returns when all is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def main() -> None:
    directory = sys.argv[1]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(_TIMES):  # who is being killed may still write
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return
        time.sleep(_AGAIN_SECONDS)


if __name__ == "__main__":
    main()
