"""Spark's daemon of Python workers, which stays silent where a worker's reader has gone.

Spark closes the connection to a worker whose rows it does not need any more: a LIMIT is reached, a query has stopped.
The worker then fails to flush its output and ends, as it should, but the daemon prints a traceback for each. Everything
else that goes wrong in a worker is printed as before. (`spark.python.daemon.module` names this module.)
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

_READER_GONE = (BrokenPipeError, ConnectionResetError)


class QuietTraceback:
    """The part of `traceback` that the daemon uses."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc(*arguments: Any) -> None:
        if not isinstance(sys.exc_info()[1], _READER_GONE):
            traceback.print_exc(*arguments)


if __name__ == "__main__":
    from pyspark import daemon

    vars(daemon)["traceback"] = QuietTraceback
    daemon.manager()
