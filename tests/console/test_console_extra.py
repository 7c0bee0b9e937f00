"""The console starts with what the extra `console` installs: nothing of pipelines, Spark or sinks."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = ("sqlglot", "yaml", "pyspark", "pandas", "deltalake", "joserfc", "jsonschema")
PROGRAM = f"""
import sys
for name in {WITHOUT!r}:
    sys.modules[name] = None  # an import of it fails
import penstock.console.server.run
"""


def test_no_other_extra_is_needed() -> None:
    outcome = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
