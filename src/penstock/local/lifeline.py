"""A child that does not outlive its parent, whatever kills the parent.

The parent holds the writing end of a pipe and never writes; the child watches the reading end. When the parent dies,
even by `kill -9`, the kernel closes its end and the child reads the end of the file. (`PR_SET_PDEATHSIG` is bound to
the *thread* that started the child, which in a test may end long before the process does.)

A child that is stopped (SIGSTOP) when its parent dies can watch nothing. For that one the kernel cares, if the child is
in a process group of its own and in its parent's session: a group that is orphaned while it is stopped gets SIGHUP,
which ends it, and SIGCONT.
"""

from __future__ import annotations

import os
import signal
import threading


class Lifeline:
    """The parent's end. Give `child_fd` to the child (`pass_fds`), then `handed_over`; `cut` lets the child go."""

    def __init__(self) -> None:
        self.child_fd, self._parent_fd = os.pipe()

    def handed_over(self) -> None:
        os.close(self.child_fd)
        self.child_fd = -1

    def cut(self) -> None:
        if self._parent_fd >= 0:
            os.close(self._parent_fd)
            self._parent_fd = -1


def stop_with_parent(fd: int, grace_seconds: float = 10.0) -> None:
    """In the child: when the parent is gone, stop as if by SIGTERM, and hard if that takes longer than the grace."""

    def watch() -> None:
        while os.read(fd, 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
