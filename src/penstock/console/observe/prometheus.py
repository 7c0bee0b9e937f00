"""History from a Prometheus server: it often has months, where the console has watched since yesterday.

A page never waits for it. What is known is returned at once, and what is old or unknown is asked for in a thread; when
the answer is there, pages are drawn again. If Prometheus does not answer, the console's own history is shown.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from penstock.console.views.charts import Point
from penstock.console.views.promql import Question, points_of, question

TIMEOUT_S = 5.0
FRESH_S = 15.0
KNOWN_MAX = 256
_AGAIN_S = 30.0
_ANSWER_MAX = 32 * 1024 * 1024

Key = tuple[str, tuple[str, ...], int]


class PrometheusHistory:
    def __init__(self, url: str, match: str = "", on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called in a thread when there is something new."""
        self._url = url.rstrip("/")
        self._match = match
        self._on_change = on_change
        self._lock = threading.Lock()
        self._known: dict[Key, tuple[float, dict[str, list[Point]]]] = {}
        self._asked: set[Key] = set()
        self._not_before = 0.0
        self.problem: str | None = None

    def read_many(self, kind: str, names: Sequence[str], begin_ms: int, end_ms: int) -> dict[str, list[Point]]:
        """What is known; empty if nothing is, yet or at all."""
        span_s = max(1, (end_ms - begin_ms) // 1000)
        wanted = question(kind, names, span_s, self._match)
        if wanted is None:
            return {}
        key = (kind, tuple(names), span_s)
        now = time.monotonic()
        with self._lock:
            at, found = self._known.get(key, (float("-inf"), {}))
            due = now - at > FRESH_S and key not in self._asked and now >= self._not_before
            if due and len(self._asked) < KNOWN_MAX:
                self._asked.add(key)
                threading.Thread(
                    target=self._ask, args=(key, wanted, end_ms / 1000), name="prometheus", daemon=True
                ).start()
        return found

    def _ask(self, key: Key, wanted: Question, end_s: float) -> None:
        found: dict[str, list[Point]] | None = None
        problem: str | None = None
        try:
            found = points_of(wanted.kind, self._get(wanted, end_s - key[2], end_s))
        except (OSError, ValueError) as error:
            problem = f"Prometheus at {self._url} does not answer: {' '.join(str(error).split())[:200]}"
        with self._lock:
            self._asked.discard(key)
            if found is None:
                self._not_before = time.monotonic() + _AGAIN_S
            else:
                self._known.pop(key, None)
                while len(self._known) >= KNOWN_MAX:
                    del self._known[next(iter(self._known))]
                self._known[key] = (time.monotonic(), found)
            self.problem = problem
        self._on_change()

    def _get(self, wanted: Question, begin_s: float, end_s: float) -> Any:
        form = {"query": wanted.query, "start": f"{begin_s:.0f}", "end": f"{end_s:.0f}", "step": f"{wanted.step_s}s"}
        request = urllib.request.Request(
            f"{self._url}/api/v1/query_range",
            data=urllib.parse.urlencode(form).encode(),
            headers={"accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.loads(answer.read(_ANSWER_MAX))
        except urllib.error.HTTPError as error:
            raise ValueError(f"{error.code} {error.read(500).decode(errors='replace')}") from error
