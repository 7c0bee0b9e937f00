"""The connections of one user to one cluster. Administration clients are not shared by threads: each borrows one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from penstock.client.wire.admin import Admin
from penstock.client.wire.bundle import Bundle
from penstock.model.errors import KafkaError

TIMEOUT_S = 8.0
_IDLE_MAX = 4

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ClusterAccess:
    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.options = dict(options or {})
        self._connections = Bundle()
        self._idle: list[Admin] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
        """Call this, in this thread. The connections that it opens end with this access, even if a thread waits."""
        return self._connections.run(function, *arguments, **named)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """An administration client; one whose connection failed is not used again."""
        with self._lock:
            admin = self._idle.pop() if self._idle else None
        if admin is None:
            admin = Admin(self.bootstrap, timeout=TIMEOUT_S, options=self.options or None)
        is_usable = True
        try:
            yield admin
        except KafkaError:  # an answer
            raise
        except BaseException:
            is_usable = False
            raise
        finally:
            self._give_back(admin, is_usable=is_usable)

    def _give_back(self, admin: Admin, *, is_usable: bool) -> None:
        with self._lock:
            if is_usable and not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(admin)
                return
        admin.close()

    def close(self) -> None:
        """Also forgets the password, which is here and in the open connections, and nowhere else."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        self._connections.cut()
        for admin in idle:
            admin.close()
        self.options.clear()
