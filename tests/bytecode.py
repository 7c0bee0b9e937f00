"""In a fresh clone, test modules are compiled once instead of once in every test process.

pytest rewrites the assertions of test modules when it imports them, which takes longer than everything else about an
import, and keeps the result in `__pycache__`. xdist's processes all import all modules at the same time, so none of
them would find what another one has kept. So a process for each core collects a share of the tests before they start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def is_compiled() -> bool:
    """Whether an earlier run has left its bytecode. Each process compiles by itself what has
    changed since then."""
    return sys.pycache_prefix is not None or any(TESTS.rglob("test_*-pytest-*.pyc"))


def compile_in_parallel() -> None:
    """What does not compile is not reported here: the test processes meet it again."""
    files = sorted(str(path) for path in TESTS.rglob("test_*.py"))
    size = -(-len(files) // len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "-p", "no:xdist"]
    shares = [files[start : start + size] for start in range(0, len(files), size)]
    running = [
        subprocess.Popen([*command, *share], cwd=TESTS.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for share in shares
    ]
    for process in running:
        process.wait()
