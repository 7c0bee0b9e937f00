"""Child processes behind a seam.

Work that would hold the interpreter for long (compaction) is done by a process of its own, which is started for one
piece of work, shares nothing with us but the disk, and may be killed at any point. What it runs is a module with a

    def main(files: FileSystem, arguments: list[str]) -> int: ...

whose result is the exit code. The real child calls it with the real files (`penstock.io.child`); the simulated twin in
`penstock.testing` calls it in the same process with the files of a simulated disk.
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
        """The exit code (negative: the signal it died of). Cancelling kills the child, and returns when it is gone."""
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
