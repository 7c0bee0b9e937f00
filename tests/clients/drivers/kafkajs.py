"""kafkajs, in a node process (`kafkajs/driver.js`). Its packages are installed on first use, beside the driver."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile

import pytest

from clients.drivers.process import ProcessClient, locked, read

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "kafkajs")
NPM_CI = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")


@functools.cache
def why_not_installed() -> str | None:
    """`npm ci` unless what the lock file names is already there; the reason where that cannot be had. Tried once."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "kafkajs needs node and npm"
    installed_lock = os.path.join(DIRECTORY, "node_modules", "installed-package-lock.json")
    wanted = read(os.path.join(DIRECTORY, "package-lock.json"))
    with locked(os.path.join(tempfile.gettempdir(), f"penstock-kafkajs-{os.getuid()}.lock")):
        if os.path.exists(installed_lock) and read(installed_lock) == wanted:
            return None
        try:
            outcome = subprocess.run(NPM_CI, cwd=DIRECTORY, capture_output=True, text=True, timeout=90)
        except subprocess.TimeoutExpired:
            return "npm took too long to install kafkajs"
        if outcome.returncode:
            return f"npm could not install kafkajs: {outcome.stderr.strip()[-300:]}"
        with open(installed_lock, "w") as lock_file:
            lock_file.write(wanted)
        return None


class KafkaJs(ProcessClient):
    name = "kafkajs"
    sends_null_headers = False

    def __init__(self, bootstrap: str, request_ms: int = 30_000, *, patient: bool = False) -> None:
        """`request_ms`: how long a broker that is silent is waited for. `patient`: it repeats what fails for some
        seconds, as programs do."""
        if reason := why_not_installed():
            pytest.skip(reason)
        super().__init__(
            ["node", "driver.js", bootstrap, str(request_ms), "patient" if patient else "quick"], DIRECTORY
        )
