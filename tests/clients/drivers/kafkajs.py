"""kafkajs, in a node process (`kafkajs/driver.js`). Its packages are installed on first use, beside the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

import pytest

from drivers.process import ProcessClient, locked

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "kafkajs")


def install() -> None:
    """`npm ci` unless what the lock file names is already there; skips the tests where that cannot be had."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("kafkajs needs node and npm")
    modules = os.path.join(DIRECTORY, "node_modules")
    installed_lock = os.path.join(modules, "installed-package-lock.json")
    with open(os.path.join(DIRECTORY, "package-lock.json")) as lock_file:
        wanted = lock_file.read()
    with locked(os.path.join(tempfile.gettempdir(), f"penstock-kafkajs-{os.getuid()}.lock")):
        if os.path.exists(installed_lock):
            with open(installed_lock) as lock_file:
                if lock_file.read() == wanted:
                    return
        outcome = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=DIRECTORY,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if outcome.returncode:
            pytest.skip(f"npm could not install kafkajs: {outcome.stderr.strip()[-300:]}")
        with open(installed_lock, "w") as lock_file:
            lock_file.write(wanted)


class KafkaJs(ProcessClient):
    name = "kafkajs"
    sends_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        install()
        super().__init__(["node", "driver.js", bootstrap], DIRECTORY)
