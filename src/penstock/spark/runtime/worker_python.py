"""Starts Spark's Python workers on this machine with the installed PySpark instead of Spark's archive of it.

Spark puts an archive of PySpark first on the path of its Python processes. An archive has no compiled modules, so each
process compiles what it imports: a second of work for a query's planner, to which Spark gives ten seconds to start. The
workers of a local session run in the driver's environment, which has the same PySpark installed and compiled; so a
script starts them without the archive.
"""

from __future__ import annotations

import shlex
import sys

from penstock.spark.runtime.cache import scripts

_SCRIPT = """#!/bin/sh
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept="$kept${{kept:+:}}$entry" ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def worker_python() -> str:
    """The path of the script."""
    return f"{scripts({'python': _SCRIPT.format(python=shlex.quote(sys.executable))})}/python"
