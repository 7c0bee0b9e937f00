"""Removes the demo's processes and files, however the demo ends: `python -m penstock.demo.cleanup DIRECTORY`.

The demo holds the write end of this process's standard input and writes the process groups it starts (`+PGID`) and has
ended (`-PGID`), a line each. When the demo is gone, even by `kill -9` or with its terminal, the kernel closes that end.
Then this process kills the groups that are left and removes the directory. (Brokers watch their parent themselves, see
`penstock.local.lifeline`, but shut down cleanly first.)

A process that was started when the demo was killed, but not yet announced, ends by itself some seconds later, and may
write files until then. All processes therefore inherit the write end of another pipe, `alive_fd`, and the directory is
removed when the last of them has closed it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_RETRY_S = 0.1
_ATTEMPTS = 300
_LAST_END_S = 60.0


class Cleanup:
    """The demo's side of it."""

    def __init__(self, directory: str) -> None:
        ended_fd, self.alive_fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.demo.cleanup", directory, str(ended_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(ended_fd,),
            start_new_session=True,  # closing the terminal ends its session
        )
        os.close(ended_fd)

    def started(self, group: int) -> None:
        self._write(f"+{group}\n")

    def ended(self, group: int) -> None:
        self._write(f"-{group}\n")

    def close(self) -> None:
        """Returns when all processes and files are gone."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            os.close(self.alive_fd)
            self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def main() -> None:
    directory, ended_fd = sys.argv[1], int(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    select.select([ended_fd], [], [], _LAST_END_S)
    for _ in range(_ATTEMPTS):  # a process that is being killed may still write
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return
        time.sleep(_RETRY_S)


if __name__ == "__main__":
    main()
