"""Rows of a batch counted on their way to the sinks: by the job that writes them, which costs next to nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATIENCE_S = 1.0
_POLL_S = 0.01


class Counted:
    """A frame that counts its rows when it is computed for the first time."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._observation = Observation()
        self.frame = frame.observe(self._observation, f.count(f.lit(1)).alias("rows"))

    def rows(self) -> int:
        """0 if nobody computed it, as a sink does that has the batch already: to Spark it would be worth waiting for
        ever."""
        counted: Any = self._observation._jo
        deadline = time.monotonic() + _PATIENCE_S
        while not counted.future().isCompleted():
            if time.monotonic() > deadline:
                return 0
            time.sleep(_POLL_S)
        return int(self._observation.get["rows"])
