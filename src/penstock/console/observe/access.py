"""The connections of one user to one cluster. Administration clients are not shared by threads: each borrows one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin

TIMEOUT_S = 8.0
_IDLE_MAX = 4


class ClusterAccess:
    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.options = dict(options or {})
        self._idle: list[Admin] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """An administration client; one whose connection failed is not used again."""
        with self._lock:
            admin = self._idle.pop() if self._idle else None
        if admin is None:
            admin = Admin(self.bootstrap, timeout=TIMEOUT_S, options=self.options or None)
        try:
            yield admin
        except ClientError:
            admin.close()
            raise
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(admin)
                return
        admin.close()

    def close(self) -> None:
        """Also forgets the password, which is here and nowhere else."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for admin in idle:
            admin.close()
        self.options.clear()
