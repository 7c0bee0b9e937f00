"""The Python of Spark's workers on this machine: ours, with PySpark from where it is installed.

Spark puts an archive of PySpark before everything else on the path of its Python processes. An archive has no compiled
modules, so each of them compiles what it imports: a second of work for the planner of a query, which Spark gives ten
seconds to appear. A local session's workers run in the driver's environment, which has the same PySpark installed and
compiled; so they are started by a script that leaves the archive out.
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
