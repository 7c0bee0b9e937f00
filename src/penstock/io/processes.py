"""The child process interface, and its implementation on the operating system.

Work that would occupy the interpreter for long (compaction) runs in a separate process. It is started for one piece of
work, shares only the disk with its parent, and may be killed at any time. It runs a module with a

    def main(files: FileSystem, arguments: list[str]) -> int: ...

whose result is the exit code. The real child calls it with the real files (`penstock.io.child`); the simulated one in
`penstock.simulator.twins` calls it in the same process with the files of a simulated disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol


class Processes(Protocol):
    async def run(self, module: str, arguments: Sequence[str]) -> int:
        """Run a module; return the exit code (negative: the signal that ended it).

        Cancelling kills the child, and returns when it is gone.
        """
        ...


class RealProcesses:
    async def run(self, module: str, arguments: Sequence[str]) -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock.io.child", str(os.getpid()), module, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
