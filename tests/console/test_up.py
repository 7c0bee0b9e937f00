"""`penstock up --console`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.local.ports import free_ports
from waiting import wait_until

pytest.importorskip("starlette", reason="the extra `console` is not installed")


def not_refused(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except OSError:  # refused, or reset by the end of the killed process
        return False


def test_a_local_cluster_brings_its_console(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = ["--port", str(port), "--data", str(tmp_path / "data"), "-o", "penstock.metrics.listener=", "--console"]
    command = [sys.executable, "-m", "penstock", "up", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            told = process.stderr.readline()
            assert told.startswith("penstock up: the console is http://127.0.0.1:"), told
            assert process.stdout.readline() == f"ready 127.0.0.1:{port}\n"
            address = told.split()[-1]

            def overview() -> bool:
                with urllib.request.urlopen(address, timeout=30) as answer:
                    return b"1 of 1 up" in answer.read()

            wait_until(overview)
            os.kill(int((tmp_path / "data" / "console" / "pid").read_text()), signal.SIGKILL)
            told = process.stderr.readline()
            assert told == "penstock up: console was killed by SIGKILL, starting it again in 0.2 s\n"
            wait_until(lambda: not_refused(overview))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)
