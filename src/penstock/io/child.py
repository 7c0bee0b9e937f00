"""The main program of a child process: `python -m penstock.io.child PARENT MODULE ARGUMENT...`.

The child lowers its priority below its parent's and does not outlive it: a broker that was killed and restarted must
not find a child of the previous process at work on the same files. The child does both itself, because code between
fork and exec is not safe in a parent with threads.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys

from penstock.io.files import RealFileSystem

_NICENESS = 10
_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:  # the parent died before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    parent, module, *arguments = sys.argv[1:]
    _die_with(int(parent))
    os.nice(_NICENESS)
    code: int = importlib.import_module(module).main(RealFileSystem(), arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
