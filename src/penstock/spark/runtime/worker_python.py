"""Starts Spark's Python workers on this machine, quickly.

Spark puts an archive of PySpark first on the path of its Python processes. An archive has no compiled modules, so each
process compiles what it imports: a second of work for a query's planner, to which Spark gives ten seconds to start. The
workers of a local session run in the driver's environment, which has the same PySpark installed and compiled; so a
script starts them without the archive. Where a fork server runs, they are forked there (`fork_server`). All daemons are
those of `worker_daemon`; Spark's setting names it only for some of them.
"""

from __future__ import annotations

import os
import shlex
import sys

from penstock.spark.runtime import fork_client
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
case "$1 $2" in
    "-m pyspark.daemon") shift 2; set -- -m penstock.spark.worker_daemon "$@" ;;
esac
case "$1 $2" in
    "-m pyspark."* | "-m penstock."*)
        if [ -S "$PENSTOCK_FORK_SERVER" ]; then
            exec {python} -I -S {client} {python} "$PENSTOCK_FORK_SERVER" "$@"
        fi ;;
esac
exec {python} "$@"
"""


def worker_python() -> str:
    """The path of the script."""
    client = os.path.abspath(fork_client.__file__)
    text = _SCRIPT.format(python=shlex.quote(sys.executable), client=shlex.quote(client))
    return f"{scripts({'python': text})}/python"
