"""The compiled kernels of `penstock.arrow`, ready before the first batch.

numba compiles them once a machine and keeps the result beside the sources. Left to itself that happens in a Spark task,
in every Python worker at once, and the first batch waits for it: 12 s on two cores. So a session has it done by a
process in the background while Java starts. A stamp in the cache directory tells that it was done for these sources by
this Python; without it, checking would cost every start a second.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import threading

from penstock import records
from penstock.spark.runtime.cache import cache_directory

_COMPILE_S = 300.0
_COMMAND = [sys.executable, "-c", "from penstock.spark.runtime.kernels import main; main()"]


def kernels_are_compiled() -> bool:
    return os.path.exists(_stamp())


def compile_kernels() -> None:
    """Compile what is not compiled yet; returns when every process of this machine can load it."""
    subprocess.run(_COMMAND, check=True, stdin=subprocess.DEVNULL, timeout=_COMPILE_S)


def compile_kernels_behind() -> None:
    """The same, in the background. Nobody waits for it, and its failure is nobody's: a task that comes first compiles
    for itself, as it would have had to anyway, and says what is wrong."""
    if not kernels_are_compiled():
        threading.Thread(target=_compile_quietly, name="kernels", daemon=True).start()


def _compile_quietly() -> None:
    subprocess.run(
        _COMMAND,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the driver
    )


def _stamp() -> str:
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('numba')}".encode())
    digest.update(os.environ.get("NUMBA_CACHE_DIR", "").encode())
    directory = os.path.dirname(records.__file__)
    for name in sorted(os.listdir(directory)):
        if name.startswith("columnar"):
            status = os.stat(os.path.join(directory, name))
            digest.update(f"{directory}/{name} {status.st_size} {status.st_mtime_ns}".encode())
    return os.path.join(cache_directory(), f"kernels-{digest.hexdigest()[:16]}")


def main() -> None:
    stamp = _stamp()
    importlib.import_module("penstock.arrow")  # its kernels have one signature each, so importing compiles them
    with open(stamp, "w", encoding="ascii"):
        pass
