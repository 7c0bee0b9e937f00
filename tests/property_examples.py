"""How many examples a property is tried with.

`make test` tries all of them. Coverage needs fewer: the first few settle which lines run, and tracing makes each one
several times as slow.
"""

from __future__ import annotations

import os

TRACED = "traced"
"""The profile of Hypothesis, named by HYPOTHESIS_PROFILE, under which `.ci/coverage` runs the properties."""

_FEWEST = 10


def examples(count: int) -> int:
    """`@settings(max_examples=examples(300))`: that many, or a fifth of them where they are traced."""
    if os.environ.get("HYPOTHESIS_PROFILE") != TRACED:
        return count
    return max(_FEWEST, count // 5)
