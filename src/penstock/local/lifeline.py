"""A lifeline: a child process that does not outlive its parent, whatever kills the parent.

The parent holds the write end of a pipe and never writes; the child watches the read end. When the parent dies, even by
`kill -9`, the kernel closes its end and the child reads end of file. (`PR_SET_PDEATHSIG` is bound to the *thread* that
started the child, which in a test may end long before the process does.)

A child that is stopped (SIGSTOP) when its parent dies cannot watch the pipe. The kernel ends it, if the child is in its
own process group and in its parent's session: a group that is orphaned while it is stopped gets SIGHUP, which ends it,
and SIGCONT.
"""

from __future__ import annotations

import os
import signal
import threading


class Lifeline:
    """The parent's end.

    Pass `child_fd` to the child (`pass_fds`), then call `handed_over`; `cut` releases the child.
    """

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
    """In the child: when the parent is gone, stop as with SIGTERM, and forcibly after the grace period."""

    def watch() -> None:
        while os.read(fd, 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
