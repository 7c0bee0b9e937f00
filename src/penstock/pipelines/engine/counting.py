"""Measures the batches of a query in the jobs that write them, at almost no cost: rows, dead letters, times."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.pipelines.engine.query_status import RecordTimes
from penstock.pipelines.engine.tables import KIND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PATIENCE_S = 1.0
_POLL_S = 0.01


class Observed:
    """A frame that computes aggregates when it is computed for the first time."""

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        from pyspark.sql import Observation

        self._observation = Observation()
        self.frame = frame.observe(self._observation, *aggregates)

    def values(self) -> Mapping[str, Any]:
        """Empty if nothing computed the frame, as with a sink that has the batch already; Spark would wait for ever."""
        computed: Any = self._observation._jo
        deadline = time.monotonic() + _PATIENCE_S
        while not computed.future().isCompleted():
            if time.monotonic() > deadline:
                return {}
            time.sleep(_POLL_S)
        return self._observation.get


class Counted(Observed):
    """Counts its rows."""

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        from pyspark.sql import functions as f

        super().__init__(frame, f.count(f.lit(1)).alias("rows"), *aggregates)

    def rows(self) -> int:
        return int(self.values().get("rows") or 0)


class CountedLetters(Counted):
    """Counts dead letters, also by the kinds of their reasons."""

    def __init__(self, frame: DataFrame, kinds: Iterable[str]) -> None:
        self._kinds = list(dict.fromkeys(kinds))
        super().__init__(frame, *counts_by_kind(self._kinds))

    def by_kind(self) -> Counter[str]:
        return by_kind(self.values(), self._kinds)


class RecordTimesOf(Observed):
    """Looks at the timestamps of records."""

    def __init__(self, records: DataFrame) -> None:
        from pyspark.sql import functions as f

        super().__init__(records, *time_aggregates(f.unix_millis("timestamp")))

    def times(self) -> RecordTimes | None:
        return times_in(self.values())


def counts_by_kind(kinds: Sequence[str], prefix: str = "", only: Column | None = None) -> list[Column]:
    from pyspark.sql import functions as f

    def is_of(kind: str) -> Column:
        fits = f.col(KIND) == kind
        return fits if only is None else only & fits

    return [f.count_if(is_of(kind)).alias(f"{prefix}kind_{number}") for number, kind in enumerate(kinds)]


def by_kind(values: Mapping[str, Any], kinds: Sequence[str], prefix: str = "") -> Counter[str]:
    counts = {kind: int(values.get(f"{prefix}kind_{number}") or 0) for number, kind in enumerate(kinds)}
    return Counter({kind: count for kind, count in counts.items() if count})


def time_aggregates(milliseconds: Column) -> list[Column]:
    """An average instead of a sum: the sum of some million times exceeds a BIGINT."""
    from pyspark.sql import functions as f

    return [
        f.count(milliseconds).alias("timed"),
        f.avg(milliseconds).alias("time_mean"),
        f.min(milliseconds).alias("time_oldest"),
    ]


def times_in(values: Mapping[str, Any]) -> RecordTimes | None:
    """What `time_aggregates` found; None if no row had a time."""
    if not values.get("timed"):
        return None
    return RecordTimes(int(values["timed"]), float(values["time_mean"]), float(values["time_oldest"]))


def written_together(sinks: Sequence[str]) -> str:
    """How metrics call sinks whose records are one write."""
    return ",".join(sinks) or "dead letters"


class Stopwatch:
    """Adds up time by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
