"""Configures the log output of a node: text or JSON (`penstock.log.format`).

With JSON, every line is one object: time (RFC 3339, UTC), level, logger, node, message and, if there is one, exception
(the traceback as one string), thread (for lines from other threads than the event loop's) and audit (an object, for
lines of the audit log). These fields are stable; others may be added.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
TEXT_TIME: Final = "%Y-%m-%d %H:%M:%S"


class JsonFormatter(logging.Formatter):
    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "node": self._node_id,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if hasattr(record, "audit"):
            line["audit"] = record.audit
        if record.threadName != threading.main_thread().name:
            line["thread"] = record.threadName
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(log_format: str, node_id: int) -> None:
    """Log to stderr, for the whole process. With JSON, warnings and uncaught exceptions become JSON lines too."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter(node_id))
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
    else:
        handler.setFormatter(logging.Formatter(TEXT_FORMAT, TEXT_TIME))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("penstock.node").critical("the node failed: %s", error, exc_info=(kind, error, trace))
