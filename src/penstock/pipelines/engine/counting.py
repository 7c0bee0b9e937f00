"""Counts the rows of a batch in the job that writes them to the sinks, at almost no cost."""

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
        """0 if nothing computed the frame, as with a sink that has the batch already; Spark would wait for ever."""
        counted: Any = self._observation._jo
        deadline = time.monotonic() + _PATIENCE_S
        while not counted.future().isCompleted():
            if time.monotonic() > deadline:
                return 0
            time.sleep(_POLL_S)
        return int(self._observation.get["rows"])
