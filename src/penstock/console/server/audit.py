"""One line in JSON for each change, and for each that was refused: when, who, what, to what. Never contents."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO


class Audit:
    """Shared by the clusters of a console."""

    def __init__(self, path: str | None) -> None:
        self._lock = threading.Lock()
        self._file: TextIO = sys.stderr if path is None else open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed below
        self._is_ours = path is not None

    def write(self, user: str | None, action: str, subject: str, result: str, **details: str) -> None:
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "user": user,
            "action": action,
            "subject": subject,
            "result": result,
            **details,
        }
        with self._lock:
            print(json.dumps(entry, ensure_ascii=True), file=self._file, flush=True)

    def close(self) -> None:
        if self._is_ours:
            self._file.close()


@dataclass(frozen=True, slots=True)
class ClusterAudit:
    """The lines about one cluster, which have its name if there are several."""

    audit: Audit
    cluster: str = ""

    def write(self, user: str | None, action: str, subject: str, result: str, **details: str) -> None:
        named = {"cluster": self.cluster} if self.cluster else {}
        self.audit.write(user, action, subject, result, **named, **details)
