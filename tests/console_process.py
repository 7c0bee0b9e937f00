"""`penstock console` as a process, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunningConsole:
    def __init__(self, process: subprocess.Popen[str], address: str, audit: Path) -> None:
        self.process = process
        self.address = address
        self.audit = audit

    def audit_lines(self) -> list[str]:
        return self.audit.read_text().splitlines() if self.audit.exists() else []


@contextmanager
def running_console(directory: Path, bootstrap: str, *options: str) -> Iterator[RunningConsole]:
    audit = directory / "audit.jsonl"
    command = [
        *(sys.executable, "-m", "penstock", "console", "-b", bootstrap, "--listen", "127.0.0.1:0"),
        *("--history", str(directory / "history.sqlite"), "--audit-log", str(audit), *options),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready http"), f"the console said {line!r}"
            yield RunningConsole(process, line.split()[1], audit)
        finally:
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, ""), "it ends cleanly, and says no more than one line"
